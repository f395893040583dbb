// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"strings"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// etcd's client logs in when it is made. A program that starts while etcd is away must wait for it all the same, and a wrong password must be
// told apart.
func TestLogin(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx := t.Context()
	auth := clientv3.NewAuth(w.etcd.Client)
	for _, step := range []func() error{
		func() error { _, err := auth.UserAdd(ctx, "root", "secret"); return err },
		func() error { _, err := auth.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := auth.AuthEnable(ctx); return err },
	} {
		if err := step(); err != nil && !strings.Contains(err.Error(), rpctypes.ErrRoleNotFound.Error()) {
			t.Fatal(err)
		}
	}
	open := func(password string) *Etcd {
		store := must.Get(OpenEtcd(EtcdConfig{Endpoints: []string{w.etcd.Endpoint}, Username: "root", Password: password})).Or(t)
		t.Cleanup(func() { _ = store.Close() })
		return store
	}
	w.etcd.Kill()
	early := open("secret")
	if err := early.Ping(ctx); err == nil || !strings.Contains(err.Error(), "does not respond to a quorum read") {
		t.Errorf("while etcd is away: got %v", err)
	}
	w.etcd.Restart(t)
	testkit.Eventually(t, "a login after etcd came back", func() string {
		if err := early.Ping(ctx); err != nil {
			return err.Error()
		}
		return ""
	})
	if err := open("wrong").Ping(ctx); err == nil || !strings.Contains(err.Error(), "authentication failed") {
		t.Errorf("with a wrong password: got %v", err)
	}
}
