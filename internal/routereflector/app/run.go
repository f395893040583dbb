// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/logging/logrusbridge"
	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
)

// leaseName is the Lease that replicas compete for. MUST NOT change: two versions with different Leases would both lead.
const leaseName = "calico-route-reflector-operator.bgp.mooring.dev"

// options are the operator's flags.
type options struct {
	manager manager.Options
	logging logging.Options
	timing  controller.Timing
	// datastore is Calico's, as the flag says it.
	datastore string
	// kubeletPort is the kubelets', 0 for no connections to them.
	kubeletPort int
}

func newOptions() *options {
	return &options{
		manager: manager.DefaultOptions(leaseName), timing: controller.DefaultTiming(), kubeletPort: controller.KubeletPort,
	}
}

func (o *options) addFlags(fs *pflag.FlagSet) {
	o.manager.AddFlags(fs)
	o.addOldFlags(fs)
	o.logging.AddFlags(fs)
	fs.StringVar(&o.datastore, "datastore-type", o.datastore,
		"Calico's datastore, kubernetes or etcdv3. Also DATASTORE_TYPE; etcd endpoints in ETCD_ENDPOINTS or CALICO_ETCD_ENDPOINTS mean etcdv3. "+
			"Without any of these: kubernetes.")
	fs.DurationVar(&o.timing.Settle, "settle-period", o.timing.Settle,
		"How long to wait for confd and BIRD after a change before the sessions of reflectors are read; 1s to 5m.")
	fs.DurationVar(&o.timing.Coalesce, "coalesce-period", o.timing.Coalesce, "How long events are collected before a plan is made; 10ms to 1m.")
	fs.DurationVar(&o.timing.Resync, "resync-period", o.timing.Resync,
		"The time between plans while nothing happens, and up to a fifth more, from the cache; 1s to 1h.")
	fs.IntVar(&o.kubeletPort, "kubelet-port", o.kubeletPort,
		"TCP port of the kubelets. While the Node of a reflector is unreachable, a connection to it every 3 seconds decides "+
			"whether its machine is; 0 for none.")
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
	if o.kubeletPort < 0 || o.kubeletPort > math.MaxUint16 {
		return fmt.Errorf("--kubelet-port %d: must be from 0 to %d", o.kubeletPort, math.MaxUint16)
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
	where, err := calico.ResolveOrKubernetes(o.datastore, os.LookupEnv)
	if err != nil {
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
	config.Wrap(o.manager.Mode.Transport(nil, nil))
	store, err := openDatastore(ctx, log, where, config)
	if err != nil {
		return err
	}
	defer func() { _ = store.close() }()
	if err := controller.Preflight(ctx, config, store.scheme, store.informers); err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	mgr, err := newManager(ctx, o, log, config, store)
	if err != nil {
		return err
	}
	if err := addReconciler(mgr, store, o, stop); err != nil {
		return err
	}
	build := buildinfo.Get()
	log.Info("Starting", append([]any{"version", build.Version, "commit", build.Commit}, store.told...)...)
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	if cause := context.Cause(ctx); errors.Is(cause, calico.ErrGroupMoved) {
		return cause
	}
	log.Info("Stopped")
	return nil
}

func newManager(ctx context.Context, o *options, log logr.Logger, config *rest.Config, store *datastore) (*manager.Manager, error) {
	return manager.New(ctx, o.manager, config, manager.Config{
		Component: Component, Logger: log, Scheme: store.scheme, Cache: store.cache, Informers: store.informers,
	})
}

func addReconciler(mgr *manager.Manager, store *datastore, o *options, stop context.CancelCauseFunc) error {
	client, err := kubernetes.NewForConfig(mgr.GetConfig())
	if err != nil {
		return fmt.Errorf("making a client for pods: %w", err)
	}
	workloads := controller.NewWorkloads(client)
	if err := mgr.Add(workloads); err != nil {
		return err
	}
	err = mgr.Readiness.Add("calico-datastore", func(ctx context.Context) error {
		_, err := store.ready(ctx) // that it is not ready for writes is a condition of topologies, not of the process
		return err
	})
	if err != nil {
		return err
	}
	served, err := store.serve(mgr)
	if err != nil {
		return err
	}
	if o.manager.Mode == outputs.Enforce {
		err = o.addSeeder(mgr, client, served)
	}
	if err != nil {
		return err
	}
	r := &controller.Reconciler{
		Mode:   o.manager.Mode,
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Calico: served, Workloads: workloads,
		Events: mgr.GetEventRecorder(Component), Metrics: controller.NewMetrics(ctrlmetrics.Registry), Clock: clock.RealClock{},
		Timing: o.timing, Stop: stop,
	}
	if o.kubeletPort > 0 {
		r.Kubelets = &controller.Kubelets{
			Port: o.kubeletPort, Pause: controller.KubeletPause, Clock: r.Clock, Dial: (&net.Dialer{}).DialContext,
		}
	}
	return r.SetupWithManager(mgr)
}
