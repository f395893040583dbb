// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package openapi judges exchanges between a client and the simulator by DigitalOcean's OpenAPI description.
//
// It is stricter than OpenAPI asks: a field or a query parameter that the description does not name is a violation, since that
// is how a misspelled field is found. What real clients send although the description lacks it is listed as a [Deviation], with
// the reason; nothing else passes.
//
// A request is judged only if it was accepted: what the simulator refuses may be as wrong as it likes.
package openapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
)

// Description is the part of an OpenAPI description that concerns the simulator.
type Description struct {
	operations []operation
}

type operation struct {
	segments []string
	route    *routers.Route
}

// Load reads a description in JSON and keeps the given paths ("/v2/droplets/{droplet_id}"); a path that is missing is an error.
// The deviations are written into it, so that what they allow is not a violation.
func Load(data []byte, paths []string, deviations []Deviation) (*Description, error) {
	var document map[string]json.RawMessage
	if err := json.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("reading the OpenAPI description: %w", err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(document["paths"], &all); err != nil {
		return nil, fmt.Errorf("reading the paths of the OpenAPI description: %w", err)
	}
	kept := map[string]json.RawMessage{}
	for _, path := range paths {
		item, found := all[path]
		if !found {
			return nil, fmt.Errorf("the OpenAPI description has no path %s", path)
		}
		kept[path] = item
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("encoding the paths of the OpenAPI description: %w", err)
	}
	document["paths"] = encoded
	if encoded, err = json.Marshal(document); err != nil {
		return nil, fmt.Errorf("encoding the OpenAPI description: %w", err)
	}
	spec, err := openapi3.NewLoader().LoadFromData(encoded)
	if err != nil {
		return nil, fmt.Errorf("loading the OpenAPI description: %w", err)
	}
	for _, deviation := range deviations {
		deviation.apply(editor{spec})
	}
	return describe(spec), nil
}

func describe(spec *openapi3.T) *Description {
	d := &Description{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			d.operations = append(d.operations, operation{
				segments: strings.Split(path, "/"),
				route:    &routers.Route{Spec: spec, Path: path, PathItem: item, Method: method, Operation: op},
			})
		}
	}
	return d
}

// Exchange is a request and its response.
type Exchange struct {
	Method         string
	URL            *url.URL
	RequestHeader  http.Header
	RequestBody    []byte
	Status         int
	ResponseHeader http.Header
	ResponseBody   []byte
}

// Check returns what is wrong with an exchange, nil if nothing is.
func (d *Description) Check(e Exchange) []error {
	op, params := d.find(e.Method, e.URL.Path)
	if op == nil {
		if e.Status == http.StatusNotFound {
			return nil
		}
		return []error{fmt.Errorf("%s %s is not in the description", e.Method, e.URL.Path)}
	}
	var wrong []error
	complain := func(part string, err error) {
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s %s: %s: %w", e.Method, op.route.Path, part, err))
		}
	}
	request, err := http.NewRequestWithContext(context.Background(), e.Method, e.URL.String(), bytes.NewReader(e.RequestBody))
	if err != nil {
		return []error{err}
	}
	request.Header = e.RequestHeader
	options := &openapi3filter.Options{
		AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true, MultiError: true, SkipSettingDefaults: true,
	}
	options.WithCustomSchemaErrorFunc(brief)
	input := &openapi3filter.RequestValidationInput{Request: request, PathParams: params, Route: op.route, Options: options}
	if e.Status < 300 {
		complain("request", openapi3filter.ValidateRequest(request.Context(), input))
		complain("request", unknownParameters(op.route, e.URL.Query()))
		complain("request", unknownFields(op.requestSchema(), e.RequestBody))
	}
	response := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: e.Status, Header: e.ResponseHeader, Options: options,
		Body: io.NopCloser(bytes.NewReader(e.ResponseBody)),
	}
	complain(fmt.Sprintf("response %d", e.Status), openapi3filter.ValidateResponse(request.Context(), response))
	complain(fmt.Sprintf("response %d", e.Status), unknownFields(op.responseSchema(e.Status), e.ResponseBody))
	return wrong
}

// brief says where and why without the schema, which is long.
func brief(err *openapi3.SchemaError) string {
	text := fmt.Sprintf("/%s: %s", strings.Join(err.JSONPointer(), "/"), err.Reason)
	if err.Origin != nil {
		text += ": " + err.Origin.Error()
	}
	return text
}

func (d *Description) find(method, path string) (*operation, map[string]string) {
	segments := strings.Split(path, "/")
	for i := range d.operations {
		op := &d.operations[i]
		if op.route.Method != method || len(op.segments) != len(segments) {
			continue
		}
		params := map[string]string{}
		matches := true
		for n, want := range op.segments {
			if strings.HasPrefix(want, "{") {
				params[strings.Trim(want, "{}")] = segments[n]
			} else {
				matches = matches && want == segments[n]
			}
		}
		if matches {
			return op, params
		}
	}
	return nil, nil
}

func (o *operation) requestSchema() *openapi3.Schema {
	if o.route.Operation.RequestBody == nil {
		return nil
	}
	return jsonSchema(o.route.Operation.RequestBody.Value.Content)
}

func (o *operation) responseSchema(status int) *openapi3.Schema {
	response := o.route.Operation.Responses.Status(status)
	if response == nil {
		response = o.route.Operation.Responses.Default()
	}
	if response == nil {
		return nil
	}
	return jsonSchema(response.Value.Content)
}

func jsonSchema(content openapi3.Content) *openapi3.Schema {
	if media := content.Get("application/json"); media != nil && media.Schema != nil {
		return media.Schema.Value
	}
	return nil
}

func unknownParameters(route *routers.Route, query url.Values) error {
	var unknown []string
	for name := range query {
		if route.Operation.Parameters.GetByInAndName("query", name) == nil && route.PathItem.Parameters.GetByInAndName("query", name) == nil {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	if len(unknown) > 0 {
		return fmt.Errorf("query parameters that the description does not name: %s", strings.Join(unknown, ", "))
	}
	return nil
}

// unknownFields returns an error that names every field that the description does not name.
func unknownFields(schema *openapi3.Schema, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	if schema == nil {
		return errors.New("there is a body, and the description has none")
	}
	var value any
	if err := json.Unmarshal(body, &value); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	unknown := map[string]bool{}
	walk([]*openapi3.Schema{schema}, value, "", unknown)
	if len(unknown) == 0 {
		return nil
	}
	var names []string
	for name := range unknown {
		names = append(names, name)
	}
	slices.Sort(names)
	return fmt.Errorf("fields that the description does not name: %s", strings.Join(names, ", "))
}

// walk visits a value with all schemas that may describe it.
func walk(schemas []*openapi3.Schema, value any, path string, unknown map[string]bool) {
	schemas = flatten(schemas)
	switch value := value.(type) {
	case map[string]any:
		for name, child := range value {
			below, open := children(schemas, name)
			if len(below) > 0 {
				walk(below, child, path+"."+name, unknown)
			} else if !open {
				unknown[strings.TrimPrefix(path+"."+name, ".")] = true
			}
		}
	case []any:
		var items []*openapi3.Schema
		for _, schema := range schemas {
			if schema.Items != nil {
				items = append(items, schema.Items.Value)
			}
		}
		for _, child := range value {
			walk(items, child, path+"[]", unknown)
		}
	}
}

// flatten returns the schemas and all that they are composed of.
func flatten(schemas []*openapi3.Schema) []*openapi3.Schema {
	var all []*openapi3.Schema
	for _, schema := range schemas {
		all = append(all, schema)
		for _, parts := range []openapi3.SchemaRefs{schema.AllOf, schema.OneOf, schema.AnyOf} {
			for _, part := range parts {
				all = append(all, flatten([]*openapi3.Schema{part.Value})...)
			}
		}
	}
	return all
}

// children returns the schemas of a property, and whether any name is allowed.
func children(schemas []*openapi3.Schema, name string) (below []*openapi3.Schema, open bool) {
	named := false
	for _, schema := range schemas {
		named = named || len(schema.Properties) > 0
		if property, found := schema.Properties[name]; found {
			below = append(below, property.Value)
		}
		if extra := schema.AdditionalProperties; extra.Schema != nil {
			below = append(below, extra.Schema.Value)
		} else if extra.Has != nil && *extra.Has {
			open = true
		}
	}
	return below, open || !named
}
