// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	_ "sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue" // has the metrics workqueue_* in the manager's registry
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// Component is the name of the program.
const Component = "etcd-storage-operator"

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	o := newOptions()
	root := &cobra.Command{
		Use:   Component,
		Short: "Give each tenant a part of one etcd: proxies, certificates, an etcd user, quota",
		Long: Component + " watches EtcdStorages. For each it runs proxies (etcd-storage-proxy) in its own namespace, signs and renews their certificates and " +
			"those of their clients, delivers the latter to the ConfigMaps and Secrets that the tenant names, and keeps a user in the core etcd that has only the tenant's rights.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return operate(cmd.Context(), o) },
	}
	o.addFlags(root.Flags())
	return root
}

// operate runs the operator until the context ends.
func operate(ctx context.Context, o *options) error {
	if err := o.validate(); err != nil {
		return err
	}
	log := logging.Install(logging.NewHandler(os.Stderr, o.logging), o.logging)
	config, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return err
	}
	config.Wrap(o.manager.Mode.Transport(nil, nil))
	scheme, err := controller.NewScheme()
	if err != nil {
		return err
	}
	live, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("asking API server %s: %w", config.Host, err)
	}
	if err := controller.Preflight(ctx, config, live, o.settings.Namespace); err != nil {
		return err
	}
	if o.settings.Cluster, o.settings.User, err = controller.Identity(ctx, live); err != nil {
		return err
	}
	mgr, err := newManager(ctx, o, log, config)
	if err != nil {
		return err
	}
	if err := addReconciler(mgr, o, log, live); err != nil {
		return err
	}
	build := buildinfo.Get()
	log.Info("Starting", "version", build.Version, "commit", build.Commit, "namespace", o.settings.Namespace, "user", o.settings.User)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	log.Info("Stopped")
	return nil
}

func newManager(ctx context.Context, o *options, log logr.Logger, config *rest.Config) (*manager.Manager, error) {
	scheme, err := controller.NewScheme()
	narrow, cacheErr := controller.CacheOptions(o.settings.Namespace)
	if err := errors.Join(err, cacheErr); err != nil {
		return nil, err
	}
	return manager.New(ctx, o.manager, config, manager.Config{
		Component: Component, Logger: log, Scheme: scheme, Cache: narrow, Informers: controller.Informers(),
	})
}

func addReconciler(mgr *manager.Manager, o *options, log logr.Logger, live client.Client) error {
	connection := &controller.Core{}
	if err := mgr.Add(connection); err != nil {
		return err
	}
	return controller.New(controller.Options{
		Reader: mgr.GetCache(), Client: live, Core: connection, Settings: o.settings, AdminSecret: o.adminSecret, Events: mgr.GetEventRecorder(Component),
		Metrics: controller.NewMetrics(ctrlmetrics.Registry), Clock: clock.RealClock{}, Log: log,
		Random: rand.Reader, Timing: o.timing, Mode: o.manager.Mode,
	}).SetupWithManager(mgr)
}
