// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/logging/logrusbridge"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
)

// leaseName is the Lease that replicas compete for. MUST NOT change: two versions with different Leases would both lead.
const leaseName = "calico-route-reflector-operator.bgp.mooring.dev"

// options are the operator's flags.
type options struct {
	manager manager.Options
	logging logging.Options
	timing  controller.Timing
}

func newOptions() *options {
	return &options{manager: manager.DefaultOptions(leaseName), timing: controller.DefaultTiming()}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.manager.AddFlags(fs)
	o.addOldFlags(fs)
	o.logging.AddFlags(fs)
	fs.DurationVar(&o.timing.Settle, "settle-period", o.timing.Settle,
		"How long confd and BIRD are given to take up a change before reflectors are asked for their sessions; 1s to 5m.")
	fs.DurationVar(&o.timing.Coalesce, "coalesce-period", o.timing.Coalesce, "How long events are collected before a plan is made; 10ms to 1m.")
	fs.DurationVar(&o.timing.Resync, "resync-period", o.timing.Resync,
		"The time between plans while nothing happens, from what is in memory; 1s to 1h.")
}

func (o *options) validate() error {
	for _, d := range []struct {
		flag        string
		is          time.Duration
		least, most time.Duration
	}{
		{"--settle-period", o.timing.Settle, time.Second, 5 * time.Minute},
		{"--coalesce-period", o.timing.Coalesce, 10 * time.Millisecond, time.Minute},
		{"--resync-period", o.timing.Resync, time.Second, time.Hour},
	} {
		if d.is < d.least || d.is > d.most {
			return fmt.Errorf("%s %s: must be from %s to %s", d.flag, d.is, d.least, d.most)
		}
	}
	if err := o.logging.Validate(); err != nil {
		return err
	}
	return o.manager.Validate()
}

// operate runs the operator until the context ends.
func operate(ctx context.Context, o *options) error {
	if err := o.validate(); err != nil {
		return err
	}
	if _, err := datastore(os.Getenv); err != nil {
		return err
	}
	handler := logging.NewHandler(os.Stderr, o.logging)
	log := logging.Install(handler, o.logging)
	logrusbridge.Install(logrus.StandardLogger(), handler) //nolint:contextcheck // it sets up, nothing there can be canceled
	config, err := o.manager.RESTConfig(buildinfo.Get().UserAgent(Component))
	if err != nil {
		return err
	}
	if err := o.endpoint(os.Getenv, config); err != nil {
		return err
	}
	bgp, err := calico.OpenBGP(ctx, config)
	if err != nil {
		return err
	}
	scheme, err := newScheme(bgp)
	if err != nil {
		return err
	}
	if err := controller.Preflight(ctx, config, scheme); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mgr, err := newManager(ctx, o, log, config, scheme)
	if err != nil {
		return err
	}
	if err := addReconciler(mgr, bgp, o, stop); err != nil {
		return err
	}
	build := buildinfo.Get()
	log.Info("Starting", "version", build.Version, "commit", build.Commit, "calicoGroup", bgp.Group().String())
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	if cause := context.Cause(ctx); errors.Is(cause, calico.ErrGroupMoved) {
		return cause
	}
	log.Info("Stopped")
	return nil
}

func newScheme(bgp *calico.BGPKubernetes) (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, err
	}
	bgp.AddToScheme(scheme)
	return scheme, nil
}

func newManager(ctx context.Context, o *options, log logr.Logger, config *rest.Config, scheme *runtime.Scheme) (*manager.Manager, error) {
	return manager.New(ctx, o.manager, config, manager.Config{
		Component: Component, Logger: log, Scheme: scheme, Cache: controller.CacheOptions(), Informers: controller.Informers(),
	})
}

func addReconciler(mgr *manager.Manager, bgp *calico.BGPKubernetes, o *options, stop context.CancelCauseFunc) error {
	client, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making a client for pods: %w", err)
	}
	workloads := controller.NewWorkloads(client)
	if err := mgr.Add(workloads); err != nil {
		return err
	}
	if err := o.addSeeder(mgr, client, mgr.GetLogger()); err != nil {
		return err
	}
	err = mgr.Readiness.Add("calico-datastore", func(ctx context.Context) error {
		_, err := bgp.DatastoreReady(ctx) // that it is not ready for writes is a condition of topologies, not of the process
		return err
	})
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Calico: bgp, Workloads: workloads,
		Events: mgr.GetEventRecorder(Component), Metrics: controller.NewMetrics(ctrlmetrics.Registry), Clock: clock.RealClock{},
		Timing: o.timing, Stop: func(err error) { stop(err) },
	}
	return r.SetupWithManager(mgr)
}
