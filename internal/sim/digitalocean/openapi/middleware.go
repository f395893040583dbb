// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
)

// Record returns a handler that does what next does and reports every exchange. A response that was cut is not reported.
func Record(next http.Handler, report func(Exchange)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		location := &url.URL{Scheme: "https", Host: "api.digitalocean.com", Path: r.URL.Path, RawQuery: r.URL.RawQuery}
		tee := &tee{ResponseWriter: w}
		next.ServeHTTP(tee, r) // a panic with http.ErrAbortHandler passes through: then there is nothing to report
		if tee.status == 0 {
			return
		}
		report(Exchange{
			Method: r.Method, URL: location, RequestHeader: r.Header.Clone(), RequestBody: body,
			Status: tee.status, ResponseHeader: tee.Header().Clone(), ResponseBody: tee.body.Bytes(),
		})
	})
}

// Middleware returns a handler that does what next does and reports what the description says is wrong with each exchange.
func (d *Description) Middleware(next http.Handler, report func(Exchange, []error)) http.Handler {
	return Record(next, func(e Exchange) {
		if wrong := d.Check(e); len(wrong) > 0 {
			report(e, wrong)
		}
	})
}

// tee keeps a copy of what is written.
type tee struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader passes the status on and keeps it.
func (t *tee) WriteHeader(status int) {
	if t.status == 0 {
		t.status = status
	}
	t.ResponseWriter.WriteHeader(status)
}

// Write passes the bytes on and keeps them.
func (t *tee) Write(b []byte) (int, error) {
	if t.status == 0 {
		t.status = http.StatusOK
	}
	t.body.Write(b)
	return t.ResponseWriter.Write(b)
}
