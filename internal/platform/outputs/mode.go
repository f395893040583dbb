// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outputs

import (
	"fmt"
	"net/http"
	"strings"
)

// Mode is what a program does with its plans, as its flag --mode names it. The values are a contract with users and
// MUST NOT change.
type Mode string

const (
	// Enforce applies plans.
	Enforce Mode = "enforce"
	// Report logs plans, and writes nothing but the program's own Leases.
	Report Mode = "report"
	// ModeUsage describes the flag.
	ModeUsage = "enforce, or report: plan and report, write nothing."
)

// Validate returns an error if the mode is unknown.
func (m Mode) Validate() error {
	if m != Enforce && m != Report {
		return fmt.Errorf("--mode %q is unknown: it must be %s or %s", m, Enforce, Report)
	}
	return nil
}

// Transport returns [Guard], which sends outside of rounds only what is listed, anything for nil. In mode report it
// returns what keeps all of a program from writing, in a round, outside of one or in a library. A create, an update and a
// patch become the API server's own dry run. A delete becomes a read of the object, since its options are in its body,
// where a dry run is easily lost. Both responses have the form that the caller expects. would is called with each write
// that is not an Event, and may be nil.
func (m Mode) Transport(outside []Write, would func(verb, path string)) func(http.RoundTripper) http.RoundTripper {
	if m != Report {
		return func(next http.RoundTripper) http.RoundTripper { return guard{next, outside} }
	}
	return func(next http.RoundTripper) http.RoundTripper { return rehearsal{next, would} }
}

type rehearsal struct {
	next  http.RoundTripper
	would func(verb, path string)
}

// RoundTrip implements http.RoundTripper.
func (h rehearsal) RoundTrip(r *http.Request) (*http.Response, error) {
	verb, writes := verbOf(r.Method)
	_, group, _ := strings.Cut(resource(r.URL.Path), ".")
	switch {
	case !writes, group == "coordination.k8s.io", group == "authentication.k8s.io", group == "authorization.k8s.io":
		return h.next.RoundTrip(r) // a read, an own Lease, or a review, which stores nothing
	case h.would != nil && !strings.Contains(r.URL.Path, "/events"):
		h.would(verb, r.URL.Path)
	}
	rehearsed := r.Clone(r.Context())
	query := rehearsed.URL.Query()
	query.Set("dryRun", "All")
	if rehearsed.URL.RawQuery = query.Encode(); r.Method == http.MethodDelete {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		rehearsed.Method, rehearsed.URL.RawQuery = http.MethodGet, ""
		rehearsed.Body, rehearsed.GetBody, rehearsed.ContentLength = nil, nil, 0
		rehearsed.Header.Del("Content-Type")
	}
	return h.next.RoundTrip(rehearsed)
}
