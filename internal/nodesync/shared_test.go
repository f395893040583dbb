// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// neighborhood is a datastore whose names do not say which machines live.
type neighborhood struct {
	// calico are Calico Nodes as "name=ref", kubernetes this cluster's Nodes, and seen those whose deletion was watched.
	calico, kubernetes, seen []string
	// speaking and silent are Calico Nodes of machines that run, with a Felix that reports or without.
	speaking, silent []string
	// pods are "node=NODENAME" of running calico-node pods.
	pods []string
	// stale is the Calico Node that goes when a person names it, "" for none.
	stale string
}

// neighborhoods are those of a naming scheme, which returns the name of a Kubernetes Node's Calico Node. Each has a
// machine "d" that left; where most machines are unknown, or its leaving was not watched, it is left alone as well.
func neighborhoods(scheme func(string) string) map[string]neighborhood {
	of := func(nodes ...string) (calico []string) {
		for _, node := range nodes {
			calico = append(calico, scheme(node)+"="+node)
		}
		return calico
	}
	const a, b, c, d, x, y = "a.example.com", "b.example.com", "c.example.com", "d.example.com", "x.example.com", "y.example.com"
	ours, gone := []string{a, b, c}, []string{d}
	return map[string]neighborhood{
		"two clusters": {
			calico: of(a, b, c, d, x, y), kubernetes: ours, seen: gone, speaking: []string{scheme(x)}, silent: []string{scheme(a), scheme(b), scheme(c), scheme(y)},
		},
		"two clusters, nothing watched": {
			calico: of(a, b, c, d, x, y), kubernetes: ours, speaking: []string{scheme(x)}, silent: []string{scheme(a), scheme(b), scheme(c), scheme(y), scheme(d)},
		},
		"two clusters, as the other one sees it": {
			calico: of(a, b, c, d, x, y), kubernetes: []string{x, y}, seen: gone,
			speaking: []string{scheme(a)}, silent: []string{scheme(b), scheme(c), scheme(x), scheme(y), scheme(d)},
		},
		"a second Calico Node": {
			calico: append(of(a, b, c, d), "second="+a), kubernetes: ours, seen: gone, silent: []string{scheme(a), "second"},
		},
		"NODENAME changed": {
			calico: append(of(a, b, c, d), "new="+a), kubernetes: ours, seen: gone, pods: []string{a + "=new"}, speaking: []string{"new"}, stale: scheme(a),
		},
		"NODENAME changed, and the old name has no orchRef": {
			calico: append(of(b, c, d), scheme(a), "new="+a), kubernetes: ours, seen: gone, pods: []string{a + "=new"}, speaking: []string{"new"}, silent: []string{scheme(a)},
		},
		"renamed, calico-node runs on": {
			calico: of(a, b, c, d), kubernetes: []string{"a2.example.com", b, c}, seen: []string{a, d}, speaking: []string{scheme(a)},
		},
		"renamed by case": {
			calico: of(a, b, c, d), kubernetes: []string{strings.ToUpper(a[:1]) + a[1:], b, c}, seen: []string{a, d}, silent: []string{scheme(a)},
		},
		"renamed to the short name": {
			calico: append(of(b, c, d), "e="+a), kubernetes: []string{"a", b, c}, seen: gone, silent: []string{"e"},
		},
	}
}

// look is the world at a time, as it is after what earlier plans removed.
func (n neighborhood) look(c Config, now time.Time, memory Memory, removed map[string]bool) World {
	calico := slices.DeleteFunc(slices.Clone(n.calico), func(text string) bool { name, _, _ := strings.Cut(text, "="); return removed[name] })
	w := named(c, calico, n.kubernetes, n.seen)
	w.Now, w.Memory, w.Calico.Revision = now, memory, now.Unix()-start.Unix()+100
	for _, host := range n.speaking {
		w.Calico.Reports = append(w.Calico.Reports, Report{Host: host, Revision: w.Calico.Revision, At: now})
	}
	for _, text := range n.pods {
		node, name, _ := strings.Cut(text, "=")
		w.Kubernetes.CalicoPods = append(w.Kubernetes.CalicoPods, CalicoPod{Node: node, Pod: "kube-system/calico-node", Nodename: name})
	}
	return w
}

// watch plans for two days, and fails if a plan touches what lives. It returns what was removed.
func (n neighborhood) watch(t *testing.T, c Config) string {
	t.Helper()
	removed, memory := map[string]bool{}, Memory{}
	var order []string
	for now := start; now.Before(start.Add(48 * time.Hour)); now = now.Add(c.Resync) {
		p := MakePlan(n.look(c, now, memory, removed), c)
		memory = p.Memory
		for _, step := range p.Steps {
			if host := step.Subject().Host; slices.Contains(slices.Concat(n.speaking, n.silent), host) && !harmlessStep(step) {
				t.Fatalf("after %s %s lives:\n%s", now.Sub(start), host, p)
			}
		}
		for host := range strings.FieldsSeq(removedHosts(p)) {
			removed[host], order = true, append(order, host)
		}
	}
	return strings.Join(order, " ")
}

// Whatever machines are called and whoever shares the datastore: in two days nothing of a machine that lives goes, be it
// by itself or by the name of one that speaks; a machine that was seen to leave goes, and so does by its name what a
// machine no longer uses.
func TestNothingOfTheLivingGoesWhateverTheNames(t *testing.T) {
	t.Parallel()
	for scheme, name := range map[string]func(string) string{
		"equal names": func(node string) string { return node },
		"short names": func(node string) string { short, _, _ := strings.Cut(node, "."); return short },
		"NODENAME":    func(node string) string { return "calico-" + strings.ReplaceAll(node, ".", "-") },
	} {
		for what, n := range neighborhoods(name) {
			for _, domains := range [][]string{nil, {"example.com"}} {
				t.Run(fmt.Sprint(scheme, ", ", what, domains), func(t *testing.T) {
					t.Parallel()
					c := DefaultConfig()
					c.Domains = domains
					want := name("d.example.com")
					if slices.Contains(n.silent, want) {
						want = ""
					}
					if got := n.watch(t, c); got != want {
						t.Errorf("%q went by itself, want %q", got, want)
					}
					for _, host := range n.speaking {
						c.Named = []string{host}
						n.watch(t, c)
					}
					if c.Named = []string{n.stale}; n.stale != "" && n.watch(t, c) != n.stale {
						t.Errorf("%s does not go by its name", n.stale)
					}
				})
			}
		}
	}
}
