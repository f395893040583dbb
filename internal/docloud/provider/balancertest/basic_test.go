// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

func TestServiceGetsItsLoadBalancerAndNothingIsSentAgain(t *testing.T) {
	both(t, with(func(o *digitalocean.Options) { o.LoadBalancers.ActiveAfterReads = 3 }), func(t *testing.T, w *world) {
		w.run()
		s := w.create("web")
		lb := w.balancer("web")
		if want := "a" + s.Name; lb.Name == want || !slices.Equal(lb.Tags, []string{"k8s:" + w.Name}) || len(lb.DropletIDs) != 2 {
			t.Errorf("load balancer is %+v", lb)
		}
		if got := w.Service("web"); got.Annotations[annotation.Type] != annotation.TypeRegional || len(got.Finalizers) != 1 {
			t.Errorf("service is %+v", got.ObjectMeta)
		}
		w.resyncs()
		w.annotate("web", "example.com/irrelevant", "x")
		w.resyncs()
		if got := w.Writes(0); len(got) != 1 || got[createRoute] != 1 {
			t.Errorf("writes %v, want one POST and nothing else", got)
		}
	})
}
