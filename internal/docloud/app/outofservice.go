// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/docloud/shutdowns"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// outOfServiceOptions are the flags about machines that are off.
type outOfServiceOptions struct {
	enabled bool
	grace   time.Duration
}

// shortestGrace is the least that the grace period may be: a kubelet renews its Lease every ten seconds.
const shortestGrace = 15 * time.Second

func (o *outOfServiceOptions) addFlags(flags *pflag.FlagSet) {
	flags.BoolVar(&o.enabled, "out-of-service-taint", false,
		"Set the taint node.kubernetes.io/out-of-service on Nodes that are not ready whose droplets are off or gone, so that their Pods are deleted and their volumes "+
			"detached, and remove it when they are back. Without it no taint is set; one that was set before is still removed.")
	flags.DurationVar(&o.grace, "out-of-service-grace-period", outofservice.DefaultConfig().Grace,
		"How long a kubelet must not have renewed its Lease before its Node, once it is not ready, gets the taint of --out-of-service-taint. At least 15s.")
}

func (o *outOfServiceOptions) check() error {
	if o.grace < shortestGrace {
		return fmt.Errorf("--out-of-service-grace-period is %s: it must be at least %s, since a kubelet renews its Lease every ten seconds", o.grace, shortestGrace)
	}
	return nil
}

// controller returns the controller of the taint, for which Nodes of machines that are gone wait.
func (o *outOfServiceOptions) controller(client *doapi.Client, instances *machines.Instances, gate *reconcile.Gate, mode outputs.Mode, log logr.Logger, registry prometheus.Registerer) *shutdowns.Controller {
	config := outofservice.DefaultConfig()
	config.Grace = o.grace
	c := shutdowns.New(shutdowns.Options{
		API: client, Surroundings: instances, Enabled: o.enabled, Config: config, Metrics: shutdowns.NewMetrics(registry), Clock: clock.RealClock{}, Log: log, Gate: gate, Mode: mode,
	})
	instances.Departing(c.Departing)
	return c
}
