// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// markFolders are the packages that have labels, annotations and finalizers of ours. A test finds those that are not here.
func markFolders() []string {
	return []string{
		"api/bgp/v1alpha1", "api/etcd/v1alpha1", "internal/docloud/firewall", "internal/docloud/instance", "internal/docloud/loadbalancer", "internal/docloud/machines", "internal/docloud/outofservice", "internal/nodesync",
		"internal/nodesync/controller", "internal/routereflector", "internal/routereflector/controller",
	}
}

// markForm is how a label, an annotation or a finalizer of ours is written.
var markForm = regexp.MustCompile(`^([a-z]+\.mooring\.dev)/[a-z0-9-]+$`)

// sign is a label, an annotation or a finalizer.
type sign struct{ group, value, what, meaning string }

// marks are all that have a meaning for people: the exported ones. Some packages say the same again; the first one counts.
func marks(root string) ([]sign, error) {
	var out []sign
	for _, folder := range markFolders() {
		all, err := constants(root, folder)
		if err != nil {
			return nil, err
		}
		for _, c := range all {
			parts := markForm.FindStringSubmatch(c.value)
			if parts == nil || c.name[0] < 'A' || c.name[0] > 'Z' {
				continue
			}
			m := sign{group: parts[1], value: c.value, meaning: c.doc}
			for _, what := range []string{"Label", "Annotation", "Finalizer"} {
				if strings.HasSuffix(c.name, what) {
					m.what = strings.ToLower(what)
				}
			}
			if m.what == "" || m.meaning == "" {
				return nil, fmt.Errorf("%s.%s: the name must end with Label, Annotation or Finalizer, and a comment say what it means", folder, c.name)
			}
			if !slices.ContainsFunc(out, func(have sign) bool { return have.value == m.value && have.what == m.what }) {
				out = append(out, m)
			}
		}
	}
	slices.SortStableFunc(out, func(a, b sign) int {
		return cmp.Or(strings.Compare(a.group, b.group), strings.Compare(a.value, b.value), strings.Compare(a.what, b.what))
	})
	return out, nil
}

// marksPage renders them.
func marksPage(root string) ([]byte, error) {
	all, err := marks(root)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.WriteString(header + "# Labels, annotations and finalizers\n\nWritten by `make generate` from the constants of the code; do not edit. They are stable.\n\n" +
		"Annotations of Services that choose load balancers have [a page of their own](digitalocean-annotations.md). Those that only the program itself reads are not listed.\n")
	group := ""
	for _, m := range all {
		if m.group != group {
			group = m.group
			fmt.Fprintf(&b, "\n## %s\n\n", group)
		}
		fmt.Fprintf(&b, "%s\n", wrap(fmt.Sprintf("- `%s` (%s): %s", m.value, m.what, escape(m.meaning)), "  "))
	}
	return b.Bytes(), nil
}
