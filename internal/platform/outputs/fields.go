// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"path"
	"reflect"
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
func (g guard) read(verb string, r *http.Request) (c change, again *http.Request, err error) {
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
	if verb != "update" {
		c, err = changed(verb, r.Header.Get("Content-Type"), body)
		return c, again, err
	}
	was, err := g.before(r)
	if err == nil {
		c, err = replaced(was, body)
	}
	return c, again, err
}

// send sends a request, and keeps the response's body for the round if the object in it may be updated in part.
func (g guard) send(r *http.Request) (*http.Response, error) {
	response, err := g.next.RoundTrip(r)
	if err != nil || response.StatusCode >= http.StatusMultipleChoices {
		return response, err //nolint:wrapcheck // it is the transport's own
	}
	at := r.URL.Path
	o, inRound := r.Context().Value(key{}).(declared)
	kind, name := resource(at), path.Base(at)
	inPart := func(w Write) bool { return w.Fields != nil && w.Kind == kind && slices.Contains(w.Verbs, "update") }
	if collection, _, _ := strings.Cut(kind, "."); !inRound || name == collection || !slices.ContainsFunc(o.writes, inPart) {
		return response, nil
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil {
		return nil, fmt.Errorf("reading %s: %w", at, err)
	}
	o.read.Store(at, body)
	response.Body = io.NopCloser(bytes.NewReader(body))
	return response, nil
}

// before returns the object that an update replaces, in JSON, as it was read last in the round. Where it was not, as of
// one out of a list, it is read.
func (g guard) before(r *http.Request) ([]byte, error) {
	if o, inRound := r.Context().Value(key{}).(declared); inRound {
		if body, known := o.read.Load(r.URL.Path); known {
			return body.([]byte), nil //nolint:forcetypeassert // nothing else is stored
		}
	}
	get := r.Clone(r.Context())
	get.Method, get.Body, get.ContentLength = http.MethodGet, nil, 0
	get.Header.Set("Accept", "application/json")
	response, err := g.next.RoundTrip(get)
	if err != nil {
		return nil, fmt.Errorf("reading what is to be updated: %w", err)
	}
	body, err := io.ReadAll(response.Body)
	if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading what is to be updated, %s: %s, %w", r.URL.Path, response.Status, cmp.Or(err, ErrUndeclared))
	}
	return body, nil
}

// replaced returns what an update makes of an object, both in JSON: the fields that come, go or are others. Those that
// the API server keeps itself are none.
func replaced(was, is []byte) (c change, err error) {
	var before, after map[string]any
	if err := json.Unmarshal(was, &before); err != nil {
		return change{}, fmt.Errorf("decoding what is to be updated: %w", err)
	}
	if err := json.Unmarshal(is, &after); err != nil {
		return change{}, fmt.Errorf("decoding an update: %w", err)
	}
	c.differ("", before, after)
	metadata, _ := after["metadata"].(map[string]any)
	for _, name := range []string{"uid", "resourceVersion"} {
		c.bound = c.bound || metadata[name] != nil && metadata[name] != ""
	}
	return c, nil
}

// differ takes the fields in that differ between two states of what is at a place. An object without fields is as good as
// none.
func (c *change) differ(at string, was, is map[string]any) {
	names := map[string]bool{}
	for _, state := range []map[string]any{was, is} {
		for name := range state {
			names[name] = true
		}
	}
	kept := []string{"/metadata/managedFields", "/metadata/generation", "/metadata/creationTimestamp"}
	for name := range names {
		field := at + Field(name)
		before, wasObject := was[name].(map[string]any)
		after, isObject := is[name].(map[string]any)
		switch {
		case slices.Contains(kept, field):
		case (wasObject || was[name] == nil) && (isObject || is[name] == nil):
			c.differ(field, before, after)
		case !reflect.DeepEqual(was[name], is[name]):
			c.add(field, is[name])
		}
	}
}
