// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	cloudprovider "k8s.io/cloud-provider"
	framework "k8s.io/cloud-provider/app"
	frameworkconfig "k8s.io/cloud-provider/app/config"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	healthcheck "k8s.io/controller-manager/pkg/healthz"
	"k8s.io/controller-manager/pkg/leadermigration"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/platform/eventsign"
)

const (
	// drainTime bounds how long a write that is under way is waited for after SIGTERM. A Pod has 30 seconds by default.
	drainTime = 20 * time.Second
	// electionSlack is how long after its Lease has run out a leader counts as healthy, as in the framework.
	electionSlack = 20 * time.Second
	// electionCheck is the name of that check below /healthz, as in the framework.
	electionCheck = "leaderElection"
)

// supervise runs the framework until ctx ends: at once if nobody is to be elected, else as the leader.
//
// The framework's own election never gives the Lease back, so that with two replicas nobody leads for up to 15 seconds after each roll-out.
// So the framework is told not to elect, and the provider's Initialize, which it calls before it starts any controller, waits for our own
// election on the same Lease. A replica that waits serves /healthz and /metrics meanwhile, as it does with the framework's election.
//
// When ctx ends, the order is what makes giving the Lease back safe: no new write to DigitalOcean begins, those under way end, the
// controllers stop, and only then is the Lease released. Anyone who is not done in time does not release it.
func supervise(
	ctx context.Context, config *frameworkconfig.CompletedConfig, cloud *provider.Provider, transport func(http.RoundTripper) http.RoundTripper,
) error {
	if !config.ComponentConfig.Generic.LeaderElection.LeaderElect || leadermigration.Enabled(&config.ComponentConfig.Generic) {
		return superviseAlone(ctx, config, cloud, transport)
	}
	signer, err := eventsign.New()
	if err != nil {
		return err
	}
	watch := leaderelection.NewLeaderHealthzAdaptor(electionSlack)
	leading, lost := make(chan struct{}), make(chan struct{})
	elected, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	elector, err := newElector(elected, config, signer, watch, func(context.Context) { close(leading) })
	if err != nil {
		return err
	}
	watch.SetLeaderElection(elector)
	config.ComponentConfig.Generic.LeaderElection.LeaderElect = false

	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- runFramework(work, config, controllerClients{config.ClientBuilder, signer, transport}, &candidate{Provider: cloud, leading: leading}, watch)
	}()
	go func() {
		defer close(lost)
		elector.Run(elected)
	}()
	select {
	case err := <-failed:
		return err
	case <-lost:
		return errors.New("the leader's Lease was lost: another replica may lead by now")
	case <-ctx.Done():
	}
	drained := cloud.Drain(drainTime)
	stop()
	if !drained {
		klog.InfoS("A change at DigitalOcean is still under way, the leader's Lease is left to run out", "waited", drainTime)
		return nil
	}
	release()
	<-lost
	klog.InfoS("Stopped")
	return nil
}

// superviseAlone runs the framework without an election of ours until ctx ends and the writes to DigitalOcean that are under way have ended.
func superviseAlone(
	ctx context.Context, config *frameworkconfig.CompletedConfig, cloud *provider.Provider, transport func(http.RoundTripper) http.RoundTripper,
) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 1)
	go func() {
		failed <- runFramework(work, config, controllerClients{config.ClientBuilder, nil, transport}, cloud, nil)
	}()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	cloud.Drain(drainTime)
	klog.InfoS("Stopped")
	return nil
}

// newElector makes an elector that does as the framework's, but sees at once when the Lease is free, gives it back when its
// context ends, and publishes the signer's key on the Lease.
func newElector(
	ctx context.Context, config *frameworkconfig.CompletedConfig, signer *eventsign.Signer, watch *leaderelection.HealthzAdaptor,
	started func(context.Context),
) (*leaderelection.LeaderElector, error) {
	election := config.ComponentConfig.Generic.LeaderElection
	if least := time.Duration(leaderelection.JitterFactor * float64(election.RetryPeriod.Duration)); election.RenewDeadline.Duration <= least {
		return nil, fmt.Errorf("the flags of the leader election: --leader-elect-renew-deadline is %s, it must be more than 1.2 times "+
			"--leader-elect-retry-period, %s", election.RenewDeadline.Duration, election.RetryPeriod.Duration)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this replica: %w", err)
	}
	limited := rest.AddUserAgent(config.Kubeconfig, "leader-election")
	limited.Timeout = max(election.RenewDeadline.Duration/2, time.Second) // as the framework's
	calls, err := kubernetes.NewForConfig(limited)
	if err != nil {
		return nil, fmt.Errorf("the client of the leader election: %w", err)
	}
	lock, err := resourcelock.New(election.ResourceLock, election.ResourceNamespace, election.ResourceName, calls.CoreV1(),
		publishingLeases{calls.CoordinationV1(), signer},
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID()), EventRecorder: config.EventRecorder})
	if err != nil {
		return nil, fmt.Errorf("the flags of the leader election: %w", err)
	}
	client, err := kubernetes.NewForConfig(config.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("the client of the leader election: %w", err)
	}
	prompt := &promptLock{Interface: lock, every: election.RetryPeriod.Duration, clock: clock.RealClock{}}
	go prompt.follow(ctx, client.CoordinationV1(), election.ResourceNamespace, election.ResourceName)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: prompt, Name: election.ResourceName, WatchDog: watch, ReleaseOnCancel: true,
		LeaseDuration: election.LeaseDuration.Duration, RenewDeadline: election.RenewDeadline.Duration, RetryPeriod: min(electionTick, election.RetryPeriod.Duration),
		Callbacks: leaderelection.LeaderCallbacks{OnStartedLeading: started, OnStoppedLeading: func() {}},
	})
	if err != nil {
		return nil, fmt.Errorf("the flags of the leader election: %w", err)
	}
	return elector, nil
}

// runFramework runs the framework's controllers with these clients until ctx ends. watch is nil if nobody is elected here.
func runFramework(
	ctx context.Context, config *frameworkconfig.CompletedConfig, clients controllerClients, cloud cloudprovider.Interface,
	watch *leaderelection.HealthzAdaptor,
) error {
	config.ClientBuilder = clients
	initializers := framework.ConstructControllerInitializers(constructors(), config, cloud)
	if watch != nil {
		initializers[electionCheck] = func(context.Context, genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			return electionHealth{watch}, true, nil
		}
	}
	if err := framework.Run(config, cloud, initializers, map[string]framework.WebhookHandler{}, ctx.Done()); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// candidate is a provider that lets no controller start before it leads.
type candidate struct {
	*provider.Provider
	leading <-chan struct{}
}

// Initialize implements cloudprovider.Interface. It returns only on a leader: the process of any other ends while this still waits.
func (c *candidate) Initialize(clients cloudprovider.ControllerClientBuilder, stop <-chan struct{}) {
	<-c.leading
	c.Provider.Initialize(clients, stop)
}

// electionHealth shows below /healthz whether a leader still renews its Lease. It is a controller that does nothing, since the framework asks
// controllers alone.
type electionHealth struct {
	watch *leaderelection.HealthzAdaptor
}

// Name implements controller.Interface.
func (electionHealth) Name() string { return electionCheck }

// HealthChecker implements controller.HealthCheckable.
func (h electionHealth) HealthChecker() healthcheck.UnnamedHealthChecker { return h.watch }
