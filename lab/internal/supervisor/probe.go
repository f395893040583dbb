// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package supervisor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

const (
	probeInterval = 100 * time.Millisecond
	probeTimeout  = 3 * time.Second
)

// prepareProbe removes what an earlier run of the process left behind.
func prepareProbe(ready blueprint.Readiness) {
	if ready.File != "" {
		if err := os.Remove(ready.File); err != nil && !errors.Is(err, fs.ErrNotExist) {
			// The folder is ours and writable; if it no longer is, starting the process fails with a better message.
			return
		}
	}
}

// probe returns nil once the process is ready, or the context's error.
func probe(ctx context.Context, ready blueprint.Readiness) error {
	var ask func(context.Context) error
	switch {
	case ready.URL != "":
		ask = askURL(ready)
	case ready.File != "":
		ask = func(context.Context) error { _, err := os.Stat(ready.File); return err }
	default:
		select {
		case <-time.After(settleTime):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	for {
		if ask(ctx) == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// askURL makes a question that only the right server can answer: one with a certificate of the lab's authority.
func askURL(ready blueprint.Readiness) func(context.Context) error {
	return func(ctx context.Context) error {
		config, err := tlsConfig(ready)
		if err != nil {
			return err
		}
		transport := &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, ready.URL, nil)
		if err != nil {
			return err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		_, _ = io.Copy(io.Discard, response.Body)
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s answered %s", ready.URL, response.Status)
		}
		return nil
	}
}

func tlsConfig(ready blueprint.Readiness) (*tls.Config, error) {
	authority, err := os.ReadFile(ready.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(authority) {
		return nil, fmt.Errorf("%s holds no certificate", ready.CAFile)
	}
	config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	if ready.CertFile == "" {
		return config, nil
	}
	pair, err := tls.LoadX509KeyPair(ready.CertFile, ready.KeyFile)
	if err != nil {
		return nil, err
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}
