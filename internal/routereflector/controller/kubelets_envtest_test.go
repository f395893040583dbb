// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// A reflector's Node is unknown, and the others have their sessions with it still, as BIRD keeps those of a silent
// machine for four minutes. It stays while its kubelet answers, and is replaced when that does not.
func TestASilentKubeletIsReplaced(t *testing.T) {
	t.Parallel()
	s := newStage(t, 6)
	kubelets := &network{to: map[string]string{}}
	alive := listens(t)
	address := func(node string) string {
		n := &corev1.Node{}
		if err := s.client.Get(t.Context(), types.NamespacedName{Name: node}, n); err != nil {
			t.Fatal(err)
		}
		host := routereflector.NodeFrom(n, 0, routereflector.DefaultASNumber).IPv4
		return net.JoinHostPort(host.String(), strconv.Itoa(KubeletPort))
	}
	for i := range 6 {
		kubelets.set(address(nodeName(i)), alive)
	}
	s.start(func(r *Reconciler, _ *cluster.Program) {
		r.Kubelets = &Kubelets{Port: KubeletPort, Pause: 100 * time.Millisecond, Clock: clock.RealClock{}, Dial: kubelets.dial}
	})
	s.create("main", `{redundancy: 2, failure: {unreachableGrace: 10s, stabilization: 0s}}`)
	s.await("main", v1alpha1.PhaseReady)
	s.expectOnlyStanding()
	if count := kubelets.count(); count > 0 {
		t.Errorf("there are %d connections to kubelets, and nobody is doubted", count)
	}
	before := s.reflectors()
	n := &corev1.Node{}
	if err := s.client.Get(t.Context(), types.NamespacedName{Name: before[0]}, n); err != nil {
		t.Fatal(err)
	}
	s.setReady(n, corev1.ConditionUnknown, time.Minute)
	asked := 0
	testkit.Eventually(t, "the kubelet to be asked after the grace period", func() string {
		message := s.told(v1alpha1.ConditionDegraded, "ReflectorNotReady")
		if asked == 0 && strings.Contains(message, "it is replaced once") {
			asked = kubelets.count()
		}
		if asked == 0 || kubelets.count() < asked+20 {
			return fmt.Sprintf("%d connections, %s", kubelets.count(), message)
		}
		return ""
	})
	if got := s.reflectors(); !slices.Equal(got, before) {
		t.Fatalf("its kubelet answers, and the reflectors are %v, were %v", got, before)
	}
	kubelets.set(address(before[0]), swallows(t))
	testkit.Eventually(t, "another reflector in its place", func() string {
		if got := s.reflectors(); len(got) != 2 || slices.Contains(got, before[0]) {
			return fmt.Sprint(got)
		}
		return ""
	})
}
