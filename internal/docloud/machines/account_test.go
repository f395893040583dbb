// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Existing clusters and dashboards hold these strings.
func TestContract(t *testing.T) {
	t.Parallel()
	for got, want := range map[string]string{
		RecordNamespace: "kube-system", RecordName: "digitalocean-cloud-controller-manager-account",
		AccountAnnotation: "cloud.mooring.dev/account", TeamAnnotation: "cloud.mooring.dev/team", LossesAnnotation: "cloud.mooring.dev/losses",
		EventAnotherAccount: "CloudAccountNotVerified", EventNothingVisible: "NoDropletVisible", EventExistenceUnknown: "DropletExistenceUnknown",
		EventNotItsTurn: "DropletGoneWaiting", EventAmbiguous: "AmbiguousDroplet", EventNoDroplet: "DropletNotFound",
		EventTagNoLabel: "DropletTagNotLabel", EventNotInitialized: "NodeNotInitialized", TokenAnnotation: "cloud.mooring.dev/token-healthy", labelsWritten: "written", labelsFailed: "failed",
	} {
		if got != want {
			t.Errorf("%q was %q", got, want)
		}
	}
	// A record that an older version wrote stays readable.
	r, err := parseRecord(map[string]string{
		"cloud.mooring.dev/account": "a", "cloud.mooring.dev/team": "t", "cloud.mooring.dev/losses": `{"gone":[{"droplet":7,"at":"2026-01-02T03:04:05Z"}]}`,
	})
	want := accountRecord{
		Account: instance.Account{UUID: "a", Team: "t"},
		Memory:  instance.Memory{Gone: []instance.Loss{{Droplet: 7, At: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}}},
	}
	if err != nil || !reflect.DeepEqual(r, want) {
		t.Errorf("%+v, %v", r, err)
	}
}

func FuzzParseRecord(f *testing.F) {
	f.Add("a", "t", `{"gone":[{"droplet":7,"at":"2026-01-02T03:04:05Z"}]}`)
	f.Add("", "", "")
	f.Add("a", "", "null")
	f.Fuzz(func(t *testing.T, account, team, losses string) {
		r, err := parseRecord(map[string]string{AccountAnnotation: account, TeamAnnotation: team, LossesAnnotation: losses})
		if err != nil {
			if !reflect.DeepEqual(r, accountRecord{}) {
				t.Errorf("%+v alongside %v", r, err)
			}
			return
		}
		annotations, err := formatRecord(r)
		if err != nil {
			return // a time that JSON has no words for
		}
		again, err := parseRecord(annotations)
		if err != nil || again.Account != r.Account || len(again.Memory.Gone) != len(r.Memory.Gone) {
			t.Errorf("%+v became %+v, %v", r, again, err)
		}
	})
}

// The account's record decides whether anything may be deleted at all. Whatever is wrong with it, nothing is.
func TestRecordThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	lease := func(annotations map[string]string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: RecordNamespace, Name: RecordName, Annotations: annotations}}
	}
	forbid := func(verb string) func(*fake.Clientset) {
		return func(c *fake.Clientset) {
			c.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, RecordName, errors.New("by a test"))
			})
		}
	}
	for name, tt := range map[string]struct {
		lease   *coordinationv1.Lease
		prepare func(*fake.Clientset)
		says    string
	}{
		"it must not be read":           {nil, forbid("get"), "reading the account's record, Lease kube-system/" + RecordName + ": leases"},
		"it must not be written":        {nil, forbid("create"), "writing the account's record, Lease kube-system/" + RecordName + ": leases"},
		"a loss must not be noted":      {nil, forbid("update"), "writing the account's record, Lease kube-system/" + RecordName + ": leases"},
		"it names no account":           {lease(nil), nil, "is damaged: annotation cloud.mooring.dev/account is missing or empty; delete the Lease"},
		"its losses cannot be read":     {lease(map[string]string{AccountAnnotation: "a", LossesAnnotation: "["}), nil, "is damaged: annotation cloud.mooring.dev/losses"},
		"it is of another account":      {lease(map[string]string{AccountAnnotation: "a"}), nil, "this cluster's droplets are in account a"},
		"it is of another of our teams": {lease(map[string]string{AccountAnnotation: "OURS", TeamAnnotation: "t"}), nil, "(team t)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHour(t, 3)
			client := h.machines.client.(*fake.Clientset)
			if tt.lease != nil {
				if tt.lease.Annotations[AccountAnnotation] == "OURS" {
					tt.lease.Annotations[AccountAnnotation] = h.cloud.Account("").UUID()
				}
				must.Do(t, client.Tracker().Add(tt.lease))
			}
			if tt.prepare != nil {
				tt.prepare(client)
			}
			must.Do(t, h.cloud.Account("").DeleteDroplet("node-0"))
			for range 10 {
				exists, err := h.machines.InstanceExists(t.Context(), h.nodes[0])
				if !exists || err == nil || !strings.Contains(err.Error(), tt.says) {
					t.Fatalf("%v, %v; want an error with %q", exists, err, tt.says)
				}
				h.clock.Step(20 * time.Second)
			}
			wellKnown := strings.Contains(name, "another")
			if exists, err := h.machines.InstanceExists(t.Context(), h.nodes[1]); !wellKnown && (!exists || err != nil) {
				t.Errorf("a droplet that is visible: %v, %v", exists, err)
			}
			newcomer := h.nodes[1].DeepCopy()
			newcomer.Spec.ProviderID = ""
			if _, err := h.machines.InstanceMetadata(t.Context(), newcomer); err == nil && name != "a loss must not be noted" {
				t.Error("a Node got a provider ID for ever while it is not certain whose the droplets are")
			}
		})
	}
}

// A token of a colleague in the same team sees the same droplets: changing to it is not a change of account.
func TestTokenOfAColleague(t *testing.T) {
	t.Parallel()
	h := newHour(t, 3)
	h.pass(0)
	account := h.machines.guard.recorded.Account
	leases := h.client.CoordinationV1().Leases(RecordNamespace)
	lease, err := leases.Get(t.Context(), RecordName, metav1.GetOptions{})
	if err != nil || account.Team == "" || lease.Annotations[TeamAnnotation] != account.Team {
		t.Fatalf("%+v, %v", lease, err)
	}
	lease.Annotations[AccountAnnotation] = "a-colleague"
	must.Get(leases.Update(t.Context(), lease, metav1.UpdateOptions{})).Or(t)
	must.Do(t, h.cloud.Account("").DeleteDroplet("node-0"))
	h.restart()
	if exists, err := h.machines.InstanceExists(t.Context(), h.nodes[0]); exists || err != nil {
		t.Errorf("%v, %v; want that it is gone", exists, err)
	}
}

// Two leaders: what one of them wrote is not overwritten by the other, which looks again first.
func TestTwoLeaders(t *testing.T) {
	t.Parallel()
	h := newHour(t, 3)
	ctx := t.Context()
	client := h.machines.client
	one := &ledger{leases: client.CoordinationV1().Leases(RecordNamespace), name: RecordName}
	two := &ledger{leases: client.CoordinationV1().Leases(RecordNamespace), name: RecordName}
	for _, l := range []*ledger{one, two} {
		if r, err := l.load(ctx); err != nil || !reflect.DeepEqual(r, accountRecord{}) {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	ours := accountRecord{Account: instance.Account{UUID: "ours", Team: "t"}}
	must.Do(t, one.save(ctx, ours))
	if err := two.save(ctx, accountRecord{Account: instance.Account{UUID: "theirs"}}); !errors.Is(err, errRecordMoved) {
		t.Errorf("the second one to bind the cluster: %v", err)
	}
	if r, err := two.load(ctx); err != nil || r.Account != ours.Account {
		t.Errorf("%+v, %v", r, err)
	}
	// Deleted meanwhile: it must not come back by itself.
	must.Do(t, client.CoordinationV1().Leases(RecordNamespace).Delete(ctx, RecordName, metav1.DeleteOptions{}))
	if err := one.save(ctx, ours); !errors.Is(err, errRecordMoved) {
		t.Errorf("a record that an operator deleted: %v", err)
	}
}

// The pace holds over restarts: what was declared gone is in the record before it is declared.
func TestPaceOutlivesTheProcess(t *testing.T) {
	t.Parallel()
	h := newHour(t, 40)
	h.pass(0)
	for _, node := range h.nodes[:20] {
		must.Do(t, h.cloud.Account("").DeleteDroplet(node.Name))
	}
	gone := 0
	left := h.nodes[:20]
	h.clock.Step(time.Minute)
	for range 10 { // ten processes, one after the other, within a minute
		h.restart()
		left = h.monitor(t.Context(), left, &gone)
		h.clock.Step(5 * time.Second)
	}
	if gone != 5 {
		t.Errorf("%d Nodes went within a minute, 5 may in five", gone)
	}
}

// It is asked whose the token is every hour, and before something that seems to be missing is made again: the same token may be another
// team's by then.
func TestWhoseTheTokenIsIsAskedAgain(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(h *hour) error{
		"after an hour": func(h *hour) error {
			h.clock.Step(59 * time.Minute)
			if err := h.machines.Trusted(t.Context()); err == nil || !strings.Contains(err.Error(), "none of the cluster's 3 known droplets is visible") {
				t.Errorf("within the hour: %v", err)
			}
			h.clock.Step(time.Minute)
			return h.machines.Trusted(t.Context())
		},
		"at once": func(h *hour) error { return h.machines.TrustedNow(t.Context()) },
	} {
		h := newHour(t, 3)
		must.Do(t, h.machines.TrustedNow(t.Context()))
		h.cloud.Account("").RevokeToken(sim.DefaultToken)
		h.cloud.Account("theirs").AddToken(sim.Token{Value: sim.DefaultToken})
		if err := ask(h); err == nil || !strings.Contains(err.Error(), "this cluster's droplets are in account") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
