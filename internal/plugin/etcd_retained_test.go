// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"fmt"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// What deleted EtcdStorages left is listed, and purged by name: keys, leases, records and the record of whose it was. Tenants that are in use lose nothing.
func TestEtcdRetainedAndPurge(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	put := func(key, value string, options ...clientv3.OpOption) {
		t.Helper()
		if _, err := etcd.Client.Put(t.Context(), key, value, options...); err != nil {
			t.Fatal(err)
		}
	}
	record := func(tenant, space string, released bool) {
		put(operator.OwnersPrefix+tenant, fmt.Sprintf(`{"tenant":%[1]q,"prefix":"/%[1]s/","leaseSpace":%[2]q,"cluster":"c","uid":"uid-%[1]s","released":%[3]t}`, tenant, space, released))
	}
	at := func(verb string, more ...string) []string {
		return append([]string{"etcd", verb, "--core-endpoint", etcd.Endpoint}, more...)
	}
	expect(t, command.ExitOK, "", at("retained"), "nothing is retained")
	record("left", "7", true)
	record("live", "8", false)
	for n := range 1200 {
		put(fmt.Sprintf("/left/%04d", n), "x")
	}
	lease, err := etcd.Client.Grant(t.Context(), 3600)
	if err != nil {
		t.Fatal(err)
	}
	put("/live/key", "stays", clientv3.WithLease(lease.ID))
	put("/leftover/key", "stays")
	put(operator.SystemPrefix("left")+"compact-revision", "1")
	put(operator.SystemPrefix("live")+"compact-revision", "1")

	list := expect(t, command.ExitOK, "", at("retained"), "TENANT", "left", "/left/", "1200")
	if strings.Contains(list, "live") {
		t.Errorf("a tenant that is in use is listed: %s", list)
	}
	expect(t, command.ExitOK, "", at("purge", "left", "--dry-run"), "would delete 1200 keys under /left/, 0 leases and 1 record of proxies")
	expect(t, command.ExitError, "", at("purge", "live"), "the data under /live/ is in use: EtcdStorage live, with UID uid-live, has it; delete that first")
	expect(t, command.ExitError, "", at("purge", "nobody"), `the core etcd has no record of a tenant "nobody": 'kubectl mooring etcd retained' lists the retained data`)
	expect(t, command.ExitError, "", []string{"etcd", "purge", "left"}, "give --core-endpoint")
	expect(t, command.ExitError, "", at("purge"), "give the name of one tenant")
	expect(t, command.ExitOK, "", at("retained"), "1200")

	expect(t, command.ExitOK, "", at("purge", "left"), "deleting 1200 keys under /left/", "nothing of left is left")
	expect(t, command.ExitOK, "", at("retained"), "nothing is retained")
	all, err := etcd.Client.Get(t.Context(), "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, kv := range all.Kvs {
		keys = append(keys, string(kv.Key))
	}
	want := []string{operator.OwnersPrefix + "live", operator.SystemPrefix("live") + "compact-revision", "/leftover/key", "/live/key"}
	if strings.Join(keys, " ") != strings.Join(want, " ") {
		t.Errorf("these are left: %v, want %v", keys, want)
	}
}
