// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Field returns the JSON pointer (RFC 6901) of a field, as [Write.Fields] has it.
func Field(names ...string) string {
	var out strings.Builder
	for _, name := range names {
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return out.String()
}

// identity are the fields that say which object a patch is for, and in which state. The API server refuses a patch that
// names another UID or resourceVersion than the object has, so that none of them can be changed.
func identity() []string {
	return []string{
		"/apiVersion", "/kind", "/metadata/name", "/metadata/namespace", "/metadata/uid", "/metadata/resourceVersion",
	}
}

// A change is what a patch writes, and whether it is bound to an object: it names its UID or its resourceVersion.
type change struct {
	fields []string // JSON pointers
	bound  bool
}

// within returns nil if a write of the kind covers the change.
func (c change) within(w Write) error {
	foreign := slices.IndexFunc(c.fields, func(field string) bool {
		return !slices.ContainsFunc(w.Fields, func(own string) bool { return field == own || strings.HasPrefix(field, own+"/") })
	})
	switch {
	case w.Fields != nil && foreign >= 0:
		return fmt.Errorf("the field %s of %s: %w", c.fields[foreign], w.Kind, ErrUndeclared)
	case w.Bound && !c.bound:
		return fmt.Errorf("%s without UID or resourceVersion: %w", w.Kind, ErrUndeclared)
	}
	return nil
}

// add takes a field in that is changed, or is of the object's identity and has to have a value.
func (c *change) add(field string, value any) {
	if !slices.Contains(identity(), field) {
		c.fields = append(c.fields, field)
		return
	}
	named := value != nil && value != ""
	c.bound = c.bound || named && (field == "/metadata/uid" || field == "/metadata/resourceVersion")
}

// changed returns what a write changes, by its body in JSON: a JSON patch (RFC 6902), a JSON merge patch (RFC 7396),
// Kubernetes' strategic merge patch, an object to apply, or the options of a deletion.
func changed(verb, contentType string, body []byte) (c change, err error) {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return change{}, fmt.Errorf("the content type %q of a %s: %w", contentType, verb, err)
	case verb == "delete":
		return deletion(body)
	case kind == "application/json-patch+json":
		return operations(body)
	}
	var object map[string]any
	if err := json.Unmarshal(body, &object); err != nil {
		return change{}, fmt.Errorf("decoding a patch of type %s: %w", kind, err)
	}
	c.merge("", object)
	return c, nil
}

// merge takes the fields of a merge patch in. Directives of a strategic one, such as $setElementOrder/taints, are about
// the field that they name, or about the object in which they are.
func (c *change) merge(parent string, object map[string]any) {
	for name, value := range object {
		if strings.HasPrefix(name, "$") {
			_, of, named := strings.Cut(name, "/")
			if !named {
				c.add(parent, nil)
				continue
			}
			name, value = of, nil
		}
		field := parent + Field(name)
		if inner, is := value.(map[string]any); is && len(inner) > 0 {
			c.merge(field, inner)
			continue
		}
		c.add(field, value)
	}
}

// operations takes the fields of a JSON patch in. It is bound by a test, or by the resourceVersion that it writes.
func operations(patch []byte) (c change, err error) {
	var all []struct {
		Op, Path, From string
		Value          any
	}
	if err := json.Unmarshal(patch, &all); err != nil {
		return change{}, fmt.Errorf("decoding a JSON patch: %w", err)
	}
	for _, o := range all {
		if o.Op != "test" || slices.Contains(identity(), o.Path) {
			c.add(o.Path, o.Value)
		}
		if o.Op == "move" {
			c.add(o.From, nil)
		}
	}
	return c, nil
}

// deletion is bound by the preconditions in its options.
func deletion(body []byte) (c change, err error) {
	var options struct {
		Preconditions struct{ UID, ResourceVersion string }
	}
	if err := json.Unmarshal(body, &options); err != nil {
		return change{}, fmt.Errorf("decoding the options of a deletion: %w", err)
	}
	c.bound = options.Preconditions != struct{ UID, ResourceVersion string }{}
	return c, nil
}

// read reads the body of a write that is declared with its fields or its precondition, and returns the request to send
// instead, which has it still.
func read(verb string, r *http.Request) (c change, again *http.Request, err error) {
	var body []byte
	if r.Body != nil {
		body, err = io.ReadAll(r.Body)
		err = errors.Join(err, r.Body.Close())
	}
	if err != nil {
		return change{}, nil, fmt.Errorf("reading a %s before it is sent: %w", verb, err)
	}
	again = r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))
	c, err = changed(verb, r.Header.Get("Content-Type"), body)
	return c, again, err
}
