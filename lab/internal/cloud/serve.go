// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/ports"
)

// headerTimeout bounds how long a client may take for the header of its request.
const headerTimeout = 10 * time.Second

// servers are the three that listen.
type servers struct {
	servers   []*http.Server
	listeners []net.Listener
}

// listen opens the three ports. Only the metadata service is without TLS, as DigitalOcean's; only the administrator's interface asks for a
// certificate, as the API asks for a token.
func (o options) listen(ctx context.Context, sim *digitalocean.Simulator, logger *slog.Logger) (*servers, error) {
	pair, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	authority, err := os.ReadFile(o.clientCAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(authority)
	api := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	admin := api.Clone()
	admin.ClientCAs, admin.ClientAuth = clients, tls.RequireAndVerifyClientCert
	controlPlane := func(*http.Request) (account, droplet string, ok bool) { return Account, ControlPlane, true }
	s := &servers{}
	for _, part := range []struct {
		port    int
		handler http.Handler
		config  *tls.Config
	}{
		{o.apiPort, sim.Handler(), api},
		{o.metadataPort, sim.Metadata(controlPlane), nil},
		{o.adminPort, sim.AdminHandler(), admin},
	} {
		listener, err := ports.Listen(ctx, part.port)
		if err != nil {
			return nil, err
		}
		if part.config != nil {
			listener = tls.NewListener(listener, part.config)
		}
		s.add(listener, part.handler, logger)
	}
	if o.machinesAddress != "" {
		if err := o.listenToMachines(ctx, s, sim, api, logger); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *servers) add(listener net.Listener, handler http.Handler, logger *slog.Logger) {
	s.listeners = append(s.listeners, listener)
	s.servers = append(s.servers, &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
	})
}

// run serves until ctx ends.
func (s *servers) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		for _, server := range s.servers {
			_ = server.Close()
		}
	})
	defer stop()
	var group sync.WaitGroup
	errs := make([]error, len(s.servers))
	for i, server := range s.servers {
		group.Go(func() {
			if err := server.Serve(s.listeners[i]); !errors.Is(err, http.ErrServerClosed) {
				errs[i] = err
			}
		})
	}
	group.Wait()
	return errors.Join(errs...)
}
