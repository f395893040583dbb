// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package calicobird has the templates of BIRD's configuration of several versions of Calico, for tests.
package calicobird

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// pinned reads a template of the Calico version that go.mod pins, 3.31, from Go's module cache.
func pinned(t *testing.T, file string) string {
	t.Helper()
	output, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/projectcalico/calico").Output()
	if err != nil {
		testkit.Skip(t, "Calico's module is needed: %v", err)
	}
	content, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(output)), "confd", "etc", "calico", "confd", "templates", file))
	must.Do(t, err)
	return string(content)
}

// Version is a template of one version of Calico. Those of older ones are made from that of 3.31 by taking out what
// came later: their texts are not in this repository, and their hashes prove that these are they.
type Version struct {
	Name, File, Text string
	// original and Patched are the first digits of the SHA-256 of the template, as `git show
	// v3.30.0:confd/etc/calico/confd/templates/bird.cfg.template` of Calico's repository has it, and of what Patch
	// makes of it.
	original, Patched string
}

// Versions returns the templates of both families of Calico 3.29 to 3.31.
func Versions(t *testing.T) []Version {
	t.Helper()
	v4, v6 := pinned(t, birdtemplates.IPv4File), pinned(t, birdtemplates.IPv6File)
	all := []Version{
		{"3.31.0 to 3.31.7", birdtemplates.IPv4File, v4, "65b93074ea06", "0b657d4e0883"},
		{"3.30.7", birdtemplates.IPv4File, withoutLocalAS(v4), "f32610966ae1", "13466ca948d7"},
		{"3.30.0", birdtemplates.IPv4File, withoutNextHopMode(v4), "f3977346ab54", "0147e960b112"},
		{"3.29.0 to 3.29.7", birdtemplates.IPv4File, withoutLocalPeers(v4), "604c8773a021", "57b7e3ff8983"},
		{"3.31.0 to 3.31.7", birdtemplates.IPv6File, v6, "fe8ad32feeec", "323b7d45e028"},
		{"3.30.7", birdtemplates.IPv6File, withoutLocalAS(v6), "a95bcc66472d", "16573a81e4cc"},
		{"3.30.0", birdtemplates.IPv6File, withoutNextHopMode(v6), "6c86933f20e2", "f0aaa7585ade"},
		{"3.29.0 to 3.29.7", birdtemplates.IPv6File, withoutLocalPeers(v6), "3b74ff5942a5", "7062a9b091d5"},
	}
	for _, v := range all {
		if got := Digits(v.Text); got != v.original {
			t.Fatalf("what should be %s of Calico %s has the hash %s, not %s", v.File, v.Name, got, v.original)
		}
	}
	return all
}

// withoutLocalAS takes out what 3.31.0 added.
func withoutLocalAS(text string) string {
	return strings.NewReplacer(
		"{{- $effective_node_as_num := $node_as_num }}\n{{- if ne $data.local_as_num \"0\" }}\n  {{- $effective_node_as_num = $data.local_as_num }}\n{{- end }}\n", "",
		"{{- if ne ($data.local_as_num) \"0\"}}\n  local as {{$data.local_as_num}};\n{{- end }}\n", "",
		"$effective_node_as_num", "$node_as_num",
	).Replace(text)
}

// withoutNextHopMode takes out what came within 3.30 as well.
func withoutNextHopMode(text string) string {
	return strings.NewReplacer(
		"{{- if eq $data.next_hop_mode \"Self\"}}\n  next hop self;\n{{- end}}\n", "",
		"{{- if eq $data.next_hop_mode \"Keep\"}}\n  next hop keep;\n{{- end}}\n", "",
	).Replace(withoutLocalAS(text))
}

// localPeers is a section of sessions with local workloads.
var localPeers = regexp.MustCompile(`(?s)\n\{\{(?:if ls "/bgp/v1/global/peer_v.")?(?:\$node_peers_key := [^\n]*\n\{\{if ls \$node_peers_key)?}}\n` +
	`\{\{\$first := true}}.*?End of local bgp peer check \*/}}\n`)

// withoutLocalPeers takes out what 3.30.0 added as well.
func withoutLocalPeers(text string) string {
	text = localPeers.ReplaceAllString(withoutNextHopMode(text), "")
	text = strings.NewReplacer(
		"{{- if $data.local_bgp_peer }}\n# Skipping local bgp peer ({{$data.ip}})\n{{- else}}\n", "",
		"{{- if $data.passive_mode}}\n  passive on;\n{{- end}}\n", "",
		"}\n{{- end}}\n{{- end}}\n{{end}}\n{{else}}# No ", "}\n{{- end}}\n{{end}}\n{{else}}# No ",
	).Replace(text)
	// Blank lines around the sections are not the same in both families.
	text = strings.Replace(text, "{{end}}\n\n{{end}}{{/* End of IPv4", "{{end}}\n{{end}}{{/* End of IPv4", 1)
	if strings.Contains(text, "peer_v6") {
		text = strings.Replace(text, "No global peers configured.{{end}}\n", "No global peers configured.{{end}}\n\n", 1)
	}
	return text
}

// Digits are the first twelve of the SHA-256 of a text.
func Digits(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:6])
}
