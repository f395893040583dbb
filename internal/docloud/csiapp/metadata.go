// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

const (
	// metadataTimeout bounds one request to the metadata service, which responds within milliseconds or not at all.
	metadataTimeout = 5 * time.Second
	// metadataAttempts is how often it is queried: it may not be reachable yet right after a droplet has booted.
	metadataAttempts = 3
	// longestMetadata bounds what is read of its answer, in bytes.
	longestMetadata = 256
)

// askMetadata reads one value of the metadata service. The error says which flag to set instead.
func askMetadata(ctx context.Context, base, what, flag string) (string, error) {
	target, err := url.JoinPath(base, "metadata/v1", what)
	if err != nil {
		return "", fmt.Errorf("--metadata-url is %q: %w", base, err)
	}
	for attempt := 1; ; attempt++ {
		value, err := askMetadataOnce(ctx, target)
		if err == nil {
			return value, nil
		}
		if attempt == metadataAttempts || ctx.Err() != nil {
			return "", fmt.Errorf("%s is not set, and the metadata service at %s does not give the %s: %w; set %s if this does not run on a droplet",
				flag, base, what, err, flag)
		}
	}
}

func askMetadataOnce(ctx context.Context, target string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longestMetadata))
	value := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it responds with %d", response.StatusCode)
	case value == "":
		return "", errors.New("its response is empty")
	}
	return value, nil
}
