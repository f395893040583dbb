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
	// longest bounds what is read of a response, in bytes.
	longest = 256
)

// Region returns the slug of the droplet's region, by one request to the service at the base URL.
func Region(ctx context.Context, base string) (string, error) {
	target, err := url.JoinPath(base, "metadata/v1/region")
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
	region := strings.TrimSpace(string(body))
	switch {
	case err != nil:
		return "", err
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("it responds with status %d", response.StatusCode)
	case region == "":
		return "", errors.New("its response is empty")
	}
	return region, nil
}
