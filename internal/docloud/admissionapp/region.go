// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/docloud/doapi/metadata"
)

// metadataEvery is how long to wait between two requests to the metadata service.
const metadataEvery = 30 * time.Second

// region is the slug of the cluster's region, which the metadata service of the droplet tells if nobody else does. Requests do not wait for it.
type region struct {
	metadata string
	log      logr.Logger
	known    atomic.Pointer[string]
}

// newRegion knows the region at once if it is given.
func newRegion(given, metadata string, log logr.Logger) *region {
	r := &region{metadata: metadata, log: log}
	if given != "" {
		r.known.Store(&given)
	}
	return r
}

// current is the region, empty if it is not known.
func (r *region) current() string {
	if known := r.known.Load(); known != nil {
		return *known
	}
	return ""
}

// find asks the metadata service until it answers or ctx ends.
func (r *region) find(ctx context.Context) {
	for first := true; r.current() == ""; first = false {
		found, err := metadata.Read(ctx, r.metadata, metadata.Region)
		switch {
		case err == nil:
			r.known.Store(&found)
			r.log.Info("The metadata service reports the region", "region", found)
			return
		case ctx.Err() != nil:
			return
		case first:
			r.log.Info("The metadata service does not report the region: until it does, DigitalOcean is not queried about new load balancers; set "+envRegion, "error", err.Error())
		}
		timer := time.NewTimer(metadataEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}
