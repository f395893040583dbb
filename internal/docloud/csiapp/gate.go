// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// gate lets requests to the controller through once a check has succeeded. Until then each request makes the check, and gets its
// sentence as the answer: the sidecars ask again and show it in an Event, where a process that ends would show nothing.
type gate struct {
	// check is nil where there is no controller.
	check func(ctx context.Context) error
	// epoch is that of the token, see [doapi.Client.Epoch]. A request writes nothing in another one than that in which it
	// began: what it has read may be another account's. It is nil where there is no controller.
	epoch func() uint64

	open     atomic.Bool
	checking singleflight.Group
}

// pass makes the check unless it has succeeded. A request that comes while another one makes it gets the same answer: if each
// waited for a check of its own, all but a few would wait in vain.
func (g *gate) pass(ctx context.Context) error {
	if g.check == nil || g.open.Load() {
		return nil
	}
	_, err, _ := g.checking.Do("", func() (any, error) {
		// The answer must come before callers give up; that one of them does is no answer for the others.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestCheck)
		defer cancel()
		err := g.check(ctx)
		if err == nil {
			g.open.Store(true)
		}
		return nil, err
	})
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
		ctx = outputs.Within(ctx, "driver", csi.Writes())
		if g.epoch != nil {
			ctx = outputs.Decided(ctx, g.epoch())
		}
	}
	return handle(ctx, request)
}
