// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command policies writes the ValidatingAdmissionPolicies of the cloud component from the table of annotations, for config/ and for the chart. Run
// it from the repository's root as `make manifests` does.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/docloud/admission/policy"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

const header = `# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Written by make manifests from package internal/docloud/admission/policy; do not edit.
`

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "policies:", err)
		os.Exit(1)
	}
}

// targets are the files, from the repository's root.
func targets() []string {
	return []string{
		filepath.Join("config", "digitalocean-cloud-controller-manager", "overlays", "admission-policies", "policies.yaml"),
		filepath.Join("charts", "mooring", "policies", "digitalocean-cloud-controller-manager.yaml"),
	}
}

func run(root string) error {
	content, err := render()
	if err != nil {
		return err
	}
	for _, target := range targets() {
		if err := os.WriteFile(filepath.Join(root, target), content, 0o644); err != nil { //nolint:gosec // it is public
			return err
		}
	}
	return nil
}

// render returns the policies and bindings as YAML. Those of a cluster with another default type differ in one variable, which the chart sets.
func render() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(header)
	for _, pair := range policy.All(annotation.DefaultType) {
		for _, object := range []any{pair.Policy, pair.Binding} {
			document, err := plain(object)
			if err != nil {
				return nil, err
			}
			if b.Len() > len(header) {
				b.WriteString("---\n")
			}
			b.Write(document)
		}
	}
	return b.Bytes(), nil
}

// plain is an object without the fields that only a server fills in.
func plain(object any) ([]byte, error) {
	content, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var fields map[string]any
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, err
	}
	delete(fields, "status")
	if meta, ok := fields["metadata"].(map[string]any); ok {
		delete(meta, "creationTimestamp")
	}
	return yaml.Marshal(fields)
}
