// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"strings"
	"sync"
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

	mu   sync.Mutex // guards what follows; requests that come meanwhile wait for the same check
	open bool
}

// pass makes the check unless it has succeeded.
func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open || g.check == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, longestCheck) // the answer must come before the caller gives up
	defer cancel()
	err := g.check(ctx)
	g.open = err == nil
	return err
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
