// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// Snapshot is the whole content of Calico's datastore in etcd at one revision, by key.
type Snapshot map[string]Entry

// Entry is one value.
type Entry struct {
	Value string
	// Revision is etcd's ModRevision: it moves whenever the key is written, even with the same value.
	Revision int64
}

// Where Calico keeps things in etcd. These are Calico's names, in its versions 3.x.
const (
	resourcesPrefix = "/calico/resources/v3/projectcalico.org/"
	nodesPrefix     = resourcesPrefix + "nodes/"
	endpointsPrefix = resourcesPrefix + "workloadendpoints/"
	felixPrefix     = resourcesPrefix + "felixconfigurations/"
	blocksPrefix    = "/calico/ipam/v2/assignment/"
	affinityPrefix  = "/calico/ipam/v2/host/"
	handlesPrefix   = "/calico/ipam/v2/handle/"
)

// Item is one thing that the datastore holds of a machine.
type Item struct {
	Kind string
	// Text names it for people.
	Text string
	// Key is where it is. Several addresses share the key of their block.
	Key string
}

// Kinds of items, in the order in which they are shown.
const (
	KindNode     = "Node"
	KindFelix    = "FelixConfiguration"
	KindEndpoint = "workload endpoint"
	KindAddress  = "address"
	KindHandle   = "IPAM handle"
	KindAffinity = "block affinity"
	KindBlock    = "IPAM block"
)

// Kinds lists them.
func Kinds() []string {
	return []string{KindNode, KindFelix, KindEndpoint, KindAddress, KindHandle, KindAffinity, KindBlock}
}

// block is what is needed of an IPAM block.
type block struct {
	CIDR       string `json:"cidr"`
	Affinity   string `json:"affinity"`
	Attributes []struct {
		Handle    string            `json:"handle_id"`
		Secondary map[string]string `json:"secondary"`
	} `json:"attributes"`
	Allocations []*int `json:"allocations"`
}

// Nodes lists the names of Calico's Nodes in order.
func (s Snapshot) Nodes() []string {
	var names []string
	for key := range s {
		if name, ok := strings.CutPrefix(key, nodesPrefix); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Of lists what the datastore holds of a machine, by kind and then by key. A value that cannot be read is an error: it would be missed.
func (s Snapshot) Of(machine string) ([]Item, error) {
	var items []Item
	handles := map[string]bool{}
	for key, entry := range s {
		switch {
		case key == nodesPrefix+machine:
			items = append(items, Item{KindNode, machine, key})
		case key == felixPrefix+"node."+machine:
			items = append(items, Item{KindFelix, "node." + machine, key})
		case strings.HasPrefix(key, affinityPrefix+machine+"/"):
			_, cidr, _ := strings.Cut(strings.TrimPrefix(key, affinityPrefix+machine+"/"), "/block/")
			items = append(items, Item{KindAffinity, "to " + dashToSlash(cidr), key})
		case strings.HasPrefix(key, endpointsPrefix):
			found, err := endpointOf(machine, key, entry)
			if err != nil {
				return nil, err
			}
			items = append(items, found...)
		case strings.HasPrefix(key, blocksPrefix):
			found, err := blockOf(machine, key, entry, handles)
			if err != nil {
				return nil, err
			}
			items = append(items, found...)
		}
	}
	for handle := range handles {
		if key := handlesPrefix + handle; s[key] != (Entry{}) {
			items = append(items, Item{KindHandle, shorten(handle), key})
		}
	}
	slices.SortFunc(items, func(a, b Item) int {
		kinds := Kinds()
		if by := slices.Index(kinds, a.Kind) - slices.Index(kinds, b.Kind); by != 0 {
			return by
		}
		return strings.Compare(a.Key+a.Text, b.Key+b.Text)
	})
	return items, nil
}

func endpointOf(machine, key string, entry Entry) ([]Item, error) {
	var endpoint struct {
		Metadata struct{ Namespace string }
		Spec     struct{ Node, Pod string }
	}
	if err := json.Unmarshal([]byte(entry.Value), &endpoint); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	if endpoint.Spec.Node != machine {
		return nil, nil
	}
	return []Item{{KindEndpoint, "of pod " + endpoint.Metadata.Namespace + "/" + endpoint.Spec.Pod, key}}, nil
}

// blockOf adds the handles of the machine's addresses to handles.
func blockOf(machine, key string, entry Entry, handles map[string]bool) ([]Item, error) {
	var b block
	if err := json.Unmarshal([]byte(entry.Value), &b); err != nil {
		return nil, fmt.Errorf("reading %s: %w", key, err)
	}
	own := b.Affinity == "host:"+machine
	var items []Item
	if own {
		items = append(items, Item{KindBlock, b.CIDR, key})
	}
	for i, attribute := range b.Allocations {
		if attribute == nil || *attribute < 0 || *attribute >= len(b.Attributes) {
			continue
		}
		a := b.Attributes[*attribute]
		if node := a.Secondary["node"]; node != machine && !(own && node == "") {
			continue
		}
		handles[a.Handle] = true
		items = append(items, Item{KindAddress, b.address(i) + " of " + user(a.Secondary), key})
	}
	return items, nil
}

// address is address number i of the block.
func (b block) address(i int) string {
	prefix, err := netip.ParsePrefix(b.CIDR)
	if err != nil {
		return fmt.Sprintf("number %d of %s", i, b.CIDR)
	}
	address := prefix.Addr()
	for range i {
		address = address.Next()
	}
	return address.String()
}

func user(attributes map[string]string) string {
	switch {
	case attributes["pod"] != "":
		return "pod " + attributes["namespace"] + "/" + attributes["pod"]
	case attributes["type"] != "":
		return "the machine's " + attributes["type"]
	default:
		return "an unknown user"
	}
}

// Mentions lists the keys that name the machine in key or value. It knows nothing about Calico's formats, and so finds what Of does not know.
func (s Snapshot) Mentions(machine string) []string {
	// Names of workload endpoints double each "-". A digit after the name makes it another one: node-3, node-30.
	name := strings.ReplaceAll(regexp.QuoteMeta(machine), "-", "--?")
	pattern := regexp.MustCompile(`(^|[^A-Za-z0-9])` + name + `($|[^A-Za-z0-9])`)
	var keys []string
	for key, entry := range s {
		if pattern.MatchString(key) || pattern.MatchString(entry.Value) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// clusterInformation is where calico-node-sync records by an annotation whose datastore it is, once.
const (
	clusterInformation = resourcesPrefix + "clusterinformations/default"
	bindingAnnotation  = "nodes.mooring.dev/cluster-uid"
)

// bound reports whether calico-node-sync has recorded there whose datastore it is.
func (s Snapshot) bound() bool {
	return strings.Contains(s[clusterInformation].Value, bindingAnnotation)
}

// Differences lists how after differs from before, apart from the keys in expected: one line each. Even a rewrite of the same value counts.
func Differences(before, after Snapshot, expected map[string]bool) []string {
	var lines []string
	for key, entry := range before {
		if expected[key] {
			continue
		}
		now, ok := after[key]
		switch {
		case !ok:
			lines = append(lines, "gone:    "+key)
		case now.Value != entry.Value:
			lines = append(lines, "changed: "+key)
		case now.Revision != entry.Revision:
			lines = append(lines, "touched: "+key)
		}
	}
	for key := range after {
		if _, ok := before[key]; !ok && !expected[key] {
			lines = append(lines, "new:     "+key)
		}
	}
	slices.Sort(lines)
	return lines
}

// dashToSlash turns the form of a CIDR in keys into the usual one.
func dashToSlash(cidr string) string {
	if i := strings.LastIndexByte(cidr, '-'); i >= 0 {
		return cidr[:i] + "/" + cidr[i+1:]
	}
	return cidr
}

// shorten abbreviates the long number in the handle of a pod.
func shorten(handle string) string {
	const most = 32
	if len(handle) <= most {
		return handle
	}
	return handle[:most] + "…"
}
