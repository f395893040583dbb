// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// gate lets requests to the controller through once a check has succeeded. Until then each request makes the check, and gets its
// sentence as the answer: the sidecars ask again and show it in an Event, where a process that ends would show nothing.
type gate struct {
	// check is nil where there is no controller.
	check func(ctx context.Context) error

	// checks counts the checks that have ended.
	checks atomic.Int64

	mu   sync.Mutex // guards what follows
	open bool
	err  error // of the last check
}

// pass makes the check unless it has succeeded. A request that comes while another one makes it gets the same answer: if each
// waited for a check of its own, all but a few would wait in vain.
func (g *gate) pass(ctx context.Context) error {
	before := g.checks.Load()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open || g.check == nil {
		return nil
	}
	if g.checks.Load() > before {
		return g.err
	}
	ctx, cancel := context.WithTimeout(ctx, longestCheck) // the answer must come before the caller gives up
	defer cancel()
	g.err = g.check(ctx)
	g.open = g.err == nil
	g.checks.Add(1)
	return g.err
}

// longestCheck is how long a check waits for DigitalOcean's response. Sidecars give up after ten seconds.
const longestCheck = 5 * time.Second

const (
	controllerMethods = "/csi.v1.Controller/"
	capabilities      = controllerMethods + "ControllerGetCapabilities"
)

// intercept is a gRPC interceptor.
func (g *gate) intercept(ctx context.Context, request any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	if strings.HasPrefix(info.FullMethod, controllerMethods) && info.FullMethod != capabilities {
		switch err := g.pass(ctx); {
		case errors.Is(err, errSettings):
			return nil, status.Error(codes.FailedPrecondition, err.Error())
		case err != nil:
			return nil, status.Error(codes.Unavailable, err.Error())
		}
	}
	return handle(ctx, request)
}
