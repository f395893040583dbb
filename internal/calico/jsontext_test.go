// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// sketches are texts of which some are read without encoding/json, and others are left to it.
func sketches() (quick, slow []string) {
	block := caliconode.Crowd{PodsEach: 2}.Block(1, netip.MustParsePrefix("10.0.0.0/26"))
	quick = []string{
		block, leftoverBlock, "{}", " {\n} ", `{"spec":` + block + `,"status":[{},[true,null,false,-12]]}`, strings.ReplaceAll(block, ",", " ,\n\t"),
	}
	slow = []string{
		strings.Replace(block, "default", `de\u0066ault`, 1), strings.Replace(block, "default", "défault", 1),
		strings.Replace(block, `"cidr"`, `"Cidr"`, 1), strings.Replace(block, `"node"`, `"Node"`, 1), block[1:], block[:len(block)-1],
		strings.Replace(block, `"attributes"`, `"attributes":[{"handle_id":"x"}],"attributes"`, 1), block + block, "", "[]", "null",
		strings.Replace(block, `"host:node-00001"`, "null", 1), strings.Replace(block, `"deleted":false`, `"deleted":1.5`, 1),
		`{"attributes":[{"secondary":null}]}`, `{"attributes":[{"secondary":{"node":7}}]}`, `{"attributes":7}`, `{"cidr":}`, `{"a":01}`,
		`{"a":"\u007b}`, `{"a":nul}`, `{"a":1,}`, `{,}`, "{\"a\":\"\t\"}", `{"a":` + strings.Repeat("[", 50) + strings.Repeat("]", 50) + "}",
	}
	quick = append(quick, `{"handle_id":"h","secondary":{"node":"n","pod":"p"}}`, `{"handle_id":"h","secondary":{"vmi-name":"n"}}`, `{"releasedAt":"x"}`,
		`{"spec":{"orchestrator":"k8s","node":"n","pod":"p","containerID":"c","ipNetworks":["10.0.0.1/32"],"ports":[]}}`)
	quick = append(quick, `{"spec":{"Node":"n"}}`, `{"spec":{},"spec":{}}`)
	return quick, slow
}

// What Calico writes is read without encoding/json.
func TestBlocksAreSketchedQuickly(t *testing.T) {
	t.Parallel()
	quick, slow := sketches()
	for i, text := range append(quick, slow...) {
		var b blockSketch
		j := jsonText{text: text}
		if got := j.block(&b) && j.end(); got != (i < len(quick)) {
			t.Errorf("%t: %s", got, text)
		}
	}
}

// What a sketch takes does not depend on how many fields there are.
func TestASketchTakesLittle(t *testing.T) { //nolint:paralleltest // it counts allocations
	block := []byte(caliconode.Crowd{PodsEach: 30}.Block(1, netip.MustParsePrefix("10.0.0.0/26")))
	most := 4.0 // of the text, of the list of attributes, and of what reads them
	if got := testing.AllocsPerRun(10, func() { _, _ = sketchBlock(block) }); got > most {
		t.Errorf("a sketch of a block of thirty pods makes %v allocations, more than %v", got, most)
	}
}

// A sketch is what encoding/json makes of the same text, or an error where that makes one.
func FuzzBlockSketch(f *testing.F) {
	quick, slow := sketches()
	for _, text := range append(quick, slow...) {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want blockSketch
		wantErr := json.Unmarshal([]byte(text), &want)
		got, err := sketchBlock([]byte(text))
		custom, customErr := sketchCustomBlock(fmt.Appendf(nil, `{"apiVersion":"v1","spec":%s}`, text))
		if (err == nil) != (wantErr == nil) || (customErr == nil) != (wantErr == nil) {
			t.Fatalf("%q: %v and %v, encoding/json says %v", text, err, customErr, wantErr)
		}
		if wantErr == nil && (!cmp.Equal(got, want) || !cmp.Equal(custom, want)) {
			t.Errorf("%q:\n%s\n%s", text, cmp.Diff(want, got), cmp.Diff(want, custom))
		}
		var later laterAttribute
		if isPlain([]byte(text)) && (json.Unmarshal([]byte(text), &later) != nil || !cmp.Equal(later, laterAttribute{}) || unknownField([]byte(text)) != "") {
			t.Errorf("%q is not plain", text)
		}
		var endpoint endpointSketch
		wantErr = json.Unmarshal([]byte(text), &endpoint)
		sketch, err := sketchEndpoint([]byte(text))
		if (err == nil) != (wantErr == nil) || err == nil && !cmp.Equal(sketch, endpoint) {
			t.Errorf("%q: %v, %v: %s", text, err, wantErr, cmp.Diff(endpoint, sketch))
		}
	})
}
