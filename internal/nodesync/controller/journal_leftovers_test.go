// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/calico"
)

// journalOf is a journal with entries an hour apart, the newest of which is old enough to be pruned.
func journalOf(now time.Time, leftovers ...bool) []KeptEntry {
	out := make([]KeptEntry, 0, len(leftovers))
	for i, l := range leftovers {
		out = append(out, KeptEntry{
			Name: fmt.Sprintf("entry-%d", i), Host: "n1", Leftovers: l, Content: fmt.Sprint(i), Parts: 1, found: map[int]keptPart{1: {name: fmt.Sprint(i)}},
			Time: now.Add(-2*untouched - time.Duration(len(leftovers)-i)*time.Hour),
		})
	}
	return out
}

// However many leftovers of pods are removed, the entries of machines that are gone stay, and the other way round.
func TestLeftoversPushNoMachineOutOfTheJournal(t *testing.T) {
	t.Parallel()
	const most = 3
	j := &ConfigMapJournal{MaxEntries: most}
	now := time.Now()
	var many []bool
	for range 50 {
		many = append(many, true)
	}
	kept := journalOf(now, append([]bool{false, false}, many...)...)
	dropped := j.outlived(kept, now)
	if len(dropped) != 50-most {
		t.Errorf("%d entries are pruned, want %d", len(dropped), 50-most)
	}
	for _, entry := range dropped {
		if !entry.Leftovers {
			t.Errorf("%s, of a machine, is pushed out by leftovers", entry.Name)
		}
	}
	for i := range kept {
		kept[i].Leftovers = !kept[i].Leftovers
	}
	for _, entry := range j.outlived(kept, now) {
		if entry.Leftovers {
			t.Errorf("%s, of leftovers, is pushed out by machines", entry.Name)
		}
	}
}

// A machine's name means the machine, whatever pods had left there before it went.
func TestAMachinesNameMeansTheMachine(t *testing.T) {
	t.Parallel()
	kept, err := choose(journalOf(time.Now(), true, true, false, true), "n1", "ns")
	if err != nil || kept.Name != "entry-2" {
		t.Errorf("n1: got %q (%v), want the entry of the machine", kept.Name, err)
	}
	if kept, err = choose(journalOf(time.Now(), true, true, false, true), "entry-3", "ns"); err != nil || !kept.Leftovers {
		t.Errorf("the name of an entry: got %+v (%v)", kept, err)
	}
	if _, err = choose(journalOf(time.Now(), true, true), "n1", "ns"); err == nil || !strings.Contains(err.Error(), "leftovers of pods") {
		t.Errorf("two entries of leftovers: got %v, want an error that says what they are", err)
	}
}

// An entry that holds something of another machine is refused in one sentence, and nothing is written, also not of the entry beside it.
func TestAnEntryWithSomethingOfAnotherMachineIsRefused(t *testing.T) {
	t.Parallel()
	const root, custom = "/calico/resources/v3/projectcalico.org/", "/apis/crd.projectcalico.org/v1/"
	node := func(name string) calico.Object {
		return calico.Object{Key: root + "nodes/" + name, Value: `{"metadata":{"name":"` + name + `"}}`}
	}
	resource := func(key, host string) calico.Object {
		return calico.Object{Key: key, Value: `{"spec":{"node":"` + host + `"}}`}
	}
	own := []calico.Object{
		node("n1"), resource(root+"workloadendpoints/default/n1-k8s-a--b-eth0", "n1"), resource(root+"hostendpoints/x", "n1"), resource(root+"bgppeers/x", "n1"),
		resource(root+"caliconodestatuses/x", "n1"), {Key: root + "felixconfigurations/node.n1", Value: `{}`},
		{Key: custom + "bgpconfigurations/node.n1", Value: `{}`},
		resource(custom+"hostendpoints/x", "n1"), {Key: "/calico/ipam/v2/host/n1/ipv4/block/10.0.0.0-26", Value: `{}`},
	}
	for _, object := range own {
		if !object.IsOf("n1") {
			t.Errorf("%s counts as another machine's", object.Key)
		}
	}
	address := calico.HeldAddress{
		Block: netip.MustParsePrefix("10.0.0.0/26"), Address: netip.MustParseAddr("10.0.0.1"), Handle: "h", Attributes: map[string]string{"node": "n2"},
	}
	for name, foreign := range map[string]Entry{
		"a Node":                     {Objects: []calico.Object{node("n2")}},
		"a Node under another's key": {Objects: []calico.Object{{Key: root + "nodes/n1", Value: `{"metadata":{"name":"n2"}}`}}},
		"an endpoint":                {Objects: []calico.Object{resource(root+"workloadendpoints/default/n2-k8s-a-eth0", "n2")}},
		"an endpoint of two":         {Objects: []calico.Object{resource(root+"workloadendpoints/default/n1-k8s-a-eth0", "n2")}},
		"a peer of all":              {Objects: []calico.Object{resource(root+"bgppeers/x", "")}},
		"the default configuration":  {Objects: []calico.Object{{Key: root + "felixconfigurations/default", Value: `{}`}}},
		"a custom resource":          {Objects: []calico.Object{resource(custom+"hostendpoints/x", "n2")}},
		"what is no object":          {Objects: []calico.Object{{Key: root + "nodes/n1", Value: `no JSON`}}},
		"another kind":               {Objects: []calico.Object{{Key: root + "globalnetworkpolicies/x", Value: `{"spec":{"node":"n1"}}`}}},
		"an address":                 {Addresses: []calico.HeldAddress{address}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			foreign.Host, foreign.Objects = "n1", append(slices.Clip(own), foreign.Objects...)
			etcd, lines := newEtcdModel(), []string(nil)
			etcd.put("calico", modelInformation, modelClusterInformation{Ready: true})
			all, err := Restore(t.Context(), calico.EtcdOver(&etcdPort{etcd: etcd}), "", []Entry{{Host: "n1", Objects: own}, foreign}, false, func(line string) error {
				lines = append(lines, line)
				return nil
			})
			if err != nil || all || etcd.revision != 2 || len(lines) != 1 || !strings.Contains(lines[0], "not restored, and nothing else is: the entry of n1 holds") {
				t.Errorf("got %v, %v and %q, want one sentence and a refusal", all, err, lines)
			}
		})
	}
}
