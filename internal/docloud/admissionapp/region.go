// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
)

const (
	// metadataTimeout bounds one question to the metadata service, which answers within milliseconds or not at all.
	metadataTimeout = 5 * time.Second
	// metadataEvery is how long to wait between two.
	metadataEvery = 30 * time.Second
	// longestRegion bounds what is read of its answer, in bytes.
	longestRegion = 256
)

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
		found, err := askMetadata(ctx, r.metadata)
		switch {
		case err == nil:
			r.known.Store(&found)
			r.log.Info("The metadata service tells the region", "region", found)
			return
		case ctx.Err() != nil:
			return
		case first:
			r.log.Info("The region is not known: until it is, DigitalOcean is not asked about new load balancers; set "+envRegion, "error", err.Error())
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

func askMetadata(ctx context.Context, base string) (string, error) {
	target, err := url.JoinPath(base, "metadata/v1/region")
	if err != nil {
		return "", fmt.Errorf("%s is %q: %w", envMetadataURL, base, err)
	}
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestRegion))
	switch found := strings.TrimSpace(string(body)); {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("the metadata service answers %d", response.StatusCode)
	case found == "":
		return "", errors.New("the metadata service's answer is empty")
	default:
		return found, nil
	}
}
