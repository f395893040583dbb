// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// condition reads the condition about the token as a tool would.
func (w *world) condition() (metav1.Condition, error) {
	annotations, err := w.lease()
	if err != nil {
		return metav1.Condition{}, err
	}
	var c metav1.Condition
	return c, json.Unmarshal([]byte(annotations["cloud.mooring.dev/token-healthy"]), &c)
}

// token waits until record and metric say of the token that its state has this reason, and returns the record.
func (w *world) tokenIs(status metav1.ConditionStatus, reason instance.TokenReason, words ...string) metav1.Condition {
	w.T.Helper()
	var c metav1.Condition
	testkit.Eventually(w.T, "the token's state "+string(reason), func() string {
		var err error
		if c, err = w.condition(); err != nil {
			return err.Error()
		}
		if c.Type != "TokenHealthy" || c.Status != status || c.Reason != string(reason) {
			return fmt.Sprintf("it is %+v", c)
		}
		if slices.ContainsFunc(words, func(s string) bool { return !strings.Contains(c.Message, s) }) {
			return fmt.Sprintf("the message is %q, want %q", c.Message, words)
		}
		value := map[metav1.ConditionStatus]float64{metav1.ConditionTrue: 1}[status]
		if got := w.tokenMetric(); got != fmt.Sprintf("%s %v", reason, value) {
			return "the metric is " + got
		}
		return ""
	})
	return c
}

// tokenMetric is the one series of the metric, as reason and value.
func (w *world) tokenMetric() string {
	families, err := w.Registry.Gather()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, f := range families {
		if f.GetName() == "mooring_digitalocean_token_healthy" {
			for _, m := range f.GetMetric() {
				out = append(out, fmt.Sprintf("%s %v", m.GetLabel()[0].GetValue(), m.GetGauge().GetValue()))
			}
		}
	}
	return strings.Join(out, ", ")
}

// People see in one place that the token is refused, lacks a scope, or is another account's, and since when; and nothing is written while it
// stays so.
func TestTokenConditionIsRecorded(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 50, Accounts: []sim.AccountOptions{{Name: "ours", Tokens: []sim.Token{{Value: sim.DefaultToken}, {Value: "narrow", Scopes: []string{"account:read"}}}}, {Name: "theirs", Tokens: []sim.Token{{Value: "their-token"}}}}}, func(t *testing.T, w *world) {
		w.fleet(2)
		since := w.tokenIs(metav1.ConditionTrue, instance.TokenAccepted).LastTransitionTime
		leases := w.Client.CoordinationV1().Leases(RecordNamespace)
		before := must.Get(leases.Get(t.Context(), w.Name, metav1.GetOptions{})).Or(t)
		w.looked()
		after := must.Get(leases.Get(t.Context(), w.Name, metav1.GetOptions{})).Or(t)
		if before.ResourceVersion != after.ResourceVersion {
			t.Errorf("the record was written although nothing has changed:\n%v\n%v", before.Annotations, after.Annotations)
		}
		// A token that is refused is looked for again at once, and another one only after a while.
		ours, theirs := w.Sim.Account("ours"), w.Sim.Account("theirs")
		ours.RevokeToken(sim.DefaultToken)
		w.tokenIs(metav1.ConditionFalse, instance.TokenRefused, "put another one into its Secret")
		w.useToken("narrow")
		w.tokenIs(metav1.ConditionFalse, instance.TokenScopeMissing, "GET v2/droplets")
		w.useToken("their-token")
		ours.RevokeToken("narrow")
		w.tokenIs(metav1.ConditionFalse, instance.TokenAnotherAccount, "give a token of that account")
		w.useToken(sim.DefaultToken)
		ours.AddToken(sim.Token{Value: sim.DefaultToken})
		theirs.RevokeToken("their-token")
		again := w.tokenIs(metav1.ConditionTrue, instance.TokenAccepted)
		if again.LastTransitionTime.Before(&since) {
			t.Errorf("accepted since %s, and before that since %s", again.LastTransitionTime, since)
		}
		annotations, err := w.lease()
		if err != nil || annotations[AccountAnnotation] != ours.UUID() {
			t.Errorf("the record is %v (%v)", annotations, err)
		}
		// A restart finds what is recorded, and leaves it.
		w.Stop()
		w.run()
		w.looked()
		if got := w.tokenIs(metav1.ConditionTrue, instance.TokenAccepted); got != again {
			t.Errorf("after a restart %+v, before it %+v", got, again)
		}
	})
}

// A record that somebody deleted is not made of a condition alone: it would bind the cluster to no account at all.
func TestTokenConditionMakesNoRecord(t *testing.T) {
	t.Parallel()
	simulated(t, sim.Options{Seed: 51}, func(t *testing.T, w *world) {
		w.join(w.NodeName(0), true) // without a droplet no account is recorded
		w.run()
		testkit.Eventually(t, "the metric", func() string {
			if got := w.tokenMetric(); got != "Accepted 1" {
				return "it is " + got
			}
			return ""
		})
		w.looked()
		if err := w.machines.recordToken(t.Context()); err != nil {
			t.Error(err)
		}
		if annotations, err := w.lease(); err == nil {
			t.Errorf("there is a record: %v", annotations)
		}
		// The account comes later, and the condition with it.
		droplet := w.Droplet(sim.DropletSpec{Name: w.NodeName(0)})
		testkit.Eventually(t, "the Node to be initialized", func() string { return w.initialized(droplet) })
		w.tokenIs(metav1.ConditionTrue, instance.TokenAccepted)
	})
}
