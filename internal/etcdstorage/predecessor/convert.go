// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// The old kind, as it stands in old objects and in the paths of an API server that serves it. MUST NOT change.
const (
	Group    = "etcd.xmudrii.com"
	Version  = "v1alpha1"
	Kind     = "EtcdStorage"
	Resource = "etcdstorages"
)

// mostName is the longest name that our kind allows; the old one allowed 59 characters, with which no Service could be made.
const mostName = 58

// mostDestinations is how many ConfigMaps, or Secrets, an EtcdStorage may name.
const mostDestinations = 16

// Settings are what a conversion depends on alongside the object.
type Settings struct {
	// OperatorNamespace is where the operator runs. It delivers nothing there.
	OperatorNamespace string
}

// A Note is something about one field of an old object.
type Note struct {
	// Field is its path, such as spec.servingCertificateValidity.
	Field string `json:"field"`
	// Text is one sentence for a person.
	Text string `json:"text"`
}

// String is the note on one line.
func (n Note) String() string { return n.Field + ": " + n.Text }

// A Conversion is what becomes of one old object.
type Conversion struct {
	// Name is metadata.name; it may be empty if Refused is not.
	Name string
	// Object is the new object as JSON values, with no field that has its default; nil if it cannot be converted.
	Object map[string]any
	// Refused says why it cannot be converted, and what to do instead.
	Refused []Note
	// Lost is what could not be converted without loss.
	Lost []Note
	// Hints are about what was carried over and works otherwise than before.
	Hints []Note
}

// Is reports whether an object is of the old kind, in whatever version.
func Is(object map[string]any) bool {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	group, _, found := strings.Cut(version, "/")
	return found && group == Group && kind == Kind
}

// Convert converts one old object (see Is). It depends on nothing but its arguments, and the same old object always becomes the same new one.
func Convert(old map[string]any, s Settings) Conversion {
	metadata, _ := old["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	c := &Conversion{Name: name}
	if version, _ := old["apiVersion"].(string); version != Group+"/"+Version {
		c.refuse("apiVersion", "it is %q, only %s/%s is known", version, Group, Version)
	}
	c.checkName(name)
	if metadata["deletionTimestamp"] != nil {
		c.refuse("metadata.deletionTimestamp", "it is being deleted: wait until it is gone")
	}
	spec, ok := old["spec"].(map[string]any)
	if !ok && old["spec"] != nil {
		c.refuse("spec", "it must be an object with fields")
	}
	if len(c.Refused) > 0 {
		return *c
	}
	// The tenant's keys are under /<name>/ of the core, which is our default prefix as well. They are the tenant's own, so it may have them.
	out := map[string]any{"adoptExistingData": true}
	c.destinations(out, spec, "caCertConfigMap", s)
	c.destinations(out, spec, "clientCertSecret", s)
	c.validities(out, spec)
	known := []string{"caCertConfigMap", "clientCertSecret", fieldSigning, fieldServing, fieldClient}
	for _, field := range slices.Sorted(maps.Keys(spec)) {
		if !slices.Contains(known, field) {
			c.lose("spec."+field, "it is not a field of the old kind; left out")
		}
	}
	c.Object = map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": Kind, "metadata": c.metadata(metadata), "spec": out,
	}
	return *c
}

func (c *Conversion) refuse(field, format string, args ...any) {
	c.Refused = append(c.Refused, Note{field, fmt.Sprintf(format, args...)})
}

func (c *Conversion) lose(field, format string, args ...any) {
	c.Lost = append(c.Lost, Note{field, fmt.Sprintf(format, args...)})
}

func (c *Conversion) hint(field, format string, args ...any) {
	c.Hints = append(c.Hints, Note{field, fmt.Sprintf(format, args...)})
}

// isLabel reports whether text is a name without dots, as our kind wants it of itself and of namespaces.
func isLabel(text string) bool { return matches(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`, text) }

// isSubdomain reports whether text can be the name of a ConfigMap or a Secret.
func isSubdomain(text string) bool {
	return len(text) <= 253 && matches(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`, text)
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

func (c *Conversion) checkName(name string) {
	// The data of such a tenant can be had under another name: the prefix may hold what a name may not.
	const cure = "create one of another name by hand, with spec.prefix /%s/ and spec.adoptExistingData true"
	switch {
	case name == "":
		c.refuse("metadata.name", "it is missing")
	case !isSubdomain(name):
		c.refuse("metadata.name", "%q is not a name of a Kubernetes object", name)
	case !isLabel(name):
		c.refuse("metadata.name", "only lower case letters, digits and '-' are allowed now; "+cure, name)
	case len(name) > mostName:
		c.refuse("metadata.name", "it has %d characters, %d are allowed now; "+cure, len(name), mostName, name)
	}
}

// metadata carries over name, labels and annotations. What the API server or other programs keep on the old object stays there.
func (c *Conversion) metadata(old map[string]any) map[string]any {
	out := map[string]any{"name": c.Name}
	for _, field := range []string{"labels", "annotations"} {
		kept := map[string]any{}
		values, _ := old[field].(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(values)) {
			group, _, _ := strings.Cut(key, "/")
			text, ok := values[key].(string)
			switch {
			case group == Group || group == "kubectl.kubernetes.io": // the record of kubectl apply is about the old object
			case !ok:
				c.lose("metadata."+field+"."+key, "its value is not text; left out")
			default:
				kept[key] = text
			}
		}
		if len(kept) > 0 {
			out[field] = kept
		}
	}
	for _, field := range []string{"finalizers", "ownerReferences"} {
		if list, _ := old[field].([]any); len(list) > 0 {
			c.lose("metadata."+field, "left out, since they are about the old object")
		}
	}
	return out
}

// destinations carries over a list of ConfigMaps or Secrets.
func (c *Conversion) destinations(out, spec map[string]any, field string, s Settings) {
	path := "spec." + field
	if spec[field] == nil {
		return
	}
	list, ok := spec[field].([]any)
	if !ok {
		c.lose(path, "it must be a list of names and namespaces; left out, so that nothing is delivered")
		return
	}
	var kept []any
	seen := map[[2]string]bool{}
	for i, entry := range list {
		at := fmt.Sprintf("%s[%d]", path, i)
		name, namespace, problem := destination(entry)
		key := [2]string{namespace, name}
		switch {
		case problem != "":
			c.lose(at, "%s; left out", problem)
			continue
		case seen[key]:
			c.lose(at, "%s/%s is listed twice; left out here", namespace, name)
			continue
		case len(kept) == mostDestinations:
			c.lose(at, "%s/%s is more than the %d that are allowed; left out", namespace, name, mostDestinations)
			continue
		case namespace == s.OperatorNamespace:
			c.lose(at, "%s is the operator's own namespace, where it delivers nothing; name an object in the tenant's", namespace)
		}
		seen[key] = true
		kept = append(kept, map[string]any{"name": name, "namespace": namespace})
	}
	if len(kept) > 0 {
		out[field] = kept
	}
}

// destination reads one entry; problem says what is wrong with it.
func destination(entry any) (name, namespace, problem string) {
	fields, ok := entry.(map[string]any)
	if !ok {
		return "", "", "it must have a name and a namespace"
	}
	name, _ = fields["name"].(string)
	namespace, _ = fields["namespace"].(string)
	switch {
	case !isSubdomain(name):
		return "", "", fmt.Sprintf("its name %q is not a name of a Kubernetes object", name)
	case !isLabel(namespace) || len(namespace) > 63:
		return "", "", fmt.Sprintf("its namespace %q is not a name of a namespace", namespace)
	}
	for _, key := range slices.Sorted(maps.Keys(fields)) {
		if key != "name" && key != "namespace" {
			return "", "", fmt.Sprintf("its field %q is not known", key)
		}
	}
	return name, namespace, ""
}
