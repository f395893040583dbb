// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// TestWaitingRequestsShareACheck: while the API is silent all requests get their answer when the first one gets it, and each
// of them alone would make a check of its own afterwards. A caller that gives up ends no check of others.
func TestWaitingRequestsShareACheck(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		checks, silent := 0, true
		g := &gate{check: func(ctx context.Context) error {
			checks++
			if silent {
				<-ctx.Done()
				return errors.New("DigitalOcean does not respond")
			}
			return nil
		}}
		begin := time.Now()
		first, giveUp := context.WithTimeout(t.Context(), time.Second)
		defer giveUp()
		var all sync.WaitGroup
		for i := range 50 {
			ctx := t.Context()
			if i == 0 {
				ctx = first
			}
			all.Go(func() {
				if err := g.pass(ctx); err == nil {
					t.Error("a request passed while nothing was checked")
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if took := time.Since(begin); checks != 1 || took != longestCheck {
			t.Errorf("%d checks for 50 requests at once, answered after %s", checks, took)
		}
		silent = false
		for range 3 {
			if err := g.pass(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if checks != 2 {
			t.Errorf("%d checks: one that succeeds is the last", checks)
		}
	})
}

// A request to the controller writes nothing with another token than the one with which it began.
func TestARequestWritesInItsEpoch(t *testing.T) {
	t.Parallel()
	epoch := uint64(1)
	g := &gate{epoch: func() uint64 { return epoch }}
	for _, name := range []string{"CreateVolume", "DeleteVolume"} {
		info := &grpc.UnaryServerInfo{FullMethod: controllerMethods + name}
		_, err := g.intercept(t.Context(), nil, info, func(ctx context.Context, _ any) (any, error) {
			if err := outputs.Current(ctx, epoch); err != nil {
				t.Errorf("%s, with the same token: %v", name, err)
			}
			epoch++ // another token
			return nil, outputs.Current(ctx, epoch)
		})
		if !errors.Is(err, outputs.ErrMoved) {
			t.Errorf("%s, with another token: %v", name, err)
		}
	}
}
