// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

var update = flag.Bool("update", false, "write what was got to the golden files")

// TestWhatIsWritten shows every key and value of a cluster of one host with two pods. It fails when an upgrade of
// libcalico-go changes what is written, which is when this package has to be compared with the new Calico.
func TestWhatIsWritten(t *testing.T) {
	t.Parallel()
	datastore, etcd := connect(t)
	agent := start(t, datastore, host("worker-1", "192.168.0.11"))
	add(t, agent, pod("cart-a"))
	add(t, agent, pod("cart-b"))
	wantInconsistencies(t, datastore)

	got := render(t, etcd.Dump(t))
	golden := filepath.Join("testdata", "host-with-two-pods.golden")
	if *update {
		must.Do(t, os.WriteFile(golden, []byte(got), 0o600))
	}
	want := must.Get(os.ReadFile(golden)).Or(t)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("what is written has changed (-golden +got; -update accepts it):\n%s", diff)
	}
}

// render prints keys and values in order, with everything that differs from run to run replaced.
func render(t *testing.T, dump map[string]string) string {
	t.Helper()
	scalars := regexp.MustCompile(`\[[^\[\]{}]*\]`)
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(dump)) {
		var value any
		decoder := json.NewDecoder(strings.NewReader(dump[key]))
		decoder.UseNumber()
		if err := decoder.Decode(&value); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		var text bytes.Buffer
		encoder := json.NewEncoder(&text)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		must.Do(t, encoder.Encode(normalize("", value)))
		short := scalars.ReplaceAllStringFunc(text.String(), func(list string) string {
			return strings.Join(strings.Fields(list), "")
		})
		fmt.Fprintf(&out, "%s\n%s\n", key, short)
	}
	return out.String()
}

// normalize replaces identifiers, times and sequence numbers; parent is the key under which the value stands.
func normalize(parent string, value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			v[key] = normalize(key, inner)
			if parent == "sequenceNumberForAllocation" {
				v[key] = "<sequence>"
			}
		}
	case []any:
		for i := range v {
			v[i] = normalize(parent, v[i])
		}
	default:
		switch parent {
		case "uid", "clusterGUID", "creationTimestamp", "timestamp", "sequenceNumber":
			return "<" + parent + ">"
		}
	}
	return value
}
