// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// connect connects a pod that exists in Kubernetes to a machine.
func (s *scene) connect(machine, name string) (handle string) {
	s.t.Helper()
	s.cluster.AllowPods(s.t, "default", "default")
	stored := must.Get(s.cluster.Client.CoreV1().Pods("default").Create(s.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: s.name(name)},
		Spec: corev1.PodSpec{
			NodeName: s.name(machine), Containers: []corev1.Container{{Name: "c", Image: "i"}}, AutomountServiceAccountToken: new(bool),
		},
	}, metav1.CreateOptions{})).Or(s.t)
	s.t.Cleanup(func() {
		now := int64(0)
		_ = s.cluster.Client.CoreV1().Pods("default").Delete(context.Background(), stored.Name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	})
	must.Get(s.agents[machine].PodNetwork().Add(s.t.Context(), stored)).Or(s.t)
	return caliconode.HandleID(stored)
}

// doctor ipam reads all of IPAM, reports what two readings show, and writes nothing.
func TestDoctorIPAM(t *testing.T) {
	t.Parallel()
	s := newScene(t, "ipam", 0)
	s.createNode(s.name("0"))
	s.start("0", s.name("0"))
	handle := s.connect("0", "web")
	as := []string{"ipam", "--kubeconfig", s.cluster.Kubeconfig, "--wait=1ms"}
	well := examine(t, s.settings(), as...)
	well.expect(t, finding.OK, ipamcheck.CheckIPAM, "2 addresses of 1 block agree with 2 handles, 1 affinity, 1 endpoint and 1 pool")
	if len(well.Findings) != 1 {
		t.Errorf("nothing disagrees, but:\n%s", finding.Text(well.Findings, 0))
	}
	must.Get(s.etcd.Client.Delete(t.Context(), "/calico/ipam/v2/handle/"+handle)).Or(t)
	before := s.etcd.Revision(t)
	ill := examine(t, s.settings(), as...)
	ill.expect(t, finding.Warning, string(ipamcheck.HandleMissing), "1 × handle that is missing for addresses: 1 address is assigned in block 10.244.")
	if len(ill.Findings) != 1 {
		t.Errorf("one thing disagrees, but:\n%s", finding.Text(ill.Findings, 0))
	}
	s.expectRevision(before, "doctor ipam only reads")
	if code, out := s.run("doctor", "ipam", "--wait=-1s"); code != 1 || !strings.Contains(out, "--wait is -1s: it must not be negative") {
		t.Errorf("a negative --wait: got exit code %d and %s", code, out)
	}
	var printed map[string]any
	if _, out := program(t, s.settings(), append([]string{"doctor", "-o", "json"}, as...)...); json.Unmarshal([]byte(out), &printed) != nil {
		t.Errorf("not one document: %s", out)
	}
}
