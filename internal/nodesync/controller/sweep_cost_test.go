// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// podPages lists the metadata of many pods, page by page, and counts the lists.
type podPages struct {
	client.Reader
	pods, lists int
}

func (s *podPages) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	s.lists++
	var o client.ListOptions
	o.ApplyOptions(opts)
	page, ok := list.(*metav1.PartialObjectMetadataList)
	if !ok || o.Limit < 1 || o.Limit > podMetadataPerPage {
		return fmt.Errorf("more than metadata, or than a page, is listed: %T, %+v", list, o)
	}
	first, _ := strconv.Atoi(o.Continue)
	end := min(first+int(o.Limit), s.pods)
	page.Items, page.Continue = nil, ""
	for i := first; i < end; i++ {
		page.Items = append(page.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}})
	}
	if end < s.pods {
		page.Continue = strconv.Itoa(end)
	}
	return nil
}

// podCluster is a world whose pods are those of a cluster.
type podCluster struct {
	*world
	pods *KubernetesCluster
}

func (c podCluster) EachPod(ctx context.Context, visit func(namespace, name string)) error {
	return c.pods.EachPod(ctx, visit)
}

// A sweep lists pods' metadata alone, 2,000 in one call; between sweeps it lists none.
func TestCallsOfASweep(t *testing.T) {
	t.Parallel()
	for pods, lists := range map[int]int{0: 1, podMetadataPerPage: 1, 2*podMetadataPerPage + 1: 3} {
		s, w := &podPages{pods: pods}, listing()
		r := w.reconciler()
		r.Leftovers, r.Cluster = true, podCluster{w, NewKubernetesCluster(s, clock.RealClock{})}
		for range 4 {
			must.Get(r.pass(t.Context())).Or(t)
		}
		if s.lists != lists || r.memory.Sweep.PodsDue {
			t.Errorf("%d pods: %d lists for a sweep and three rounds after it, want %d (failed: %t)", pods, s.lists, lists, r.memory.Sweep.PodsDue)
		}
	}
}
