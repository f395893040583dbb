// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What is known of the token follows from answers to whatever was asked, and from nothing else.
func TestTokenAnswers(t *testing.T) {
	t.Parallel()
	const narrow = "narrow-token"
	sim := digitalocean.New(digitalocean.Options{Seed: 1, Accounts: []digitalocean.AccountOptions{{Name: "a", Tokens: []digitalocean.Token{
		{Value: digitalocean.DefaultToken}, {Value: narrow, Scopes: []string{"account:read"}},
	}}}})
	token, now := &changing{token: narrow}, clocktesting.NewFakeClock(time.Unix(1e9, 0))
	client := must.Get(doapi.New(doapi.Options{Token: token, Transport: sim.Transport(), Clock: now})).Or(t)
	is := func(when string, want instance.TokenAnswers) {
		t.Helper()
		if diff := cmp.Diff(want, client.TokenAnswers()); diff != "" {
			t.Errorf("%s (- want, + got):\n%s", when, diff)
		}
	}
	ctx := doapi.Once(t.Context())
	account := func() error { _, err := client.Account(ctx); return err }
	droplets := func() error { _, err := client.OrdinaryDroplets(ctx); return err }
	is("nothing was asked", instance.TokenAnswers{})
	must.Do(t, sim.Inject(fault.Rule{Kind: fault.Error, Nth: 1, Times: 1}))
	if err := account(); err == nil {
		t.Fatal("no fault struck")
	}
	is("an answer of 5xx", instance.TokenAnswers{})
	must.Do(t, account())
	is("accepted", instance.TokenAnswers{Asked: true})
	if err := droplets(); err == nil {
		t.Fatal("the scope is there")
	}
	forbidden := instance.TokenAnswers{Asked: true, Forbidden: []string{http.MethodGet + " v2/droplets"}}
	is("without a scope", forbidden)
	must.Do(t, account())
	is("another call changes nothing of it", forbidden)
	sim.Account("a").RevokeToken(narrow)
	if err := account(); err == nil {
		t.Fatal("the token is accepted")
	}
	is("revoked", instance.TokenAnswers{Asked: true, Refused: true, Forbidden: forbidden.Forbidden})
	token.token = digitalocean.DefaultToken
	_ = client.Epoch()
	is("another token, not yet used", instance.TokenAnswers{Asked: true, Refused: true})
	must.Do(t, droplets())
	is("another token", instance.TokenAnswers{Asked: true})
}

// A call that lacked a scope counts until it is answered otherwise, or has not been made for an hour.
func TestForbiddenCallsAreForgotten(t *testing.T) {
	t.Parallel()
	const narrow = "narrow-token"
	sim := digitalocean.New(digitalocean.Options{Seed: 1, Accounts: []digitalocean.AccountOptions{{Name: "a", Tokens: []digitalocean.Token{
		{Value: narrow, Scopes: []string{"account:read"}},
	}}}})
	now := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	client, err := doapi.New(doapi.Options{Token: doapi.StaticToken(narrow), Transport: sim.Transport(), Clock: now})
	must.Do(t, err)
	forbidden := func() int {
		_, _ = client.OrdinaryDroplets(doapi.Once(t.Context()))
		return len(client.TokenAnswers().Forbidden)
	}
	if forbidden() != 1 {
		t.Fatal("the scope is there")
	}
	now.Step(59 * time.Minute)
	if n := forbidden(); n != 1 {
		t.Errorf("%d calls lack a scope", n)
	}
	now.Step(59 * time.Minute)
	if n := len(client.TokenAnswers().Forbidden); n != 1 {
		t.Errorf("%d calls lack a scope an hour after the last", n)
	}
	now.Step(2 * time.Minute)
	if n := len(client.TokenAnswers().Forbidden); n != 0 {
		t.Errorf("%d calls lack a scope that nobody makes", n)
	}
	sim.Account("a").AddToken(digitalocean.Token{Value: narrow})
	if n := forbidden(); n != 0 {
		t.Errorf("%d calls lack a scope that is there now", n)
	}
}
