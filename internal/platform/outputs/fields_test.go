// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const (
	mergePatch     = "application/merge-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	jsonPatch      = "application/json-patch+json; charset=utf-8"
	applyPatch     = "application/apply-patch+yaml"
)

// A patch that changes a field which is not declared, or that is about any object of its name, is not sent. What is sent
// has its body still.
func TestOnlyDeclaredFieldsAreSent(t *testing.T) {
	t.Parallel()
	writes := []Write{
		{System: Kubernetes, Kind: "nodes", Verbs: []string{"patch"}, Fields: []string{
			Field("spec", "taints"), Field("metadata", "annotations", "mooring.dev/a~b"),
		}, Bound: true},
		{System: Kubernetes, Kind: "nodes", Verbs: []string{"delete"}, Bound: true},
		{System: Kubernetes, Kind: "nodes", Verbs: []string{"update"}},
		{System: Kubernetes, Kind: "nodes/status", Verbs: []string{"patch"}, Fields: []string{Field("status", "conditions")}},
	}
	const node, status = "/api/v1/nodes/n", "/api/v1/nodes/n/status"
	for _, at := range []struct {
		name, method, path, contentType, body string
		sent                                  bool
	}{
		{"a field", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":"u"},"spec":{"taints":[{"key":"a"}]}}`, true},
		{"what is in an annotation's name", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":"u","annotations":{"mooring.dev/a~b":null}}}`, true},
		{"applied", http.MethodPatch, node, applyPatch, `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n","uid":"u"},"spec":{"taints":[]}}`, true},
		{"nothing but a directive about it", http.MethodPatch, node, strategicPatch, `{"metadata":{"uid":"u"},"spec":{"$setElementOrder/taints":[{"key":"a"}]}}`, true},
		{"no object named", http.MethodPatch, node, mergePatch, `{"spec":{"taints":[]}}`, false},
		{"no object named", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":null,"resourceVersion":""},"spec":{"taints":[]}}`, false},
		{"no need to name it", http.MethodPatch, status, strategicPatch, `{"status":{"conditions":[]}}`, true},
		{"another field", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":"u"},"spec":{"taints":[],"unschedulable":true}}`, false},
		{"another field", http.MethodPatch, status, strategicPatch, `{"status":{"conditions":[],"addresses":[]}}`, false},
		{"a directive about another field", http.MethodPatch, node, strategicPatch, `{"metadata":{"uid":"u"},"spec":{"$deleteFromPrimitiveList/podCIDRs":["a"]}}`, false},
		{"a directive about the object", http.MethodPatch, node, strategicPatch, `{"metadata":{"uid":"u"},"spec":{"$patch":"replace","taints":[]}}`, false},
		{"what the field is in", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":"u","annotations":null}}`, false},
		{"a field whose name begins like it", http.MethodPatch, node, mergePatch, `{"metadata":{"uid":"u"},"spec":{"taintsToo":[]}}`, false},
		{"operations", http.MethodPatch, node, jsonPatch, `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"remove","path":"/spec/taints/0"}]`, true},
		{"a test of something else", http.MethodPatch, node, jsonPatch, `[{"op":"test","path":"/spec/taints/0/key","value":"u"},{"op":"remove","path":"/spec/taints/0"}]`, false},
		{"a move from elsewhere", http.MethodPatch, node, jsonPatch, `[{"op":"test","path":"/metadata/uid","value":"u"},{"op":"move","from":"/spec/podCIDRs","path":"/spec/taints"}]`, false},
		{"no patch at all", http.MethodPatch, node, mergePatch, `[]`, false},
		{"no type of a patch", http.MethodPatch, node, "", `{}`, false},
		{"a deletion of the object", http.MethodDelete, node, "application/json", `{"preconditions":{"uid":"u"}}`, true},
		{"a deletion of any", http.MethodDelete, node, "application/json", `{"preconditions":{}}`, false},
		{"a deletion of any", http.MethodDelete, node, "application/json", ``, false},
		{"behind a proxy", http.MethodDelete, "/k8s/api/c-1" + node, "application/json", `{"preconditions":{"uid":"u"}}`, true},
		{"a deletion of any behind a proxy", http.MethodDelete, "/k8s/c-1" + node, "application/json", `{}`, false},
		{"an update", http.MethodPut, node, "application/json", `{"spec":{"unschedulable":true}}`, true},
	} {
		sent, body := false, ""
		transport := Guard(roundTrip(func(r *http.Request) (*http.Response, error) {
			sent, body = true, string(must.Get(io.ReadAll(r.Body)).Or(t))
			return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
		}))
		request := must.Get(http.NewRequestWithContext(Within(t.Context(), "test", writes), at.method, "https://kubernetes.example"+at.path,
			strings.NewReader(at.body))).Or(t)
		request.Header.Set("Content-Type", at.contentType)
		response, err := transport.RoundTrip(request)
		if err == nil {
			err = response.Body.Close()
		}
		if sent != at.sent || sent && body != at.body || sent != (err == nil) {
			t.Errorf("%s, %s %s: sent %v with %q, %v", at.name, at.method, at.body, sent, body, err)
		}
	}
}

// An update is compared with the object as the round has read or written it last, or as it is where that was not, and
// is not sent if it changes what is not declared or names no object. What the API server keeps itself is no change.
func TestOnlyDeclaredFieldsAreUpdated(t *testing.T) {
	t.Parallel()
	const block, was = "/apis/crd.projectcalico.org/v1/ipamblocks/b",
		`{"metadata":{"resourceVersion":"1","generation":3,"labels":{}},"spec":{"cidr":"c","allocations":[1,null]}}`
	writes := []Write{{
		System: Kubernetes, Kind: "ipamblocks.crd.projectcalico.org", Verbs: []string{"update"},
		Fields: []string{Field("spec", "allocations")}, Bound: true,
	}}
	for name, at := range map[string]struct {
		body string
		sent bool
	}{
		"a field":          {`{"metadata":{"resourceVersion":"1"},"spec":{"cidr":"c","allocations":[null,null]}}`, true},
		"nothing":          {was, true},
		"a field goes":     {`{"metadata":{"resourceVersion":"1"},"spec":{"cidr":"c"}}`, true},
		"another field":    {`{"metadata":{"resourceVersion":"1"},"spec":{"cidr":"d","allocations":[1,null]}}`, false},
		"another goes":     {`{"metadata":{"resourceVersion":"1"},"spec":{"allocations":[1,null]}}`, false},
		"another comes":    {`{"metadata":{"resourceVersion":"1","labels":{"a":"b"}},"spec":{"cidr":"c","allocations":[1]}}`, false},
		"all goes":         {`{"metadata":{"resourceVersion":"1"}}`, false},
		"no object named":  {`{"metadata":{},"spec":{"cidr":"c","allocations":[]}}`, false},
		"no object at all": {`[]`, false},
	} {
		for _, reads := range []bool{false, true} {
			var log []string
			transport := Guard(roundTrip(func(r *http.Request) (*http.Response, error) {
				text := was
				if log = append(log, r.Method); r.Body != nil {
					text = string(must.Get(io.ReadAll(r.Body)).Or(t))
				}
				return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(text))}, nil
			}))
			ctx := Within(t.Context(), "test", writes)
			send := func(method, body string) (string, error) {
				request := must.Get(http.NewRequestWithContext(ctx, method, "https://kubernetes.example"+block, strings.NewReader(body))).Or(t)
				if method == http.MethodGet {
					request.Body = nil
				}
				response, err := transport.RoundTrip(request)
				if err != nil {
					return "", err
				}
				return string(must.Get(io.ReadAll(response.Body)).Or(t)), response.Body.Close()
			}
			if got, err := send(http.MethodGet, ""); reads && (err != nil || got != was) {
				t.Fatalf("read %s, %v", got, err)
			} else if !reads {
				ctx, log = Within(t.Context(), "test", writes), nil
			}
			got, err := send(http.MethodPut, at.body)
			want := []string{http.MethodGet}
			if at.sent {
				want = append(want, http.MethodPut)
			}
			if !slices.Equal(log, want) || at.sent != (err == nil) || at.sent && got != at.body {
				t.Errorf("%s, read before: %t: sent %v, %q, %v", name, reads, log, got, err)
			}
			// The next one is compared with what was written.
			if _, err = send(http.MethodPut, at.body); at.sent && (err != nil || len(log) != 3) {
				t.Errorf("%s again: %v, %v", name, log, err)
			}
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// drawObject draws an object with names that need escapes in pointers.
func drawObject(t *rapid.T, depth int) map[string]any {
	out := map[string]any{}
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "metadata", "uid", "x/y", "x~y"}), 0, 4, rapid.ID).Draw(t, "names") {
		switch kind := rapid.SampledFrom([]string{"object", "text", "list", "null"}).Draw(t, "kind"); {
		case kind == "object" && depth > 0:
			out[name] = drawObject(t, depth-1)
		case kind == "list":
			out[name] = []any{"one", map[string]any{"a": "b"}}
		case kind == "null":
			out[name] = nil
		default:
			out[name] = rapid.SampledFrom([]string{"1", "2"}).Draw(t, "text")
		}
	}
	return out
}

// differences are the pointers of what differs, as deep as both are objects.
func differences(at string, is, was map[string]any) (all []string) {
	for _, name := range slices.Sorted(maps.Keys(is)) {
		before, had := was[name]
		inner, isObject := is[name].(map[string]any)
		old, wasObject := before.(map[string]any)
		switch field := at + Field(name); {
		case had && reflect.DeepEqual(is[name], before):
		case isObject && wasObject:
			all = append(all, differences(field, inner, old)...)
		default:
			all = append(all, field)
		}
	}
	for name := range was {
		if _, has := is[name]; !has {
			all = append(all, at+Field(name))
		}
	}
	return all
}

// Whatever a patch changes of an object, by the library with which the API server applies patches, is among the fields that
// it is said to change, or under one, or is where one of them was made.
func TestWhatAPatchChangesIsKnown(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		was := drawObject(t, 2)
		object := must.Get(json.Marshal(was)).Or(t)
		draw := rapid.SampledFrom([]func(*rapid.T, []byte) (kind string, patch, after []byte){drawMerge, drawOperations}).Draw(t, "patch")
		kind, patch, after := draw(t, object)
		c := must.Get(changed("patch", kind, patch)).Or(t)
		var is map[string]any
		must.Do(t, json.Unmarshal(after, &is))
		for _, field := range differences("", is, was) {
			known := slices.ContainsFunc(append(c.fields, identity()...), func(own string) bool {
				return own == field || strings.HasPrefix(field, own+"/") || strings.HasPrefix(own, field+"/")
			})
			if !known {
				t.Fatalf("%s with the patch %s is %s: %s is not among %v", object, patch, after, field, c.fields)
			}
		}
	})
}

// drawMerge draws a JSON merge patch.
func drawMerge(t *rapid.T, object []byte) (kind string, patch, after []byte) {
	patch = must.Get(json.Marshal(drawObject(t, 2))).Or(t)
	return mergePatch, patch, must.Get(jsonpatch.MergePatch(object, patch)).Or(t)
}

// drawOperations draws a JSON patch that the object takes.
func drawOperations(t *rapid.T, object []byte) (kind string, patch, after []byte) {
	name := func(what string) string {
		return Field(rapid.SampledFrom([]string{"a", "b", "metadata", "x/y", "x~y"}).Draw(t, what))
	}
	var all []map[string]any
	for range rapid.IntRange(1, 3).Draw(t, "operations") {
		op := rapid.SampledFrom([]string{"add", "remove", "replace", "move", "copy"}).Draw(t, "op")
		all = append(all, map[string]any{"op": op, "path": name("path"), "from": name("from"), "value": "3"})
	}
	patch = must.Get(json.Marshal(all)).Or(t)
	after, err := must.Get(jsonpatch.DecodePatch(patch)).Or(t).Apply(object)
	if err != nil {
		t.Skip("there is nothing to change there")
	}
	return jsonPatch, patch, after
}

// No patch ends the program, and none is taken for one without fields that is not.
func FuzzChanged(f *testing.F) {
	f.Add("patch", mergePatch, []byte(`{"a":{"b":1}}`))
	f.Add("patch", jsonPatch, []byte(`[{"op":"add","path":"/a"}]`))
	f.Add("delete", "application/json", []byte(`{"preconditions":{"uid":"u"}}`))
	f.Fuzz(func(t *testing.T, verb, contentType string, body []byte) {
		c, err := changed(verb, contentType, body)
		if err == nil {
			err = c.within(Write{Fields: []string{"/none"}})
		}
		if len(c.fields) > 0 && !errors.Is(err, ErrUndeclared) {
			t.Errorf("%s: %v", body, err)
		}
	})
}
