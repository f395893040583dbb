// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package metadata reads the metadata service of the droplet that the program runs on.
package metadata

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

// DefaultURL is where a droplet finds its metadata service.
const DefaultURL = "http://169.254.169.254/"

const (
	// timeout bounds one request: the service responds within milliseconds or not at all.
	timeout = 5 * time.Second
	// attempts is how often a program that starts asks: the service may not be reachable yet right after a droplet has booted.
	attempts = 3
	// longest bounds what is read of a response, in bytes.
	longest = 256
)

// Values of the service, by their path below metadata/v1 (https://docs.digitalocean.com/reference/api/metadata/).
const (
	// Region is the slug of the droplet's region.
	Region = "region"
	// ID is the droplet's number.
	ID = "id"
)

// ReadAtStart is [Read] for a program that starts, which asks three times. Its error says which setting to give instead.
func ReadAtStart(ctx context.Context, base, value, setting string) (string, error) {
	for attempt := 1; ; attempt++ {
		found, err := Read(ctx, base, value)
		if err == nil {
			return found, nil
		}
		if attempt == attempts || ctx.Err() != nil {
			return "", fmt.Errorf("%s is not set, and the metadata service at %s does not give the droplet's %s: %w; set %s if this does not run on a droplet",
				setting, base, value, err, setting)
		}
	}
}

// Read returns a value of the droplet, by one request to the service at the base URL. An empty value is an error.
func Read(ctx context.Context, base, value string) (string, error) {
	target, err := url.JoinPath(base, "metadata/v1", value)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err // the caller names the URL
		}
		return "", err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, longest))
	found := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it responds with status %d", response.StatusCode)
	case found == "":
		return "", errors.New("its response is empty")
	}
	return found, nil
}
