// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// shop is a description of something simple.
const shop = `{
  "openapi": "3.0.0", "info": {"title": "shop", "version": "1"},
  "paths": {
    "/v2/things": {
      "get": {
        "parameters": [{"name": "page", "in": "query", "schema": {"type": "integer", "minimum": 1}}],
        "responses": {"200": {"description": "", "content": {"application/json": {"schema": {"type": "object", "required": ["things"], "properties": {
          "things": {"type": "array", "items": {"allOf": [
            {"type": "object", "properties": {"name": {"type": "string"}}}, {"type": "object", "properties": {"size": {"type": "integer"}}}
          ]}},
          "labels": {"type": "object", "additionalProperties": {"type": "string"}}
        }}}}}}
      },
      "post": {
        "requestBody": {"required": true, "content": {"application/json": {"schema": {"type": "object", "properties": {
          "name": {"type": "string"}, "id": {"type": "string", "readOnly": true}
        }}}}},
        "responses": {"204": {"description": ""}, "default": {"description": "", "content": {"application/json": {"schema": {
          "type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}
        }}}}}
      }
    },
    "/v2/others": {"get": {"responses": {"204": {"description": ""}}}}
  }
}`

func exchange(method, location, request string, status int, response string) Exchange {
	parsed, _ := url.Parse("https://shop" + location)
	return Exchange{
		Method: method, URL: parsed, RequestHeader: http.Header{"Content-Type": {"application/json"}}, RequestBody: []byte(request), Status: status,
		ResponseHeader: http.Header{"Content-Type": {"application/json"}}, ResponseBody: []byte(response),
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()
	d := must.Get(Load([]byte(shop), []string{"/v2/things"}, nil)).Or(t)
	for name, c := range map[string]struct {
		exchange Exchange
		wrong    string // empty: nothing is
	}{
		"a good list":              {exchange("GET", "/v2/things?page=1", "", 200, `{"things":[{"name":"a","size":1}],"labels":{"any":"thing"}}`), ""},
		"a wrong type":             {exchange("GET", "/v2/things", "", 200, `{"things":[{"size":"big"}]}`), "/size: value must be an integer"},
		"an unknown field":         {exchange("GET", "/v2/things", "", 200, `{"things":[{"name":"a","sise":1}]}`), "does not name: things[].sise"},
		"a missing field":          {exchange("GET", "/v2/things", "", 200, `{}`), "things"},
		"an unknown parameter":     {exchange("GET", "/v2/things?pages=1", "", 200, `{"things":[]}`), "query parameters that the description does not name: pages"},
		"a wrong parameter":        {exchange("GET", "/v2/things?page=0", "", 200, `{"things":[]}`), "page"},
		"an undocumented status":   {exchange("GET", "/v2/things", "", 201, ""), "status is not supported"},
		"no JSON":                  {exchange("GET", "/v2/things", "", 200, `{"things"`), "not JSON"},
		"a good request":           {exchange("POST", "/v2/things", `{"name":"a"}`, 204, ""), ""},
		"a read-only field":        {exchange("POST", "/v2/things", `{"id":"a"}`, 204, ""), "id"},
		"an unknown field sent":    {exchange("POST", "/v2/things", `{"nam":"a"}`, 204, ""), "does not name: nam"},
		"a refused bad request":    {exchange("POST", "/v2/things", `{"nam":"a"}`, 422, `{"id":"x"}`), ""},
		"a wrong refusal":          {exchange("POST", "/v2/things", `{"nam":"a"}`, 422, `{"error":"x"}`), "id"},
		"a body that is too much":  {exchange("POST", "/v2/things", `{"name":"a"}`, 204, `{}`), "the description has none"},
		"a path that was not kept": {exchange("GET", "/v2/others", "", 204, ""), "is not in the description"},
		"an unknown path refused":  {exchange("GET", "/v2/nothing", "", 404, "{}"), ""},
	} {
		var all []string
		for _, err := range d.Check(c.exchange) {
			all = append(all, err.Error())
		}
		got := strings.Join(all, "; ")
		if (got == "") != (c.wrong == "") || !strings.Contains(got, c.wrong) {
			t.Errorf("%s: %q, not %q", name, got, c.wrong)
		}
	}
}

func TestLoadRefuses(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		data string
		path string
	}{
		"has no path /v2/none": {shop, "/v2/none"}, "reading the OpenAPI description": {"{", "/v2/things"},
		"reading the paths": {`{"paths":1}`, "/v2/things"}, "loading the OpenAPI": {`{"openapi":3,"paths":{}}`, ""},
	} {
		var paths []string
		if c.path != "" {
			paths = []string{c.path}
		}
		if _, err := Load([]byte(c.data), paths, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

func TestMiddlewareReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	d := must.Get(Load([]byte(shop), []string{"/v2/things"}, nil)).Or(t)
	var reported []error
	handler := d.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/cut" {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"things":[{"paint":"red"}]}`))
	}), func(e Exchange, wrong []error) {
		if e.Method != http.MethodGet || e.Status != http.StatusOK {
			t.Errorf("exchange: %+v", e)
		}
		reported = append(reported, wrong...)
	})
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v2/things", nil))
	if len(reported) != 1 || !strings.Contains(w.Body.String(), "paint") {
		t.Errorf("reported: %v, answered: %s", reported, w.Body)
	}
	defer func() {
		if recover() == nil || len(reported) != 1 {
			t.Errorf("a cut connection was reported, or did not pass through: %v", reported)
		}
	}()
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/cut", nil))
}
