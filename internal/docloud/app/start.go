// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/doapi/metadata"
)

// startTimeout bounds what is asked of DigitalOcean before anything starts.
const startTimeout = 90 * time.Second

// newClient makes the client of DigitalOcean's API. Its error is one sentence.
func newClient(e environment, userAgent string, metrics *doapi.Metrics) (*doapi.Client, error) {
	var token doapi.TokenSource = doapi.StaticToken(strings.TrimSpace(e.token))
	if e.tokenFile != "" {
		file, err := doapi.NewFileToken(e.tokenFile, clock.RealClock{})
		if err != nil {
			return nil, err
		}
		token = file
	} else if err := doapi.ValidateToken(strings.TrimSpace(e.token)); err != nil {
		return nil, fmt.Errorf("the DigitalOcean token in %s: %w", envToken, err)
	}
	client, err := doapi.New(doapi.Options{
		URL: e.url, Token: token, UserAgent: userAgent, QPS: e.qps, Mode: e.mode, Clock: clock.RealClock{}, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	return client, nil
}

// cloud is what is asked of DigitalOcean before anything starts.
type cloud interface {
	// Regions returns the slugs of all regions.
	Regions(ctx context.Context) ([]string, error)
}

// findRegion returns the region of the cluster: REGION, or that of the droplet this runs on, if DigitalOcean has it. Like the upstream project it
// is the one call that must succeed before anything starts, so that a wrong token or URL is found at once. Its error is one sentence.
func findRegion(ctx context.Context, e environment, api cloud) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	region, from := e.region, envRegion
	if region == "" {
		var err error
		if region, err = metadata.ReadAtStart(ctx, e.metadataURL, metadata.Region, envRegion); err != nil {
			return "", err
		}
		from = "the metadata service's region"
	}
	regions, err := api.Regions(ctx)
	if err != nil {
		return "", explain(err, e)
	}
	if !slices.Contains(regions, region) {
		slices.Sort(regions)
		return "", fmt.Errorf("%s is %q, which DigitalOcean does not have: it must be one of %s", from, region, strings.Join(regions, ", "))
	}
	return region, nil
}

// explain makes one sentence of the first call's failure: what is wrong and what to do.
func explain(err error, e environment) error {
	where := envToken
	if e.tokenFile != "" {
		where = "file " + e.tokenFile
	}
	at := e.url
	if at == "" {
		at = doapi.DefaultURL
	}
	switch {
	case errors.Is(err, doapi.ErrUnauthorized):
		return fmt.Errorf("DigitalOcean does not accept the token in %s, it is wrong, expired or revoked: %w", where, err)
	case errors.Is(err, doapi.ErrForbidden):
		return fmt.Errorf("the token in %s lacks a scope, give it those that the documentation lists (account:read, regions:read, droplet:read, "+
			"load_balancer and certificate:read at least): %w", where, err)
	case errors.Is(err, doapi.ErrRateLimited):
		return fmt.Errorf("DigitalOcean's rate limit is used up for this token, by other programs, too; it resets within the hour: %w", err)
	default:
		return fmt.Errorf("DigitalOcean's API at %s responds with an error, check the network and %s: %w", at, envURL, err)
	}
}
