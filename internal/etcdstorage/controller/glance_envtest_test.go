// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// silentClient fails to read metadata, as while the API server does not respond.
type silentClient struct{ client.Client }

func (silentClient) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("no response")
}

// Tenants' objects and the core's credentials are not watched. When one of them was changed or deleted by hand, the EtcdStorages that need it are looked at
// within a minute, and no others; and the look puts it right.
func TestWhatIsNotWatchedIsNoticed(t *testing.T) {
	t.Parallel()
	g := newStage(t, server(t))
	names := []string{"glanced-a", "glanced-b"}
	spaces := []string{g.tenant(), g.tenant()}
	for i, name := range names {
		g.storage(name, toTenant(spaces[i], ""))
		g.sync(name)
	}
	seen := map[types.UID]versions{}
	noticed := func() (out []string) {
		seen, out = g.r.glanceOnce(t.Context(), seen)
		out = slices.DeleteFunc(out, func(name string) bool { return !slices.Contains(names, name) }) // the API server has those of other tests as well
		slices.Sort(out)
		return out
	}
	check := func(what string, want ...string) {
		t.Helper()
		if got := noticed(); !slices.Equal(got, want) {
			t.Errorf("%s: %v are looked at, want %v", what, got, want)
		}
	}
	check("the first glance")
	check("nothing")

	secret := g.secret(spaces[0], "client")
	secret.Data["tls.crt"] = []byte("garbage")
	must.Do(t, g.admin.Update(t.Context(), secret))
	check("a Secret was garbled", names[0])
	g.sync(names[0])
	if string(g.secret(spaces[0], "client").Data["tls.crt"]) == "garbage" {
		t.Error("it was not put right")
	}
	check("the operator has put it right", names[0])
	check("nothing")

	must.Do(t, g.admin.Delete(t.Context(), g.configMap(spaces[1], "ca")))
	check("a ConfigMap was deleted", names[1])
	credentials := g.secret(g.namespace, g.r.Settings.CertsSecret)
	credentials.Labels = map[string]string{"rotated": "yes"}
	must.Do(t, g.admin.Update(t.Context(), credentials))
	check("the core's credentials changed", names...)
	live := g.r.Client
	g.r.Client = silentClient{live}
	check("the API server does not respond")
	g.r.Client = live
	check("it responds again")
	if DefaultTiming().Glance != time.Minute {
		t.Error("docs say that it is a minute")
	}
}
