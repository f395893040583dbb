// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// elsewhere is the world in which another core answers: a stranger's, with keys under the prefix, or one that was made of a copy of the data.
func elsewhere(w World, copied bool) World {
	w.Core.ClusterID, w.Core.Keys = "5742", 2500
	if !copied {
		w.Core.Owners, w.Core.Users, w.Core.Granted = nil, nil, nil
	}
	return w
}

// At another core nothing is made, deleted or retired, whatever the tenant is like and whatever is there, until a person accepts that core
// by its ID. Then a tenant whose record is not there gets nothing that is there without spec.adoptExistingData, and its deletion deletes nothing.
func TestNothingHappensAtAForeignCore(t *testing.T) {
	t.Parallel()
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		w := anyWorld(t)
		w, _ = carryOut(t, w, rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
		if bound := w.boundTo(); bound != "c0ffee" {
			t.Fatalf("bound to %q", bound)
		}
		copied := rapid.Bool().Draw(t, "copied")
		w = elsewhere(w, copied)
		w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "hours")) * time.Hour)
		if rapid.Bool().Draw(t, "another was accepted") {
			w.Storage.Annotations = map[string]string{v1alpha1.AcceptCoreAnnotation: "c0ffee"}
		}
		for _, w := range []World{w, exited(w)} {
			p := MakePlan(w)
			if len(p.Steps) > 0 || !slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Reason == ReasonForeignCore }) || w.exiting() && p.Waiting == "" {
				t.Fatalf("%v %v %q", kinds(p.Steps), p.Refusals, p.Waiting)
			}
		}
		w.Storage.Annotations = map[string]string{v1alpha1.AcceptCoreAnnotation: "5742"}
		accepted, _ := carryOut(t, w, rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
		_, claimed := accepted.owner()
		if claimed != copied || claimed != (accepted.boundTo() == "5742") {
			t.Fatalf("copied %v, claimed %v, bound to %s: %v", copied, claimed, accepted.boundTo(), MakePlan(accepted).Refusals)
		}
		gone, done := carryOut(t, exited(w), rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
		if deleted := gone.Core.Keys == 0; gone.held() || deleted != (copied && w.Storage.Spec.DeletionPolicy == v1alpha1.DeletionDelete) {
			t.Fatalf("copied %v, %d keys: %v", copied, gone.Core.Keys, kinds(done))
		}
	})
}

// An EtcdStorage of an earlier version is bound to the core that has its record, by one write there and one in the status. Where there is no
// record, or one that was written at another core, nothing is done.
func TestTheBindingOfAnEarlierVersion(t *testing.T) {
	t.Parallel()
	earlier := func() World {
		w, _ := carryOut(t, world("a"), 99, nil)
		w.Storage.Status.Core = nil
		w.Core.Owners[0].Core = ""
		return w
	}
	w, done := carryOut(t, earlier(), 99, safe(t))
	if got := strings.Join(kinds(done), ", "); got != "Claim /.etcd.mooring.dev/owners/a, Bind EtcdStorage/a" || w.boundTo() != "c0ffee" || w.Core.Owners[0].Core != "c0ffee" {
		t.Errorf("%s: %+v", got, w.Core.Owners)
	}
	for name, change := range map[string]func(*World){
		"no record":                func(w *World) { w.Core.Owners = nil },
		"a record of another core": func(w *World) { w.Core.Owners[0].Core = "5742" },
	} {
		w := earlier()
		change(&w)
		if p := MakePlan(w); len(p.Steps) > 0 || len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonForeignCore {
			t.Errorf("%s: %v %v", name, kinds(p.Steps), p.Refusals)
		}
	}
	gone := earlier() // its record was released by the earlier version, which died then
	gone.Core.Owners[0].Released = true
	if gone, _ = carryOut(t, exited(gone), 99, safe(t)); gone.held() || gone.Core.Keys == 0 {
		t.Errorf("%v %d", gone.Storage.Finalizers, gone.Core.Keys)
	}
}

// The message names both cores and the command, as a contract with anyone who reads it.
func TestTheWordsOfAForeignCore(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a"), 99, nil)
	p := MakePlan(elsewhere(w, false))
	const want = "the core etcd at these URLs has cluster ID 5742, but the EtcdStorage is bound to the one with cluster ID c0ffee: nothing is created or deleted there; correct --etcd-core-url, " +
		"or if this is its core from now on run: kubectl annotate etcdstorage a --overwrite etcd.mooring.dev/accept-core=5742"
	if len(p.Refusals) != 1 || p.Refusals[0].Message != want {
		t.Errorf("%v", p.Refusals)
	}
}
