// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// disagree puts three disagreements into the scene's datastore, of which a program repairs two, and returns what the
// datastore holds then.
func (s *scene) disagree(machine, handle string) map[string]string {
	s.t.Helper()
	dump := s.etcd.Dump(s.t)
	must.Get(s.etcd.Client.Delete(s.t.Context(), "/calico/ipam/v2/handle/"+handle)).Or(s.t)
	for key, value := range dump {
		switch {
		case strings.HasPrefix(key, "/calico/ipam/v2/host/"+s.name(machine)+"/"):
			value = strings.Replace(value, `"confirmed"`, `"pendingDeletion"`, 1)
		case strings.HasPrefix(key, "/calico/resources/v3/projectcalico.org/workloadendpoints/"):
			value = strings.Replace(value, `"ipNetworks":["`, `"ipNetworks":["10.244.255.1/32","`, 1)
		default:
			continue
		}
		must.Get(s.etcd.Client.Put(s.t.Context(), key, value)).Or(s.t)
	}
	return s.etcd.Dump(s.t)
}

// plan --repair shows what apply --repair makes, each repair is in the journal, and restore undoes them: from a
// folder, and from ConfigMaps.
func TestApplyRepair(t *testing.T) {
	t.Parallel()
	s := newScene(t, "repair", 0)
	s.createNode(s.name("0"))
	s.start("0", s.name("0"))
	planted := s.disagree("0", s.connect("0", "web"))
	expect := func(wantCode int, command string, parts []string, args ...string) {
		t.Helper()
		code, out := s.run(command, append([]string{"--datastore-type=etcdv3"}, args...)...)
		for _, part := range parts {
			if !strings.Contains(out, part) {
				t.Errorf("%s %v: no %q in:\n%s", command, args, part, out)
			}
		}
		if code != wantCode {
			t.Errorf("%s %v: exit code %d, not %d:\n%s", command, args, code, wantCode, out)
		}
	}
	shown := []string{
		"handle-missing: create the handle", "affinity-pending-deletion: confirm the affinity again",
		"endpoint-address-unassigned is left alone: delete the pod", "2 repairs, 1 left alone",
	}
	expect(2, "plan", shown, "--repair", "--grace-period=1ms")
	expect(2, "apply", shown, "--repair", "--grace-period=1ms", "--dry-run")
	expect(1, "apply", []string{"standard input is not a terminal"}, "--repair")
	expect(1, "apply", []string{"it takes neither a NODE nor --confirm"}, "--repair", "--yes", s.name("0"))
	expect(1, "plan", []string{"name no machine"}, "--repair", s.name("0"))
	if diff := cmp.Diff(planted, s.etcd.Dump(t)); diff != "" {
		t.Errorf("what only shows has written:\n%s", diff)
	}
	folder := t.TempDir()
	made := []string{"done: 1 address is assigned in block", "done: the affinity of", "2 repairs made, 1 left alone, 0 failed"}
	expect(2, "apply", made, "--repair", "--yes", "--grace-period=1ms", "--journal-dir", folder)
	expect(2, "plan", []string{"0 repairs, 1 left alone"}, "--repair", "--grace-period=1ms")
	files, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil || len(files) != 2 { // one for each kind
		t.Fatalf("the journal has %v, %v", files, err)
	}
	undone := []string{"as it was before the repair"}
	expect(0, "restore", []string{"would restore"}, append(files, "--dry-run")...)
	expect(0, "restore", undone, files...)
	if diff := cmp.Diff(planted, s.etcd.Dump(t)); diff != "" {
		t.Errorf("the repairs are not undone:\n%s", diff)
	}
	expect(0, "restore", []string{"unchanged: /calico/ipam/v2/"}, files...)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("journal")}}
	must.Get(s.cluster.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})).Or(t)
	expect(2, "apply", made, "--repair", "--yes", "--grace-period=1ms", "--leader-election-namespace", namespace.Name)
	code, out := program(t, s.env(), "restore", "--kubeconfig", s.cluster.Kubeconfig, "--namespace", namespace.Name, "--list", "ipam repair")
	if code != 0 || strings.Count(out, "ipam repair") != 2 {
		t.Fatalf("the list of the journal: exit code %d and %s", code, out)
	}
	var names []string
	for line := range strings.Lines(out) {
		if strings.Contains(line, "ipam repair") {
			names = append(names, strings.Fields(line)[0])
		}
	}
	expect(0, "restore", undone, append(names, "--namespace", namespace.Name)...)
	if diff := cmp.Diff(planted, s.etcd.Dump(t)); diff != "" {
		t.Errorf("the repairs are not undone from ConfigMaps:\n%s", diff)
	}
}
