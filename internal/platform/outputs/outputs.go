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
}

type key struct{}

// Within returns the context of a round of a controller.
func Within(ctx context.Context, controller string, writes []Write) context.Context {
	return context.WithValue(ctx, key{}, declared{controller, writes})
}

// Allowed returns nil if ctx is not that of a round, or its controller declares the write, and [ErrUndeclared]
// otherwise. Adapters ask before each write.
func Allowed(ctx context.Context, system, kind, verb string) error {
	o, inRound := ctx.Value(key{}).(declared)
	if !inRound || slices.ContainsFunc(o.writes, func(w Write) bool {
		return w.System == system && w.Kind == kind && slices.Contains(w.Verbs, verb)
	}) {
		return nil
	}
	return fmt.Errorf("%s: %s %s of %s: %w", o.controller, verb, kind, system, ErrUndeclared)
}

type decided struct{}

// Decided returns the context of what is decided in an epoch of a token. Its writes in another one are refused.
func Decided(ctx context.Context, epoch uint64) context.Context {
	return context.WithValue(ctx, decided{}, epoch)
}

// Current returns nil if ctx is not of [Decided], or the epoch of the token that a write is about to use is the one in
// which it was decided, and [ErrMoved] otherwise. Adapters ask with the token in hand.
func Current(ctx context.Context, epoch uint64) error {
	if was, known := ctx.Value(decided{}).(uint64); known && was != epoch {
		return ErrMoved
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
	if verb, writes := verbOf(r.Method); writes {
		ctx := r.Context()
		if _, inRound := ctx.Value(key{}).(declared); !inRound && g.outside != nil {
			ctx = Within(ctx, "outside of rounds", g.outside)
		}
		if err := Allowed(ctx, Kubernetes, resource(r.URL.Path), verb); err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
	}
	return g.next.RoundTrip(r)
}

// verbOf returns the verb of RBAC for a method that writes.
func verbOf(method string) (verb string, writes bool) {
	verb, writes = map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}[method]
	return verb, writes
}

// resource returns the kind of a write from the path of its URL: /api/VERSION/… or /apis/GROUP/VERSION/…, then
// namespaces/NAME/ or not, then RESOURCE/NAME/SUBRESOURCE.
func resource(path string) string {
	parts := strings.Split(strings.Trim(path, "/"), "/")
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
