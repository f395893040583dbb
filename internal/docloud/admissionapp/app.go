// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/certreload"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// Component is the binary's name, in its metrics and user agent. It MUST NOT change.
const Component = "digitalocean-cloud-controller-manager-admission-server"

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   Component,
		Short: "Validate Services of type LoadBalancer for DigitalOcean",
		Long: Component + " is a validating webhook for Services of type LoadBalancer, at " + path + ". It refuses what the cloud controller manager " +
			"could not create, with the messages of its Events. With a token it also queries DigitalOcean, without changing anything. If it cannot decide, it allows the Service " +
			"with a warning. Settings of the cluster come from environment variables, the same as those of the cloud controller manager.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(c.Flags(), os.Getenv); err != nil {
				return o.withoutToken(err)
			}
			return o.withoutToken(run(c.Context(), o))
		},
	}
	o.addFlags(command.Flags())
	return command
}

// withoutToken returns the error without the token, should that be pasted into a variable whose value is shown.
func (o *options) withoutToken(err error) error {
	if err == nil || o.token == "" || !strings.Contains(err.Error(), o.token) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), o.token, "(the token)"))
}

func run(ctx context.Context, o *options) error {
	output := plain.NewHandler(os.Stderr, o.logging)
	log := logr.FromSlogHandler(output)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildinfo.Get().Collector(Component),
	)
	files, err := openFiles(o.certDir, log)
	if err != nil {
		return err
	}
	registry.MustRegister(files.Collector(servingCertificate))
	h := &handler{cluster: o.cluster, metrics: NewMetrics(registry), clock: clock.RealClock{}, log: log}
	where := newRegion(o.cluster.Region, o.metadataURL, log)
	if o.asks() {
		client, err := newClient(o, doapi.NewMetrics(registry))
		if err != nil {
			return err
		}
		h.ask = newAsker(client, where.current, o.askTimeout, clock.RealClock{}).answer
	}
	s, err := listenAll(ctx, o, files, h, registry, log)
	if err != nil {
		return err
	}
	plain.Install(output)
	build := buildinfo.Get()
	log.Info("Serving", "version", build.Version, "commit", build.Commit, "address", s.webhook.Addr().String(), "asksDigitalOcean", o.asks())

	// What is started here outlives the signal, since it serves while the program drains.
	alive, end := context.WithCancel(context.WithoutCancel(ctx))
	var helpers sync.WaitGroup
	helpers.Go(func() { _ = files.Run(alive) })
	if o.asks() {
		helpers.Go(func() { where.find(alive) })
	}
	err = s.run(ctx, o)
	end()
	helpers.Wait()
	log.Info("Stopped")
	return err
}

// openFiles reads the certificate, which is kept current from then on.
func openFiles(folder string, log logr.Logger) (*certreload.Reloader, error) {
	files := certreload.Files{Cert: filepath.Join(folder, "tls.crt"), Key: filepath.Join(folder, "tls.key")}
	reloader, err := certreload.New(files, certreload.Options{OnReload: func(err error) {
		if err != nil {
			log.Error(err, "The certificate cannot be used, keeping the previous one")
			return
		}
		log.Info("Loaded a new certificate")
	}})
	if err != nil {
		return nil, fmt.Errorf("--cert-dir %q must hold a certificate for the webhook's Service in tls.crt and its key in tls.key: %w", folder, err)
	}
	return reloader, nil
}

// newClient makes the client of DigitalOcean's API, and makes no call.
func newClient(o *options, metrics *doapi.Metrics) (*doapi.Client, error) {
	var token doapi.TokenSource = doapi.StaticToken(o.token)
	if o.tokenFile != "" {
		file, err := doapi.NewFileToken(o.tokenFile, clock.RealClock{})
		if err != nil {
			return nil, err
		}
		token = file
	} else if err := doapi.ValidateToken(o.token); err != nil {
		return nil, fmt.Errorf("the DigitalOcean token in %s: %w", envToken, err)
	}
	client, err := doapi.New(doapi.Options{
		URL: o.url, Token: token, UserAgent: buildinfo.Get().UserAgent(Component), QPS: o.qps, Clock: clock.RealClock{}, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	return client, nil
}
