// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// kinds are steps without what is drawn.
func kinds(steps []Step) []string {
	var out []string
	for _, s := range steps {
		out = append(out, Kind(s)+" "+s.What().Object)
	}
	return out
}

// field is what a step has in a field, its zero value if it has none of this name.
func field[T any](s Step, name string) (value T) {
	if f := reflect.ValueOf(s).FieldByName(name); f.IsValid() {
		value, _ = reflect.TypeAssert[T](f)
	}
	return value
}

// safe checks one write: no matter whose it is, and that what it needs was there before it.
func safe(t fatal) func(before, after World, s Step) {
	return func(before, after World, s Step) {
		t.Helper()
		ref := field[Ref](s, "Ref")
		if o, exists := before.object(ref.Kind, ref.Name); ref.Kind != "" && exists && slices.ContainsFunc(foreigners(before), func(f Object) bool { return f.Kind == o.Kind && f.meta("name") == o.meta("name") }) {
			t.Fatalf("%s: it is somebody else's", s)
		}
		_, claimed := before.owner()
		if r, foreign := before.foreignCore(); foreign {
			t.Fatalf("%s: %s", s, r.Message)
		}
		switch s.(type) {
		case Hold, Unhold, Claim, Withdraw, Remove:
		case Bind, RetireUsers:
			if !claimed {
				t.Fatalf("%s: the users may be those of another tenant", s)
			}
		case DeleteKeys, RevokeLeases, DeleteRecords, Forget, Release:
			if !claimed || field[Owner](s, "Owner").UID != string(before.Storage.UID) {
				t.Fatalf("%s: the prefix is not this EtcdStorage's", s)
			}
			if bound := before.boundTo(); bound != before.Core.ClusterID {
				t.Fatalf("%s: it is bound to the core %q", s, bound)
			}
		default:
			if !before.held() {
				t.Fatalf("%s: nothing would undo it", s)
			}
			if before.Core.Problem == "" && (!claimed || before.boundTo() != before.Core.ClusterID) {
				t.Fatalf("%s: the prefix is not claimed at the core that it is bound to", s)
			}
		}
		switch s := s.(type) {
		case DeliverBundle, DeliverClient:
			if DestinationOf(s).Delivered == "" && before.obstructed() {
				t.Fatalf("%s: the endpoint is not the tenant's", s)
			}
		case Apply:
			_, serving := before.own(KindSecret, ServingName(before.Storage.Name))
			_, trust := before.own(KindConfigMap, ClientCAName(before.Storage.Name))
			_, user := before.own(KindSecret, UserSecretName(before.Storage.Name))
			if s.Ref.Kind == KindDeployment && (!serving || !trust || before.usersWanted() && (!user || len(before.Core.Granted) == 0)) {
				t.Fatalf("%s: its pods would not start", s)
			}
		case Forget:
			if before.Core.Keys > 0 || before.Core.Records > 0 || len(before.Core.Leases) > 0 {
				t.Fatalf("%s: data is left", s)
			}
		case DeleteKeys:
			if before.Storage.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
				t.Fatalf("%s: the data is to be retained", s)
			}
		case Unhold:
			if len(before.Objects) > len(foreigners(before)) {
				t.Fatalf("%s: objects are left", s)
			}
		default: // the rest holds for all
		}
		for _, was := range before.Core.Owners {
			if was.Tenant != before.Storage.Name && !slices.ContainsFunc(after.Core.Owners, func(o Owner) bool { return o.Tenant == was.Tenant }) {
				t.Fatalf("%s: it drops the record of %s", s, was.Tenant)
			}
		}
	}
}

// foreigners are the objects of somebody else. What an issuer has issued for the EtcdStorage has its mark.
func foreigners(w World) []Object {
	return slices.DeleteFunc(slices.Clone(w.Objects), func(o Object) bool {
		return o.ownedBy(string(w.Storage.UID)) || o.annotation(v1alpha1.DeliveredAnnotation) == Mark(&w.Storage)
	})
}

// exited is the world after the user has deleted the EtcdStorage, with data of the tenant.
func exited(w World) World {
	now := metav1.NewTime(w.Now)
	w.Storage.DeletionTimestamp = &now
	w.Core.Keys, w.Core.Records, w.Core.Leases = 2500, 1, []int64{1, 2}
	return w
}

// Whatever the world is like: the plan converges, a second one is empty, each write is safe and touches what is the tenant's alone, and a
// process that dies after any write finds the rest again. Then the EtcdStorage goes, and the same holds.
func TestAnyTenant(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		w, _ = carryOut(t, w, rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
		for range rapid.IntRange(0, 3).Draw(t, "times") {
			w.Now = w.Now.Add(time.Duration(rapid.IntRange(0, 800).Draw(t, "hours")) * time.Hour)
			w.Settings.ProxyImage = fmt.Sprintf("proxy:%d", rapid.IntRange(1, 2).Draw(t, "image"))
			if rapid.IntRange(0, 3).Draw(t, "another issuer") == 0 {
				w.Storage.Spec.IssuerRef = rapid.SampledFrom([]*v1alpha1.IssuerRef{
					nil, {Name: "x", Kind: "ClusterIssuer", Group: "cert-manager.io"}, {Name: "y", Kind: "ClusterIssuer", Group: "cert-manager.io"},
				}).Draw(t, "issuer")
			}
			if rapid.IntRange(0, 3).Draw(t, "core away") == 0 {
				w.Core.Problem = "away"
			}
			w, _ = carryOut(t, w, rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
			w.Core.Problem = ""
		}
		before := foreigners(w)
		_, wasOurs := w.owner()
		w, done := carryOut(t, exited(w), rapid.IntRange(1, 9).Draw(t, "steps before death"), safe(t))
		if w.held() || len(foreigners(w)) != len(before) || len(w.Core.Users) > 0 {
			t.Fatalf("%v %v", w.Storage.Finalizers, kinds(done))
		}
		if deleted := w.Core.Keys == 0; deleted != (wasOurs && w.Storage.Spec.DeletionPolicy == v1alpha1.DeletionDelete) {
			t.Fatalf("%d keys are left of a tenant with policy %s", w.Core.Keys, w.Storage.Spec.DeletionPolicy)
		}
	})
}

// The order in which the world is listed decides nothing.
func TestOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := anyWorld(t)
		for range rapid.IntRange(0, 12).Draw(t, "steps done") {
			if p := MakePlan(w); len(p.Steps) > 0 {
				w = w.After(t, p.Steps[0])
			}
		}
		want := MakePlan(w)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		other := w
		other.Objects, other.Destinations, other.Core.Owners = slices.Clone(w.Objects), slices.Clone(w.Destinations), slices.Clone(w.Core.Owners)
		random.Shuffle(len(other.Objects), func(i, j int) { other.Objects[i], other.Objects[j] = other.Objects[j], other.Objects[i] })
		random.Shuffle(len(other.Destinations), func(i, j int) {
			other.Destinations[i], other.Destinations[j] = other.Destinations[j], other.Destinations[i]
		})
		random.Shuffle(len(other.Core.Owners), func(i, j int) {
			other.Core.Owners[i], other.Core.Owners[j] = other.Core.Owners[j], other.Core.Owners[i]
		})
		got := MakePlan(other)
		if !slices.Equal(kinds(got.Steps), kinds(want.Steps)) || !slices.Equal(got.Refusals, want.Refusals) || fmt.Sprint(got.Owner) != fmt.Sprint(want.Owner) {
			t.Fatalf("%v %v\n%v %v", kinds(got.Steps), got.Refusals, kinds(want.Steps), want.Refusals)
		}
	})
}

// No step of a new tenant can be left out: without it the others come again with it among them.
func TestMinimal(t *testing.T) {
	t.Parallel()
	w := world("a").delivering(1, 1)
	w.Core.Auth = true
	for range 30 {
		p := MakePlan(w)
		if len(p.Steps) == 0 {
			return
		}
		for skip := range p.Steps {
			without := w
			for i, s := range p.Steps {
				if i != skip {
					without = without.After(t, s)
				}
			}
			if again := kinds(MakePlan(without).Steps); !slices.Contains(again, kinds(p.Steps)[skip]) {
				t.Errorf("%s was left out, and is not missed: %v", p.Steps[skip], again)
			}
		}
		for _, s := range p.Steps {
			w = w.After(t, s)
		}
	}
	t.Error("no end")
}

// The order of a new tenant, which is what a person reads in the log.
func TestTheOrderOfANewTenant(t *testing.T) {
	t.Parallel()
	w := world("a").delivering(1, 1)
	w.Core.Auth = true
	_, done := carryOut(t, w, 99, nil)
	want := `Hold EtcdStorage/a
Claim /.etcd.mooring.dev/owners/a
Bind EtcdStorage/a
MakeCA Secret/a-signers
DeliverBundle ConfigMap tenant/ca-0
Apply Secret/a-signers
IssueServing Secret/a-server-cert
MakeCA Secret/a-signers
Apply ConfigMap/a-ca-cert
Apply Secret/a-signers
DeliverClient Secret tenant/client-0
MakePassword Secret/a-core-user
EnsureUser etcd user mooring/a/1
Apply Service/etcd-a
Apply PodDisruptionBudget/etcd-a
Apply NetworkPolicy/etcd-a
Apply Deployment/etcd-a`
	if got := strings.Join(kinds(done), "\n"); got != want {
		t.Errorf("%s", got)
	}
}

// Why something is not done, in words.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*World){
		`InvalidSpec metadata.name "A": at most 58 lower case letters, digits and '-', since the Service is called etcd-<name>`: func(w *World) { w.Storage.Name = "A" },
		`InvalidSpec spec.clientCertificateValidity 1m0s: must be at least 10m, and not longer than spec.signingCertificateValidity`: func(w *World) {
			w.Storage.Spec.ClientCertificateValidity.Duration = time.Minute
		},
		`InvalidSpec spec.prefix: prefix "/.etcd.mooring.dev/" overlaps "/.etcd.mooring.dev/", which belongs to the proxies themselves: choose another one, for example /team-a/`: func(w *World) {
			w.Storage.Spec.Prefix = "/.etcd.mooring.dev/"
		},
		`PrefixTaken spec.prefix /a/ overlaps /a/x/ of EtcdStorage b, which is older; choose another one`: func(w *World) {
			w.Others = []v1alpha1.EtcdStorage{{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1alpha1.EtcdStorageSpec{Prefix: "/a/x/"}}}
		},
		`PrefixTaken the core's /a/ belongs to tenant z of the cluster with UID that; choose another name and spec.prefix`: func(w *World) {
			w.Core.Owners = []Owner{{Tenant: "z", Prefix: "/a/", Cluster: "that"}}
		},
		`PrefixTaken the core's /q/ belongs to tenant a of the cluster with UID that; choose another name and spec.prefix`: func(w *World) {
			w.Core.Owners = []Owner{{Tenant: "a", Prefix: "/q/", Cluster: "that"}}
		},
		`PrefixTaken spec.prefix /a/ overlaps /a/x/, where data of tenant z was retained; choose another one`: func(w *World) {
			w.Core.Owners = []Owner{{Tenant: "z", Prefix: "/a/x/", Cluster: "that", Released: true}}
		},
		`ExistingData the core has 3 keys under /a/, of an unknown owner; set spec.adoptExistingData to true to adopt them, or choose another spec.prefix`: func(w *World) {
			w.Core.Keys = 3
		},
		`CoreUnreachable away`: func(w *World) { w.Core.Problem = "away" },
		`MissingObject Secret tenant/client-0 does not exist, and the operator may not create it; run: kubectl -n tenant create secret generic client-0`: func(w *World) {
			w.Destinations[1].State, w.Destinations[1].Verb = Forbidden, "create"
		},
		`MissingPermission ConfigMap tenant/ca-0: the operator may not patch it; run: kubectl -n tenant create configmap ca-0; ` +
			`kubectl -n tenant create role etcd-storage-configmap-ca-0 --verb=get,patch --resource=configmaps --resource-name=ca-0; ` +
			`kubectl -n tenant create rolebinding etcd-storage-configmap-ca-0 --role=etcd-storage-configmap-ca-0 --serviceaccount=storage:operator`: func(w *World) {
			w.Destinations[0].State, w.Destinations[0].Verb = Forbidden, "patch"
		},
		`InvalidDestination ConfigMap storage/ca-0: this is the operator's own namespace, where it may write to other tenants' Secrets; name an object in the tenant's`: func(w *World) {
			w.Destinations[0].Namespace = "storage"
		},
		`DestinationTaken Secret tenant/client-0 belongs to EtcdStorage b; name another one`: func(w *World) {
			w.Others = []v1alpha1.EtcdStorage{{ObjectMeta: metav1.ObjectMeta{Name: "b", UID: "1"}}}
			w.Destinations[1].Delivered = "b/1"
		},
		`ForeignObject Secret tenant/client-0 has tls.crt and tls.key, which the operator did not write; name another one, or remove them there`: func(w *World) {
			w.Destinations[1].Data["tls.key"] = []byte("x")
		},
		`ForeignObject namespace storage has Deployment etcd-a, not of this EtcdStorage; delete or rename them, or choose another name`: func(w *World) {
			w.Objects = []Object{foreign(Ref{"apps/v1", KindDeployment, "etcd-a"})}
		},
	} {
		w := world("a").delivering(1, 1)
		change(&w)
		var got []string
		for _, r := range MakePlan(w).Refusals {
			got = append(got, string(r.Reason)+" "+r.Message)
		}
		if !slices.Contains(got, want) {
			t.Errorf("want %s\ngot  %s", want, strings.Join(got, "\n     "))
		}
	}
}

// What etcdproxy-controller delivered, and what an EtcdStorage that is gone did, is taken over.
func TestDestinationsThatAreTakenOver(t *testing.T) {
	t.Parallel()
	for _, change := range []func(*Destination){func(d *Destination) { d.Predecessor = true }, func(d *Destination) { d.Delivered = "a/before" }} {
		w := world("a").delivering(0, 1)
		w.Destinations[0].Data["tls.crt"] = []byte("old")
		change(&w.Destinations[0])
		w, _ = carryOut(t, w, 99, nil)
		if w.Destinations[0].Delivered != "a/uid-a" || len(MakePlan(w).Refusals) > 0 {
			t.Errorf("%+v", MakePlan(w).Refusals)
		}
	}
}

// A claim whose record was lost, since the core came back from a backup, is made again; a lease space that another tenant has is not.
func TestClaims(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a"), 99, nil)
	first, _ := w.owner()
	w.Core.Owners, w.Core.Keys = nil, 10
	w, _ = carryOut(t, w, 99, nil)
	if again, ok := w.owner(); !ok || again.LeaseSpace != first.LeaseSpace {
		t.Errorf("%+v", again)
	}
	w = world("a")
	w.Core.Owners = []Owner{{Tenant: "b", Prefix: "/b/", LeaseSpace: first.LeaseSpace, Cluster: "this"}}
	w, _ = carryOut(t, w, 99, nil)
	if o, _ := w.owner(); o.LeaseSpace == first.LeaseSpace || o.LeaseSpace == "" {
		t.Errorf("%+v", o)
	}
}

// Who has a prefix keeps it when another, made in the same second and first in the alphabet, asks for it; the core may be away meanwhile.
// That one is refused.
func TestWhoHasAPrefixKeepsIt(t *testing.T) {
	t.Parallel()
	first, _ := carryOut(t, world("b"), 99, nil)
	second := world("a")
	second.Storage.Spec.Prefix = "/b/a/"
	first.Others, second.Others = []v1alpha1.EtcdStorage{second.Storage}, []v1alpha1.EtcdStorage{first.Storage}
	second.Core.Owners = first.Core.Owners
	for _, problem := range []string{"", "away"} {
		first.Core.Problem = problem
		if p := MakePlan(first); slices.ContainsFunc(p.Refusals, func(r Refusal) bool { return r.Reason == ReasonPrefixTaken }) || len(p.Certificates) == 0 {
			t.Errorf("core %q: %v", problem, p.Refusals)
		}
	}
	if p := MakePlan(second); len(p.Refusals) != 1 || p.Refusals[0].Reason != ReasonPrefixTaken || len(p.Steps) != 0 {
		t.Errorf("%v %v", p.Refusals, kinds(p.Steps))
	}
}

// A word of a command stays one word in a shell.
func TestQuote(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{"system:node:a": "system:node:a", "a b": "'a b'", "a'b;c": `'a'\''b;c'`} {
		if got := quote(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// Names, keys and labels are a contract with clusters that run already.
func TestNames(t *testing.T) {
	t.Parallel()
	got := fmt.Sprintln(Refs("a"), UserName("a", 3), EtcdRole("a"), SystemPrefix("a"), OwnersPrefix, PasswordKey(1), MadeKey(1), PredecessorAnnotation)
	want := "[Secret/a-signers ConfigMap/a-ca-cert Secret/a-server-cert Secret/a-core-user Service/etcd-a PodDisruptionBudget/etcd-a NetworkPolicy/etcd-a " +
		"Deployment/etcd-a] mooring/a/3 mooring/a /.etcd.mooring.dev/tenants/a/ /.etcd.mooring.dev/owners/ password-1 made-1 etcd.xmudrii.com/certificate-signed-by\n"
	if got != want {
		t.Errorf("%s", got)
	}
}

// A deletion goes on only when no proxy is left that could write.
func TestDeletionWaitsForTheProxies(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a"), 99, nil)
	w = exited(w)
	w.Pods = 2
	w, done := carryOut(t, w, 99, nil)
	if p := MakePlan(w); !slices.Equal(kinds(done), []string{"Remove Deployment/etcd-a"}) || p.Waiting != "2 proxies still exist" || len(p.Steps) > 0 {
		t.Errorf("%v %q", kinds(done), p.Waiting)
	}
	w.Pods = 0
	if w, _ = carryOut(t, w, 99, nil); w.held() {
		t.Error("it does not go on")
	}
}

// An EtcdStorage that never got its prefix leaves the etcd users and the role of the tenant that has it: a tenant of another cluster has the
// same names.
func TestRetirementNeedsTheClaim(t *testing.T) {
	t.Parallel()
	for _, owners := range [][]Owner{nil, {{Tenant: "a", Prefix: "/a/", Cluster: "that", UID: "other"}}, {{Tenant: "a", Prefix: "/a/", Cluster: "this", UID: "uid-a", Released: true}}} {
		w := world("a")
		w.Core.Auth, w.Core.RoleExists, w.Core.RoleReady, w.Core.Owners = true, true, true, owners
		w.Core.Users, w.Core.Granted = []string{"mooring/a/1"}, []string{"mooring/a/1"}
		w.Storage.Finalizers = []string{v1alpha1.Finalizer}
		w, done := carryOut(t, exited(w), 99, nil)
		if w.held() || !w.Core.RoleExists || len(w.Core.Users) != 1 || len(w.Core.Owners) != len(owners) || w.Core.Keys != 2500 {
			t.Errorf("records %+v: %v", owners, kinds(done))
		}
	}
}

// A user is removed only when all proxies use the next one.
func TestAUserOutlivesItsProxies(t *testing.T) {
	t.Parallel()
	w := world("a")
	w.Core.Auth = true
	w, _ = carryOut(t, w, 99, nil)
	w.Now = w.Now.Add(w.Settings.UserRotation)
	w, done := carryOut(t, w, 99, func(before, _ World, s Step) {
		if _, ok := s.(RetireUsers); ok && !before.rolledOut() {
			t.Errorf("%s, and not all proxies are of the current template", s)
		}
	})
	if !slices.Contains(kinds(done), "RetireUsers etcd users mooring/a/1") || !slices.Equal(w.Core.Users, []string{"mooring/a/2"}) {
		t.Errorf("%v %v", kinds(done), w.Core.Users)
	}
	for i, o := range w.Objects {
		if o.Kind == KindDeployment {
			w.Objects[i].Content["status"] = map[string]any{"observedGeneration": int64(1), "replicas": int64(4), "updatedReplicas": int64(3), "readyReplicas": int64(3)}
		}
	}
	w.Core.Users = []string{"mooring/a/1", "mooring/a/2"}
	if p := MakePlan(w); len(p.Steps) > 0 {
		t.Errorf("an old proxy is still there: %v", kinds(p.Steps))
	}
}

// What of a live object counts as different, and what others may add.
func TestHolds(t *testing.T) {
	t.Parallel()
	type m = map[string]any
	type l = []any
	for _, c := range []struct {
		name       string
		live, want any
		same       bool
	}{
		{"equal", m{"a": int64(1)}, m{"a": 1.0}, true},
		{"another number", m{"a": int64(2)}, m{"a": 1.0}, false},
		{"a field of somebody else", m{"a": "x", "b": "y"}, m{"a": "x"}, true},
		{"a field that is missing", m{"b": "y"}, m{"a": "x"}, false},
		{"an empty field that the API server drops", m{}, m{"a": m{}, "b": l{}}, true},
		{"a flag more", l{"--a", "--b"}, l{"--a"}, false},
		{"a flag less", l{"--a"}, l{"--a", "--b"}, false},
		{"a container of somebody else", l{m{"name": "a"}, m{"name": "b"}}, l{m{"name": "a"}}, true},
		{"a container that is missing", l{m{"name": "b"}}, l{m{"name": "a"}}, false},
		{"another type", "x", m{"a": "x"}, false},
	} {
		if got := holds(c.live, c.want); got != c.same {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// Nothing is delivered for the first time while an object of somebody else is where the endpoint should be; what was delivered before is renewed. An
// object without which the endpoint works is reported, and in nobody's way.
func TestDeliveryWaitsForTheEndpoint(t *testing.T) {
	t.Parallel()
	for _, ref := range Refs("a") {
		w := world("a").delivering(1, 1)
		w.Core.Auth = true
		works := ref.Kind == KindBudget || ref.Kind == KindNetworkPolicy
		deliveries := func(w World) (World, int) {
			w, done := carryOut(t, w, 99, nil)
			n := 0
			for _, s := range done {
				if d := DestinationOf(s); d.Name != "" {
					n++
				}
			}
			return w, n
		}
		blocked := w
		blocked.Objects = []Object{foreign(ref)}
		blocked, n := deliveries(blocked)
		if (n == 2) != works || n == 1 || !slices.ContainsFunc(MakePlan(blocked).Refusals, func(r Refusal) bool { return r.Reason == ReasonForeignObject }) {
			t.Errorf("%s is somebody else's: %d deliveries", ref, n)
		}
		blocked.Objects = slices.DeleteFunc(slices.Clone(blocked.Objects), func(o Object) bool { return !o.ownedBy("uid-a") })
		if _, n := deliveries(blocked); (n == 2) == works {
			t.Errorf("%s is free: %d deliveries", ref, n)
		}
		served, _ := deliveries(w)
		if ref.Kind == KindSecret || ref.Kind == KindConfigMap {
			continue // without what is in it nothing can be renewed
		}
		served.Objects = append(slices.DeleteFunc(slices.Clone(served.Objects), func(o Object) bool { return o.Kind == ref.Kind && o.meta("name") == ref.Name }), foreign(ref))
		served.Now = served.Now.Add(1500 * time.Hour)
		if _, n := deliveries(served); n != 1 {
			t.Errorf("%s is somebody else's by now: %d deliveries at the renewal of the client's certificate", ref, n)
		}
	}
}
