// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The plan command against a real API server and a real etcd: what it prints, its exit codes, and that it writes nothing.
func TestPlanCommand(t *testing.T) {
	s := newScene(t, "plan", 3)
	plan := func(args ...string) (int, string) { return s.run("plan", args...) }
	before := s.etcd.Revision(t)
	if code, out := plan(); code != 2 || !strings.Contains(out, "record that this datastore belongs to the cluster") {
		t.Errorf("the first plan ever: got exit code %d and %q, want 2 and the binding of the cluster", code, out)
	}
	s.leave("1")
	code, out := plan("--grace-period=0s", "-o", "json")
	var parsed struct {
		Steps []struct{ Kind string } `json:"steps"`
	}
	if err := json.Unmarshal([]byte(out), &parsed); err != nil || code != 2 || len(parsed.Steps) < 5 || parsed.Steps[len(parsed.Steps)-1].Kind != "RemoveNode" {
		t.Errorf("after the grace period: got exit code %d and %s (%v), want 2 and the steps up to RemoveNode", code, out, err)
	}
	if code, out := plan("--min-overlap-percent=100"); code != 2 || !strings.Contains(out, "(overlap)") {
		t.Errorf("held back: got exit code %d and %q, want 2 and the overlap gate", code, out)
	}
	// A controller's settings as they are, of which those that a plan has no use for change nothing.
	as := []string{"--leader-elect", "--metrics-bind-address=0", "--mode=report", "--journal-dir", t.TempDir(), "--events-deployment=x", "-v", "2", "-syncperiod", "60"}
	if code, out := plan(append(as, "--grace-period=0s", "-o", "json")...); code != 2 || !strings.Contains(out, "RemoveNode") {
		t.Errorf("with the controller's flags: got exit code %d and %s", code, out)
	}
	if code, out := plan("-o", "xml"); code != 1 || !strings.Contains(out, "use one of text, json, yaml") {
		t.Errorf("an unknown output: got exit code %d and %q", code, out)
	}
	s.expectRevision(before, "plans")
}

// Names and keys that somebody has written into the datastore reach no terminal as they are.
func TestNoKeyReachesATerminalRaw(t *testing.T) {
	t.Parallel()
	s := newScene(t, "raw", 2)
	if code, out := s.run("apply", "--grace-period=0s", "--yes"); code != 0 {
		t.Fatalf("recording the cluster: got exit code %d and %s", code, out)
	}
	for key, value := range map[string]string{
		"/calico/resources/v3/projectcalico.org/nodes/evil\x1b[2J":                "{",
		"/calico/ipam/v2/handle/evil\x1b]0;x\a":                                   `{"block":{},"deleted":false}`,
		"/calico/ipam/v2/host/evil\x1b[31m/ipv4/block/10.244.99.0-26":             `{"state":"confirmed"}`,
		"/calico/resources/v3/projectcalico.org/hostendpoints/evil-host-endpoint": `{"kind":"HostEndpoint","spec":{"node":"evil\u001b[5m"}}`,
	} {
		must.Get(s.etcd.Client.Put(t.Context(), key, value)).Or(t)
	}
	for _, command := range [][]string{{"plan", "--grace-period=0s"}, {"apply", "--grace-period=0s", "--yes"}, {"doctor"}} {
		_, out := s.run(command[0], command[1:]...)
		if strings.ContainsAny(out, "\x1b\a") || !strings.Contains(out, `evil\x1b`) {
			t.Errorf("%v prints %q", command, out)
		}
	}
}

// The upstream project's manifest needs only its image changed.
func TestPredecessorsFlags(t *testing.T) {
	t.Parallel()
	code, out := program(t, []string{"CALICO_ETCD_ENDPOINTS=http://127.0.0.1:1"},
		"-dryrun", "-syncperiod", "60", "-domain", "example.com", "-logtostderr", "-vmodule", "x=1", "-v", "2", "-kubeconfig", "/nowhere")
	if code != 1 || !strings.Contains(out, "--kubeconfig") {
		t.Errorf("got exit code %d and %q, want the missing kubeconfig to be the only thing wrong", code, out)
	}
	code, out = program(t, []string{"CALICO_ETCD_ENDPOINTS=http://127.0.0.1:1"}, "-syncperiod", "0")
	if code != 1 || !strings.Contains(out, "it must be a whole number of seconds") {
		t.Errorf("a period of 0, by which the upstream project never rests: got exit code %d and %q", code, out)
	}
}
