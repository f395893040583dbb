// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"testing"

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
	expect(t, 2, "", p.ask("etcdstorages"), "warning  etcdstorages: EtcdStorage doctor has no conditions", "0 problems, 1 warning, 0 notes, 0 ok\n")
	say := func(healthy, reason, message string) {
		t.Helper()
		const at = `"lastTransitionTime":"2026-11-22T10:00:00Z"`
		mustKubectl(t, cluster, "", "patch", resource, "doctor", "--subresource=status", "--type=merge", "-p", `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Ready","message":"",`+at+
			`},{"type":"CoreHealthy","status":"`+healthy+`","reason":"`+reason+`","message":"`+message+`",`+at+`}]}}`)
	}
	say("False", "NoSpace", "members a1 of the core etcd have the alarm NOSPACE")
	expect(t, 2, "", p.ask("etcdstorages"), "PROBLEM  etcdstorages: members a1 of the core etcd have the alarm NOSPACE", "1 problem, 0 warnings, 0 notes, 0 ok\n")
	expect(t, 2, "", p.ask(), "PROBLEM  etcdstorages: members a1 of the core etcd have the alarm NOSPACE")
	say("True", "Healthy", "")
	expect(t, 0, "", p.ask("etcdstorages"), "ok       etcdstorages: EtcdStorages that are ready, on a healthy core etcd: 1", "0 problems, 0 warnings, 0 notes, 1 ok\n")
	expect(t, 2, "", p.ask("etcdstorages", "--as", "nobody"), "warning  etcdstorages: not read: EtcdStorages: ", `is forbidden: User "nobody" cannot`)
	mustKubectl(t, cluster, "", "delete", resource, "doctor")
}
