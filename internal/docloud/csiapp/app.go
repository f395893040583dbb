// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/doapi/metadata"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging/plain"
)

// Component is the binary's name, in its metrics and user agent. It MUST NOT change.
const Component = "digitalocean-csi-driver"

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	o := &options{}
	command := &cobra.Command{
		Use:   Component,
		Short: "Create, attach and mount DigitalOcean's volumes for Kubernetes",
		Long: Component + " is a driver of the Container Storage Interface for DigitalOcean's block storage. With a token it is the controller, which creates, " +
			"attaches, resizes and copies volumes; without one it is the node plugin, which mounts them. It has the flags of csi-digitalocean.",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.complete(); err != nil {
				return o.withoutToken(err)
			}
			return o.withoutToken(run(c.Context(), o))
		},
	}
	o.addFlags(command.Flags())
	return command
}

// run serves until ctx ends.
func run(ctx context.Context, o *options) error {
	output := plain.NewHandler(os.Stderr, o.logging)
	log := logr.FromSlogHandler(output)
	plain.Install(output)
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), buildinfo.Get().Collector(Component),
	)
	metrics := csi.NewMetrics(registry)
	build := buildinfo.Get()
	identity := &csi.Identity{Name: o.driverName, Version: build.Version}
	gate := &gate{}
	server := grpc.NewServer(grpc.ChainUnaryInterceptor(metrics.Intercept(log), gate.intercept))
	spec.RegisterIdentityServer(server, identity)
	region := o.region
	var err error
	if region == "" {
		if region, err = metadata.ReadAtStart(ctx, o.metadataURL, metadata.Region, "--region"); err != nil {
			return err
		}
	}
	if o.controller() {
		err = addController(ctx, o, server, gate, region, metrics, registry, log)
	} else {
		err = addNode(ctx, o, server, region, log)
	}
	if err != nil {
		return err
	}
	log.Info("Starting", "version", build.Version, "commit", build.Commit, "driver", o.driverName, "region", region, "controller", o.controller())
	return serve(ctx, o, server, registry, log)
}

// errSettings is wrapped by what only another token or region cures.
var errSettings = errors.New("the driver cannot work with its settings")

// checkRegion checks the token and the region with one call.
func checkRegion(ctx context.Context, client *doapi.Client, region string, o *options) error {
	regions, err := client.Regions(ctx)
	if err != nil {
		return explain(err, o)
	}
	if !slices.Contains(regions, region) {
		slices.Sort(regions)
		return fmt.Errorf("%w: the region is %q, which DigitalOcean does not have: set --region to one of %s", errSettings, region, strings.Join(regions, ", "))
	}
	return nil
}

// ownDroplet returns a droplet of the cluster that shows whose account the token is of: the one that is set, or else the one
// that the controller runs on if that gave the region as well. It is 0 if none is known: a controller may run elsewhere.
func ownDroplet(ctx context.Context, o *options) (int, error) {
	text := o.dropletID
	if text == "" && o.region == "" {
		text, _ = metadata.Read(ctx, o.metadataURL, metadata.ID) // without it, droplets that requests name show it
	}
	if text == "" {
		return 0, nil
	}
	droplet, err := strconv.Atoi(text)
	if err != nil || droplet <= 0 {
		return 0, fmt.Errorf("the droplet's ID is %q: it must be a number, in --droplet-id and from the metadata service", text)
	}
	return droplet, nil
}

// checkAccount checks with one call that the token is of the account of a droplet, if one is known.
func checkAccount(ctx context.Context, client *doapi.Client, droplet int) error {
	if droplet == 0 {
		return nil
	}
	_, err := client.Droplet(ctx, droplet)
	if errors.Is(err, doapi.ErrNotFound) {
		return fmt.Errorf("%w: the token is of another account, which has no droplet %d of this cluster: check the token and --droplet-id",
			errSettings, droplet)
	}
	return nil // what else fails, such as a missing scope, proves nothing against the token
}

// addController adds the controller's service, and closes the gate before it until DigitalOcean's API has responded.
func addController(
	ctx context.Context, o *options, server *grpc.Server, gate *gate, region string, metrics *csi.Metrics, registry *prometheus.Registry, log logr.Logger,
) error {
	client, err := newClient(o, doapi.NewMetrics(registry))
	if err != nil {
		return err
	}
	droplet, err := ownDroplet(ctx, o)
	if err != nil {
		return err
	}
	gate.epoch = client.Epoch
	gate.check = func(ctx context.Context) error {
		if err := checkRegion(ctx, client, region, o); err != nil {
			return err
		}
		return checkAccount(ctx, client, droplet)
	}
	if err := gate.pass(ctx); errors.Is(err, errSettings) {
		return err
	} else if err != nil {
		log.Error(err, "DigitalOcean's API does not respond yet: requests get that as their answer until it does")
	}
	spec.RegisterControllerServer(server, csi.NewController(csi.ControllerOptions{
		API: client, Region: region, Droplet: droplet, Tag: o.tag, PollInterval: o.pollInterval, Clock: clock.RealClock{}, Log: log, Metrics: metrics,
	}))
	return nil
}

// addNode adds the node's service.
func addNode(ctx context.Context, o *options, server *grpc.Server, region string, log logr.Logger) error {
	if o.automountRule != "" {
		if err := os.Remove(o.automountRule); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("--remove-automount-rule: %w", err)
		}
	}
	droplet := o.dropletID
	if droplet == "" {
		var err error
		if droplet, err = metadata.ReadAtStart(ctx, o.metadataURL, metadata.ID, "--droplet-id"); err != nil {
			return err
		}
	}
	socket, err := socketPath(o.endpoint)
	if err != nil {
		return err
	}
	spec.RegisterNodeServer(server, csi.NewNode(csi.NodeOptions{
		Host: &blockdevice.Host{
			Links: o.links, Sysfs: o.sysfs, State: filepath.Dir(socket), Wait: o.linkWait, Clock: clock.RealClock{},
		},
		Droplet: droplet, Region: region, VolumeLimit: o.volumeLimit, Log: log,
	}))
	return nil
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
		return nil, fmt.Errorf("the DigitalOcean token in --token: %w", err)
	}
	client, err := doapi.New(doapi.Options{
		URL: o.url, Token: token, UserAgent: buildinfo.Get().UserAgent(Component), QPS: o.qps, Clock: clock.RealClock{}, Metrics: metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("--url: %w", err)
	}
	return client, nil
}

// explain makes one sentence of the first call's failure: what is wrong and what to do.
func explain(err error, o *options) error {
	switch {
	case errors.Is(err, doapi.ErrUnauthorized):
		return fmt.Errorf("%w: DigitalOcean does not accept the token, it is wrong, expired or revoked: %w", errSettings, err)
	case errors.Is(err, doapi.ErrForbidden):
		return fmt.Errorf("%w: the token lacks a scope, give it regions:read and those of block storage that the documentation lists: %w", errSettings, err)
	default:
		return fmt.Errorf("DigitalOcean's API at %s responds with an error, check the network and --url: %w", o.url, err)
	}
}
