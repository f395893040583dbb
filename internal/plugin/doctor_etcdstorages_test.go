// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// A tenant that no operator has looked at, one whose core is full, and one that is well, by their conditions; a user without the right to
// list them gets a warning.
func testDoctorStorages(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	const resource = "etcdstorages.etcd.mooring.dev"
	p := patient{t, cluster}
	mustKubectl(t, cluster, "", "delete", resource, "--all")
	expect(t, 0, "", p.ask("etcdstorages"), "0 problems, 0 warnings, 0 notes, 0 ok\n")
	mustKubectl(t, cluster, `{"apiVersion":"etcd.mooring.dev/v1alpha1","kind":"EtcdStorage","metadata":{"name":"doctor"},"spec":{}}`, "create", "-f", "-")
	expect(t, 2, "", p.ask("etcdstorages"), "warning  etcdstorages: EtcdStorage doctor: the operator has not reported on it yet", "0 problems, 1 warning, 0 notes, 0 ok\n")
	say := func(healthy, reason, message string) {
		t.Helper()
		const at = `"lastTransitionTime":"2026-11-22T10:00:00Z"`
		mustKubectl(t, cluster, "", "patch", resource, "doctor", "--subresource=status", "--type=merge", "-p", `{"status":{"readyReplicas":3,"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"",`+at+
			`},{"type":"CoreHealthy","status":"`+healthy+`","reason":"`+reason+`","message":"`+message+`",`+at+`}]}}`)
	}
	say("True", "Healthy", "")
	const unkept = "warning  etcdstorages: the status of EtcdStorage doctor is not kept up to date: etcd-storage-operator: there is EtcdStorage doctor, and "
	expect(t, 2, "", p.ask("etcdstorages"), unkept, "0 problems, 1 warning, 0 notes, 0 ok\n")
	p.operator()
	say("False", "NoSpace", "members a1 of the core etcd have the alarm NOSPACE")
	expect(t, 2, "", p.ask("etcdstorages"), "PROBLEM  etcdstorages: EtcdStorage doctor: the core etcd is not healthy: its operator has to act (NoSpace): members a1 of the core etcd have the alarm NOSPACE", "1 problem, 0 warnings, 0 notes, 0 ok\n")
	expect(t, 2, "", p.ask(), "PROBLEM  etcdstorages: EtcdStorage doctor: the core etcd is not healthy: its operator has to act (NoSpace): members a1 of the core etcd have the alarm NOSPACE")
	say("True", "Healthy", "")
	expect(t, 0, "", p.ask("etcdstorages"), "ok       etcdstorages: EtcdStorages that are ready, on a healthy core etcd: 1", "0 problems, 0 warnings, 0 notes, 1 ok\n")
	expect(t, 2, "", p.ask("etcdstorages", "--as", "nobody"), "warning  etcdstorages: not read: EtcdStorages: ", `is forbidden: User "nobody" cannot`)
	mustKubectl(t, cluster, "", "delete", resource, "doctor")
}

// operator is one that renews its Lease, outside of the cluster.
func (p patient) operator() {
	p.Helper()
	leases := p.cluster.Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	const name = "etcd-storage-operator.etcd.mooring.dev"
	seconds, who, at := int32(3600), "somebody", metav1.NewMicroTime(time.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, LeaseDurationSeconds: &seconds, RenewTime: &at},
	}
	if _, err := leases.Create(p.Context(), lease, metav1.CreateOptions{}); err != nil {
		p.Fatal(err)
	}
}
