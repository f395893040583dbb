// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package birdtemplates_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
	"github.com/mooring-dev/mooring/internal/testkit/calicobird"
)

// insertions are how many groups of lines Patch inserts.
const insertions = 6

// apart separates the lines that Patch has inserted from the others.
func apart(text string) (others string, inserted []string) {
	var rest []string
	inside := false
	for line := range strings.SplitSeq(text, "\n") {
		switch {
		case strings.HasPrefix(line, "{{- /* mooring bird-templates begin"):
			inside = true
			inserted = append(inserted, "")
		case strings.HasPrefix(line, "{{- /* mooring bird-templates end"):
			inside = false
		case inside:
			inserted[len(inserted)-1] += line + "\n"
		default:
			rest = append(rest, line)
		}
	}
	return strings.Join(rest, "\n"), inserted
}

// TestPatchOfEachVersion compares the patched templates of Calico 3.29 to 3.31 with what was reviewed, by hash, and
// sees that only lines were inserted.
func TestPatchOfEachVersion(t *testing.T) {
	t.Parallel()
	for _, v := range calicobird.Versions(t) {
		patched, err := birdtemplates.Patch(v.File, v.Text)
		if err != nil {
			t.Errorf("%s of Calico %s: %v", v.File, v.Name, err)
			continue
		}
		if got := calicobird.Digits(patched); got != v.Patched {
			t.Errorf("%s of Calico %s is patched to %s, want %s: look at the difference and change the hash", v.File, v.Name, got, v.Patched)
		}
		others, inserted := apart(patched)
		if others != v.Text || len(inserted) != insertions {
			t.Errorf("%s of Calico %s: %d groups inserted, want %d; without them (-want +got)\n%s", v.File, v.Name, len(inserted), insertions, cmp.Diff(v.Text, others))
		}
		states(t, v, patched)
	}
}

// states sees that a patch of a patch changes nothing, whatever version of Mooring made it.
func states(t *testing.T, v calicobird.Version, patched string) {
	t.Helper()
	if again, err := birdtemplates.Patch(v.File, patched); err != nil || again != patched {
		t.Errorf("%s of Calico %s patched twice: %v (-once +twice)\n%s", v.File, v.Name, err, cmp.Diff(patched, again))
	}
	other := strings.Replace(strings.ReplaceAll(patched, "bird-templates begin 2 ", "bird-templates begin 0 "), "interval 500 ms", "interval 900 ms", 1)
	if again, err := birdtemplates.Patch(v.File, other); err != nil || again != patched {
		t.Errorf("%s of Calico %s patched by another version: %v (-want +got)\n%s", v.File, v.Name, err, cmp.Diff(patched, again))
	}
	for text, want := range map[string]birdtemplates.State{v.Text: birdtemplates.Unpatched, patched: birdtemplates.Patched, other: birdtemplates.Outdated} {
		if got, err := birdtemplates.StateOf(v.File, text); err != nil || got != want {
			t.Errorf("%s of Calico %s is %q, %v; want %q", v.File, v.Name, got, err, want)
		}
	}
}

// TestInsertions is what is inserted into the newest template of IPv4, word for word.
func TestInsertions(t *testing.T) {
	t.Parallel()
	v := calicobird.Versions(t)[0]
	patched, err := birdtemplates.Patch(v.File, v.Text)
	if err != nil {
		t.Fatal(err)
	}
	const bfd = `{{- if contains $calico_nodes (printf " %s " $data.ip)}}
  bfd on;
  hold time 9;
{{- end}}
`
	const passive = `{{- if and (contains $calico_nodes (printf " %s " $data.ip)) (eq $data.as_num $effective_node_as_num) (gt $data.ip $node_ip)}}
  passive on; # Of two nodes the one with the higher address connects.
{{- end}}
`
	want := []string{`# Mooring: a neighbor that is silent for 3 s is lost, and a restart waits 20 s for its neighbors.
graceful restart wait 20;
protocol bfd {
  multihop { interval 500 ms; multiplier 6; };
}
{{- $calico_nodes := " "}}
{{- range gets "/bgp/v1/host/*/ip_addr_v4"}}
{{- $calico_nodes = printf "%s%s " $calico_nodes .Value}}
{{- end}}
`, `  connect delay time 1;
  connect retry time 2;
  error wait time 1,3;
`, bfd, passive, bfd, passive}
	if _, got := apart(patched); !slices.Equal(got, want) {
		t.Errorf("(-want +got)\n%s", cmp.Diff(want, got))
	}
}

// TestPatchRefuses gives templates that are not Calico's, and expects one sentence that names file, place and
// expectation.
func TestPatchRefuses(t *testing.T) {
	t.Parallel()
	v := calicobird.Versions(t)[0]
	patched, err := birdtemplates.Patch(v.File, v.Text)
	if err != nil {
		t.Fatal(err)
	}
	const only = "; Mooring patches the templates of Calico 3.29 to 3.31 only"
	for name, c := range map[string]struct{ file, text, want string }{
		"another file": {"bird_ipam.cfg.template", v.Text, `"bird_ipam.cfg.template" is not a template that is patched: expected bird.cfg.template or bird6.cfg.template`},
		"empty":        {v.File, "", `bird.cfg.template: expected "# Template for all BGP clients / template bgp bgp_template {" in the file` + only},
		"Calico 3.32":  {v.File, "{{- $config := getBGPConfig 4 . -}}\n", `bird.cfg.template: expected "# Template for all BGP clients / template bgp bgp_template {" in the file` + only},
		"other waits": {v.File, strings.Replace(v.Text, "connect retry time 5", "connect retry time 7", 1), `bird.cfg.template: expected "connect delay time 2; / ` +
			`connect retry time 5; / error wait time 5,30;" in template bgp bgp_template {` + only},
		"own BFD": {v.File, strings.Replace(v.Text, "  add paths on;", "  add paths on;\n  bfd on;", 1),
			`bird.cfg.template: line 148: expected no "bfd", which somebody has added: remove it, or keep your own template` + only},
		"own hold time": {v.File, strings.Replace(v.Text, "  add paths on;", "  hold time 3;", 1),
			`bird.cfg.template: line 147: expected no "hold time", which somebody has added: remove it, or keep your own template` + only},
		"own passive side": {v.File, strings.Replace(v.Text, "  multihop;", "  multihop;\n  passive;", 1), `bird.cfg.template: expected "{{- if $data.ttl_security }} / ` +
			`ttl security on; / multihop {{ $data.ttl_security }}; / {{- else }} / ttl security off; / multihop; / {{- end }}" in protocol bgp Global_` + only},
		"passive at the end": {v.File, strings.Replace(v.Text, "{{- if $data.num_allow_local_as}}", "  passive;\n{{- if $data.num_allow_local_as}}", 1),
			`bird.cfg.template: line 297: expected no "passive on;", which somebody has added` + only},
		"another protocol": {v.File, v.Text + "protocol static mine {\n}\n",
			`bird.cfg.template: line 586: expected no other protocol than kernel, device, direct and sessions from bgp_template` + only},
		"another session": {v.File, strings.ReplaceAll(v.Text, "protocol bgp Node_", "protocol bgp Mine_"), `bird.cfg.template: line 422: expected no session Mine_` + only},
		"no session of the mesh": {v.File, strings.Replace(v.Text, "protocol bgp Mesh_{{$id}} from bgp_template {", "", 1),
			`bird.cfg.template: expected one protocol bgp Mesh_{{$id}} and found 0` + only},
		"a torn patch": {v.File, strings.Replace(patched, "{{- /* mooring bird-templates end */}}\n", "", 1),
			`bird.cfg.template: line 162: expected the end of Mooring's insertion of line 139 before the next begins`},
		"an end alone": {v.File, "{{- /* mooring bird-templates end */}}", `bird.cfg.template: line 1: expected the begin of Mooring's insertion before its end`},
		"no end":       {v.File, "{{- /* mooring bird-templates begin 2 */}}", `bird.cfg.template: line 1: expected an end of Mooring's insertion`},
	} {
		if got, err := birdtemplates.Patch(c.file, c.text); err == nil || err.Error() != c.want {
			t.Errorf("%s: %d bytes and\n%v; want\n%s", name, len(got), err, c.want)
		}
	}
}

// TestPatchWithoutALine takes each line from a template in turn: either that is refused, or all is inserted and
// nothing else is changed.
func TestPatchWithoutALine(t *testing.T) {
	t.Parallel()
	v := calicobird.Versions(t)[0]
	lines := strings.Split(v.Text, "\n")
	refused := 0
	for i := range lines {
		text := strings.Join(slices.Delete(slices.Clone(lines), i, i+1), "\n")
		patched, err := birdtemplates.Patch(v.File, text)
		if err != nil {
			refused++
			continue
		}
		if others, inserted := apart(patched); others != text || len(inserted) != insertions {
			t.Errorf("without line %d: %d groups were inserted", i+1, len(inserted))
		}
	}
	if refused < 20 {
		t.Errorf("%d lines may not be missing; each place of an insertion needs some", refused)
	}
}

// TestNodes judges on which nodes a patch is in force.
func TestNodes(t *testing.T) {
	t.Parallel()
	v4, v6 := calicobird.Versions(t)[0], calicobird.Versions(t)[4]
	data := map[string]string{}
	for _, v := range []calicobird.Version{v4, v6} {
		patched, err := birdtemplates.Patch(v.File, v.Text)
		if err != nil {
			t.Fatal(err)
		}
		data[v.File] = patched
	}
	changed := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	mounts := []string{"/etc/calico/confd/templates/bird.cfg.template", "/etc/calico/confd/templates/bird6.cfg.template"}
	pod := birdtemplates.Pod{Node: "n", Created: changed, Mounts: mounts}
	for name, c := range map[string]struct {
		data map[string]string
		pod  birdtemplates.Pod
		want string
	}{
		"in force":                {data, pod, ""},
		"the folder as a whole":   {data, birdtemplates.Pod{Node: "n", Created: changed, Mounts: []string{"/etc/calico/confd/templates"}}, ""},
		"no ConfigMap":            {nil, pod, "there is no ConfigMap kube-system/bird-templates"},
		"an empty ConfigMap":      {map[string]string{}, pod, "the ConfigMap has no bird.cfg.template"},
		"IPv4 alone":              {map[string]string{v4.File: data[v4.File]}, pod, "the ConfigMap has no bird6.cfg.template"},
		"Calico's own":            {map[string]string{v4.File: v4.Text, v6.File: v6.Text}, pod, "bird.cfg.template of the ConfigMap is unpatched"},
		"not mounted":             {data, birdtemplates.Pod{Node: "n", Created: changed, Mounts: mounts[:1]}, "the pod does not mount bird6.cfg.template of the ConfigMap"},
		"older than the contents": {data, birdtemplates.Pod{Node: "n", Created: changed.Add(-time.Second), Mounts: mounts}, "the pod is older than the last change of the ConfigMap"},
	} {
		got := birdtemplates.Installation{Namespace: "kube-system", Data: c.data, Changed: changed, Pods: []birdtemplates.Pod{c.pod}}.Nodes()
		if want := []birdtemplates.Node{{Name: "n", InForce: c.want == "", Why: c.want}}; !slices.Equal(got, want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}
