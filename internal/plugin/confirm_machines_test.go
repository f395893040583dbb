// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// What the cloud component holds back is shown with its hash and confirmed with it, on its Lease and nowhere else; explain says so of each machine.
func TestConfirmMachines(t *testing.T) {
	t.Parallel()
	cluster := cluster.Lend(t)
	leases := cluster.Client.CoordinationV1().Leases(outofservice.RecordNamespace)
	t.Cleanup(func() {
		_ = leases.Delete(context.WithoutCancel(t.Context()), outofservice.RecordName, metav1.DeleteOptions{})
	})
	args := func(more ...string) []string {
		return append([]string{"--kubeconfig", cluster.Kubeconfig(t), "confirm"}, more...)
	}
	expect(t, 1, "", args("machines", "0123456789ab"), "error: nothing of digitalocean-cloud-controller-manager waits for a confirmation\n")

	waits := outofservice.Awaiting{Hash: "91c04be7a2d3", Why: "3 machines are off at a time, and 2 may be", Machines: []string{"worker-1", "worker-2", "evil\x1b[2J"}, Count: 4}
	record, err := json.Marshal(outofservice.Record{SavedAt: time.Now(), Enabled: true, Awaiting: waits})
	if err != nil {
		t.Fatal(err)
	}
	_, err = leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: outofservice.RecordNamespace, Name: outofservice.RecordName, Annotations: map[string]string{outofservice.RecordAnnotation: string(record)},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := expect(t, 2, "", args(), "4 machines are off and held back by the gate mass-guard of digitalocean-cloud-controller-manager\n", "worker-1, worker-2, ",
		" and 1 more\n", "to confirm: kubectl mooring confirm machines 91c04be7a2d3\n")
	if strings.Contains(out, "\x1b") {
		t.Errorf("a name orders the terminal: %q", out)
	}
	expect(t, 1, "", args("machines", "0123456789ab"), `error: "0123456789ab" is not the current one, which is 91c04be7a2d3, for 4 machines`)
	expect(t, 1, "", args("machines", waits.Hash, "--for=59s"), "it must be between 1m0s and 24h0m0s, 1h is the default")
	expect(t, 0, "", args("machines", waits.Hash, "--for=2h"), "Confirmed until ", ": digitalocean-cloud-controller-manager puts 4 machines out of service")
	lease, err := leases.Get(t.Context(), outofservice.RecordName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, confirmation, err := outofservice.Recorded(lease)
	if until, refused := waits.ConfirmedBy(confirmation, time.Now()); err != nil || refused != "" || time.Until(until) < time.Hour {
		t.Errorf("%q holds until %s: %s (%v)", confirmation, until, refused, err)
	}
	expect(t, 0, "", args(), "digitalocean-cloud-controller-manager has yet to act on it\n")

	// A component that has not reported for long may not run: the person who confirms is told, and it is written nonetheless.
	stale, err := json.Marshal(outofservice.Record{SavedAt: time.Now().Add(-time.Hour), Enabled: true, Awaiting: waits})
	if err != nil {
		t.Fatal(err)
	}
	if lease, err = leases.Get(t.Context(), outofservice.RecordName, metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	lease.Annotations[outofservice.RecordAnnotation] = string(stale)
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	out = expect(t, 0, "", args("machines", waits.Hash), "Confirmed until ")
	if text := strings.Join(strings.Fields(out), " "); !strings.Contains(text, "It last reported 60m ago: it has not written its record since; a confirmation has an effect only if digitalocean-cloud-controller-manager runs.") {
		t.Errorf("confirming with a component that may not run prints %s", out)
	}
}
