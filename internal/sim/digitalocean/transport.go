// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// Transport returns a round tripper that reaches the simulator without a socket: a client in a synctest bubble can use it, and
// a thousand clients cost no ports. What the network would do to a request that is cut short is done here.
func (s *Simulator) Transport() http.RoundTripper { return InProcess(s.Handler()) }

// InProcess returns a round tripper that calls a handler in the caller's goroutine.
func InProcess(handler http.Handler) http.RoundTripper { return inProcess{handler} }

type inProcess struct{ handler http.Handler }

// RoundTrip serves a request. A handler that aborts before it answers is a connection that was reset; one that aborts later
// is a body that ends too early.
func (t inProcess) RoundTrip(r *http.Request) (*http.Response, error) {
	request := r.Clone(r.Context())
	request.RequestURI = r.URL.RequestURI()
	if request.Host == "" {
		request.Host = r.URL.Host
	}
	if request.Body == nil {
		request.Body = http.NoBody
	}
	defer func() { _ = request.Body.Close() }()
	w := &recorder{header: http.Header{}}
	aborted := w.run(t.handler, request)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if w.status == 0 {
		if aborted {
			return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		}
		w.status = http.StatusOK
	}
	var body io.Reader = bytes.NewReader(w.body.Bytes())
	if aborted {
		body = io.MultiReader(body, failing{io.ErrUnexpectedEOF})
	}
	return &http.Response{
		Status: fmt.Sprintf("%d %s", w.status, http.StatusText(w.status)), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.header, Body: io.NopCloser(body), ContentLength: -1, Request: r,
	}, nil
}

// recorder keeps a response until its handler is done.
type recorder struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the headers that the handler sets.
func (w *recorder) Header() http.Header { return w.header }

// WriteHeader keeps the first status; headers that are set later are lost, as on a wire.
func (w *recorder) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		w.header = w.header.Clone()
	}
}

// Write keeps the bytes.
func (w *recorder) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// run calls the handler and reports whether it aborted.
func (w *recorder) run(handler http.Handler, r *http.Request) (aborted bool) {
	defer func() {
		switch cause := recover(); cause {
		case nil:
		case http.ErrAbortHandler:
			aborted = true
		default:
			panic(cause)
		}
	}()
	handler.ServeHTTP(w, r)
	return false
}

type failing struct{ err error }

// Read fails.
func (f failing) Read([]byte) (int, error) { return 0, f.err }
