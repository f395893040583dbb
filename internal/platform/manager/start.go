// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

const (
	// askEvery is how often an API server that does not respond is asked again, and askPatience is how long one answer may take.
	askEvery    = 2 * time.Second
	askPatience = 10 * time.Second
	// stopPatience is how long a manager may take to end that has not got to where it would hold anything.
	stopPatience = 2 * time.Second
)

// awaitServer waits until the API server answers anything, so that a process which starts together with it, or while it is away, does not
// end over that. An answer that cannot be trusted is an error at once: that does not change by waiting. When ctx ends, the error wraps its cause.
func awaitServer(ctx context.Context, config *rest.Config, log logr.Logger, clock clock.Clock) error {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return fmt.Errorf("making a client for API server %s: %w", config.Host, err)
	}
	host, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return fmt.Errorf("API server %q: %w", config.Host, err)
	}
	for told := false; ; told = true {
		err := answers(ctx, client, host.JoinPath("version"))
		switch untrusted := (*tls.CertificateVerificationError)(nil); {
		case err == nil:
			return nil
		case errors.As(err, &untrusted):
			return fmt.Errorf("API server %s cannot be trusted: %w", config.Host, untrusted.Err)
		case !told:
			log.Info("Waiting for the API server", "host", config.Host, "because", err.Error())
		}
		timer := clock.NewTimer(askEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("API server %s did not respond until the end: %w (%w)", config.Host, err, context.Cause(ctx))
		case <-timer.C():
		}
	}
}

// answers reports whether a server answers at all: who asks, and for what, is for others to judge.
func answers(ctx context.Context, client *http.Client, address *url.URL) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), http.NoBody)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// Start runs until ctx ends. It is controller-runtime's, but ends also while an informer has not got its first list, as without the right to list:
// controller-runtime waits for that list for ever (pkg/manager, runnableGroup.Start). Nothing has been started by then that would have to
// end in order.
func (m *Manager) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- m.Manager.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	//nolint:contextcheck // ctx has ended
	if cachesSynced(context.Background(), m.GetCache()) == nil {
		return <-ended
	}
	timer := time.NewTimer(stopPatience)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return nil
	}
}
