// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

const (
	system = "kube-system"
	rbac   = "rbac.authorization.k8s.io"
)

type fields = map[string]any

// Digest is the SHA-256 of objects as JSON with sorted keys, one on a line, in the order of these lines: neither
// comments nor the order of a file count.
func Digest(all []*unstructured.Unstructured) (string, error) {
	var lines []string
	for _, u := range all {
		line, err := json.Marshal(u.Object)
		if err != nil {
			return "", fmt.Errorf("writing %s %s as JSON: %w", u.GetKind(), u.GetName(), err)
		}
		lines = append(lines, string(line))
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\n")))
	return hex.EncodeToString(sum[:]), nil
}

// File is objects as a file that kubectl applies.
func File(all []*unstructured.Unstructured) ([]byte, error) {
	var out bytes.Buffer
	for _, u := range all {
		content, err := yaml.Marshal(u.Object)
		if err != nil {
			return nil, fmt.Errorf("writing %s %s as YAML: %w", u.GetKind(), u.GetName(), err)
		}
		out.WriteString("---\n")
		out.Write(content)
	}
	return out.Bytes(), nil
}

func objectOf(apiVersion, kind string, metadata fields, more fields) *unstructured.Unstructured {
	o := fields{"apiVersion": apiVersion, "kind": kind, "metadata": metadata}
	maps.Copy(o, more)
	return &unstructured.Unstructured{Object: o}
}

func named(name string) fields { return fields{"name": name} }

func inSystem(name string) fields { return fields{"name": name, "namespace": system} }

// role has rules of the form "resource.group verb verb".
func role(metadata fields, rules ...string) *unstructured.Unstructured {
	var all []any
	for _, text := range rules {
		words := strings.Fields(text)
		resource, group, _ := strings.Cut(words[0], ".")
		all = append(all, fields{"apiGroups": []any{group}, "resources": []any{resource}, "verbs": texts(words[1:]...)})
	}
	return objectOf(rbac+"/v1", "ClusterRole", metadata, fields{"rules": all})
}

// bound binds a ClusterRole to a service account.
func bound(name, to, account string) *unstructured.Unstructured {
	return objectOf(rbac+"/v1", "ClusterRoleBinding", named(name), fields{
		"roleRef":  fields{"apiGroup": rbac, "kind": "ClusterRole", "name": to},
		"subjects": []any{fields{"kind": "ServiceAccount", "name": account, "namespace": system}},
	})
}

func account(name string) *unstructured.Unstructured {
	return objectOf("v1", "ServiceAccount", inSystem(name), nil)
}

func texts(all ...string) []any {
	out := make([]any, 0, len(all))
	for _, one := range all {
		out = append(out, one)
	}
	return out
}

// variable is one of a container's environment.
func variable(name, value string) any { return fields{"name": name, "value": value} }

// secretToken is a variable with DigitalOcean's token, of the Secret that both projects use.
func secretToken(name string) any {
	return fields{"name": name, "valueFrom": fields{"secretKeyRef": fields{"name": "digitalocean", "key": "access-token"}}}
}
