// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestReadmeInstalls: the command of the README renders what it promises, a calico-node-sync that writes nothing, from the image that the line before pushes.
func TestReadmeInstalls(t *testing.T) {
	t.Parallel()
	readme := must.Get(os.ReadFile("../../README.md")).Or(t)
	command := regexp.MustCompile(`(?m)^helm install mooring charts/mooring((?:.*\\\n)*.*)$`).FindStringSubmatch(string(readme))
	if command == nil {
		t.Fatal("the README has no helm install")
	}
	flags := strings.Fields(strings.ReplaceAll(strings.ReplaceAll(command[1], "\\\n", " "), "--create-namespace", ""))
	out, complaint, err := helm(t, "", append([]string{"template", "mooring", chart}, flags...)...)
	if err != nil {
		t.Fatalf("helm template %q: %v\n%s", flags, err, complaint)
	}
	for _, want := range []string{"image: \"registry.example/calico-node-sync:dev\"", "- --mode=report"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in what the README's command renders", want)
		}
	}
}
