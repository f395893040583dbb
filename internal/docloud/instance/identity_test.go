// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// Which Nodes are the droplets that they name, and which are not, by what Nodes and droplets there are.
func TestIdentify(t *testing.T) {
	t.Parallel()
	shown := map[int]instance.Droplet{
		1:   {ID: 1, Name: "Web-1", Tags: []string{"K8S:c"}, Networks: []instance.Network{{Address: netip.MustParseAddr("10.0.0.1")}}},
		2:   {ID: 2, Name: "web-2.example.com", Tags: []string{"k8s:c"}},
		900: {ID: 900, Name: "database", Networks: []instance.Network{{Address: netip.MustParseAddr("10.0.0.9"), Public: true}}},
		901: {ID: 901},
	}
	type claim struct {
		name      string
		id        int
		confirmed string
		age       time.Duration
	}
	at := func(age time.Duration, name string, id int) claim { return claim{name: name, id: id, age: age} }
	of := func(name string, id int) claim { return at(time.Hour, name, id) }
	for name, tt := range map[string]struct {
		nodes    []claim
		tag      string
		required bool
		disputed string // "node" for a dispute, "node!" for one about a droplet that another Node has
		unseen   string
		says     string
	}{
		"the same name, whatever its case": {nodes: []claim{of("web-1", 1)}},
		"an address":                       {nodes: []claim{of("10.0.0.1", 1)}},
		"the host's name":                  {nodes: []claim{of("web-2", 2)}},
		"with a domain":                    {nodes: []claim{of("web-1.example.com", 1)}},
		"no droplet named":                 {nodes: []claim{of("database", 0)}},
		"a database":                       {nodes: []claim{of("web-1", 900)}, disputed: "web-1", says: `names droplet 900 ("database"), and has neither its name nor one of its addresses as name: an administrator confirms it with kubectl label node web-1 mooring.node-restriction.kubernetes.io/droplet=900`},
		"the begin of a name":              {nodes: []claim{of("web", 2), of("data", 900)}, disputed: "data web"},
		"another domain":                   {nodes: []claim{of("web-2.other.example", 2)}, disputed: "web-2.other.example"},
		"another droplet's address":        {nodes: []claim{of("10.0.0.1", 900)}, disputed: "10.0.0.1"},
		"a droplet without a name":         {nodes: []claim{of(".x", 901), of("x", 901)}, disputed: ".x x"},
		"confirmed":                        {nodes: []claim{{name: "db", id: 900, confirmed: "900"}}},
		"confirmed for another":            {nodes: []claim{{name: "db", id: 900, confirmed: "1"}}, disputed: "db"},
		"one that has it, and a thief":     {nodes: []claim{of("thief", 1), of("web-1", 1)}, disputed: "thief!"},
		"two of whom either may be it":     {nodes: []claim{of("10.0.0.1", 1), of("web-1", 1)}, disputed: "10.0.0.1 web-1", says: `names droplet 1, and so does node web-1`},
		"two, one confirmed":               {nodes: []claim{{name: "10.0.0.1", id: 1, confirmed: "1"}, of("web-1", 1)}, disputed: "web-1!", says: `names droplet 1, and so does node 10.0.0.1`},
		"two that are none":                {nodes: []claim{of("a", 900), of("b", 900)}, disputed: "a b"},
		"the tag":                          {nodes: []claim{of("web-1", 1), of("web-2", 2)}, tag: "k8s:c", required: true},
		"without the tag":                  {nodes: []claim{of("database", 900)}, tag: "k8s:c", required: true, disputed: "database", says: `names droplet 900 ("database"), which lacks the tag k8s:c`},
		"confirmed without the tag":        {nodes: []claim{{name: "database", id: 900, confirmed: "900"}}, tag: "k8s:c", required: true},
		"another name, and the tag":        {nodes: []claim{of("odd", 1)}, tag: "k8s:c"},
		"neither":                          {nodes: []claim{of("odd", 900)}, tag: "k8s:c", disputed: "odd"},
		"the tag, and its own node":        {nodes: []claim{of("odd", 1), of("web-1", 1)}, tag: "k8s:c", disputed: "odd!"},
		"the tag, and another with it":     {nodes: []claim{of("odd", 1), of("odder", 1)}, tag: "k8s:c", disputed: "odd odder"},
		"not shown":                        {nodes: []claim{of("new", 7)}, disputed: "new", says: "names droplet 7, which DigitalOcean has not shown"},
		"younger than the list":            {nodes: []claim{at(0, "new", 7), at(-time.Second, "newer", 8), at(50*time.Second, "n", 9)}, unseen: "n new newer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var nodes []*corev1.Node
			for _, c := range tt.nodes {
				n := node(c.name, "")
				if c.id > 0 {
					n.Spec.ProviderID = providerid.Format(c.id)
				}
				n.CreationTimestamp = metav1.NewTime(start.Add(-c.age))
				if c.confirmed != "" {
					n.Labels = map[string]string{"mooring.node-restriction.kubernetes.io/droplet": c.confirmed}
				}
				nodes = append(nodes, n)
			}
			ids := instance.Identify(nodes, shown, start, tt.tag, tt.required)
			var disputed, unseen []string
			for _, c := range tt.nodes {
				if d, is := ids.Disputed[c.name]; is {
					disputed = append(disputed, c.name+map[bool]string{true: "!"}[d.Owned])
				}
				if ids.Unseen[c.name] == c.id && c.id > 0 {
					unseen = append(unseen, c.name)
				}
			}
			if got := strings.Join(sorted(disputed), " "); got != tt.disputed {
				t.Errorf("disputed are %q, want %q", got, tt.disputed)
			}
			if got := strings.Join(sorted(unseen), " "); got != tt.unseen {
				t.Errorf("unseen are %q, want %q", got, tt.unseen)
			}
			if why := ids.Disputed[tt.nodes[0].name].Why + ids.Disputed[tt.nodes[len(tt.nodes)-1].name].Why; !strings.Contains(why, tt.says) {
				t.Errorf("says %s, want %s", why, tt.says)
			}
		})
	}
	if ids := instance.Identify([]*corev1.Node{node("n", providerid.Format(7))}, nil, time.Time{}, "", false); ids.Unseen["n"] != 7 {
		t.Error("before the first list it is not known whose a droplet is")
	}
}

func sorted(names []string) []string {
	slices.Sort(names)
	return names
}
