// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package outputs compares what a controller writes with what it declares to write. It links no client, so that every
// adapter can ask it.
package outputs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// Systems that controllers write to.
const (
	// Kubernetes: the kind of a write is the resource with its group and its subresource, such as services/status or
	// leases.coordination.k8s.io, and the verb is that of RBAC.
	Kubernetes = "kubernetes"
	// DigitalOcean: the kind is the route with its identifiers replaced, such as v2/tags/{tag_id}/resources, and the
	// verb is the method.
	DigitalOcean = "digitalocean"
	// CalicoEtcd is Calico's datastore in etcd: the kind of a write is the resource as Calico's kubernetes datastore
	// calls it, such as ipamblocks, and the verb is put or delete.
	CalicoEtcd = "calico-etcd"
	// CoreEtcd is the etcd that tenants share: the kind of a write is the service of etcd's API, such as Auth, and the
	// verb its RPC, such as UserAdd.
	CoreEtcd = "core-etcd"
)

// Write is one kind of object that a controller writes.
type Write struct {
	System, Kind string
	Verbs        []string
	// Fields are what a patch or an update of an object in Kubernetes may change, each with what is in it, as [Field] has
	// them; nil is the whole object, which is then the controller's own.
	Fields []string
	// Bound has a patch or deletion in Kubernetes refused that names neither the UID nor the resourceVersion of its
	// object, so that it cannot be about another one of the same name.
	Bound bool
}

// Narrowed returns the writes, of which those of the same kinds and verbs as narrow ones are replaced by these.
func Narrowed(all []Write, narrow ...Write) (out []Write) {
	for _, w := range all {
		w.Verbs = slices.DeleteFunc(slices.Clone(w.Verbs), func(verb string) bool {
			return slices.ContainsFunc(narrow, func(n Write) bool {
				return n.System == w.System && n.Kind == w.Kind && slices.Contains(n.Verbs, verb)
			})
		})
		if len(w.Verbs) > 0 {
			out = append(out, w)
		}
	}
	return append(out, narrow...)
}

// ErrUndeclared means that a controller tried to write what is not among its Writes, which is a bug of this program.
// Nothing was written.
var ErrUndeclared = errors.New("the controller does not declare this write")

// ErrMoved means that the token was replaced or refused since a round began: what it was decided on may be about another
// account. Nothing was written.
var ErrMoved = errors.New("the token was replaced or refused meanwhile: whose the responses are is not certain")

// declared are the writes of the controller that a round is one of.
type declared struct {
	controller string
	writes     []Write
	// read are the objects that may be updated in part, in JSON as they were read last, by their path.
	read *sync.Map
}

type key struct{}

// Within returns the context of a round of a controller.
func Within(ctx context.Context, controller string, writes []Write) context.Context {
	return context.WithValue(ctx, key{}, declared{controller, writes, &sync.Map{}})
}

// Allowed returns the writes by which ctx allows one, or [ErrUndeclared]: none outside of a round, where there is no need
// of any. Adapters ask before each write.
func Allowed(ctx context.Context, system, kind, verb string) ([]Write, error) {
	o, inRound := ctx.Value(key{}).(declared)
	if !inRound {
		return nil, nil
	}
	by := slices.DeleteFunc(slices.Clone(o.writes), func(w Write) bool {
		return w.System != system || w.Kind != kind || !slices.Contains(w.Verbs, verb)
	})
	if len(by) == 0 {
		return nil, fmt.Errorf("%s: %s %s of %s: %w", o.controller, verb, kind, system, ErrUndeclared)
	}
	return by, nil
}

type decided struct{}

// Decided returns the context of what is decided in an epoch of a token. Its writes in another one are refused.
func Decided(ctx context.Context, epoch uint64) context.Context {
	return context.WithValue(ctx, decided{}, epoch)
}

// Current returns nil if ctx is of no round, or the epoch of the token that a write is about to use is the one in which
// the round decided, and [ErrMoved] otherwise: [ErrUndeclared] in a round that does not say by which token it decides.
// Adapters ask with the token in hand.
func Current(ctx context.Context, epoch uint64) error {
	was, known := ctx.Value(decided{}).(uint64)
	o, inRound := ctx.Value(key{}).(declared)
	switch {
	case known && was != epoch:
		return ErrMoved
	case inRound && !known:
		return fmt.Errorf("%s: no epoch of a token: %w", o.controller, ErrUndeclared)
	}
	return nil
}

// Guard returns a transport for clients of Kubernetes that sends no write that is not declared. It has the signature
// of [k8s.io/client-go/rest.Config.Wrap].
func Guard(next http.RoundTripper) http.RoundTripper { return guard{next: next} }

type guard struct {
	next    http.RoundTripper
	outside []Write // what is sent outside of rounds, nil for anything
}

// RoundTrip implements http.RoundTripper.
func (g guard) RoundTrip(r *http.Request) (*http.Response, error) {
	verb, writes := verbOf(r.Method)
	ctx := r.Context()
	if !writes {
		return g.send(r)
	}
	if _, inRound := ctx.Value(key{}).(declared); !inRound && g.outside != nil {
		ctx = Within(ctx, "outside of rounds", g.outside)
	}
	by, err := Allowed(ctx, Kubernetes, resource(r.URL.Path), verb)
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	if r, err = g.narrowed(verb, r, by); err != nil {
		return nil, err
	}
	return g.send(r)
}

// narrowed returns the request to send, if one of the writes covers what it changes.
func (g guard) narrowed(verb string, r *http.Request, by []Write) (*http.Request, error) {
	whole := func(w Write) bool { return w.Fields == nil && (verb == "update" || !w.Bound) }
	if len(by) == 0 || slices.ContainsFunc(by, whole) || verb == "create" {
		return r, nil
	}
	c, again, err := g.read(verb, r)
	if err != nil {
		return nil, err
	}
	for _, w := range by {
		if err = c.within(w); err == nil {
			return again, nil
		}
	}
	return nil, fmt.Errorf("%s %s: %w", verb, r.URL.Path, err)
}

// verbOf returns the verb of RBAC for a method that writes.
func verbOf(method string) (verb string, writes bool) {
	verb, writes = map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
	return verb, writes
}

// resource returns the kind of a write from the path of its URL: /api/VERSION/… or /apis/GROUP/VERSION/…, then
// namespaces/NAME/ or not, then RESOURCE/NAME/SUBRESOURCE. What comes first is of a proxy before the API server.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	for i, part := range parts {
		if part == "apis" || part == "api" && i+1 < len(parts) && parts[i+1] == "v1" {
			parts = parts[i:]
			break
		}
	}
	group := ""
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		group, parts = "."+parts[1], parts[3:]
	default:
		return path
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	kind := parts[0] + group
	if len(parts) > 2 {
		kind += "/" + parts[2]
	}
	return kind
}
