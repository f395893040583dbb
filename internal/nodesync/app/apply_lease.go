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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// errLeaseLost ends an apply that can no longer be sure to be alone.
var errLeaseLost = errors.New("the Lease could not be renewed in time, so a controller may have started: run apply again")

// lead takes the Lease of the controller. The returned context ends when the Lease is lost; release gives it back, and must be called after
// the last write. It returns an error, and has written nothing, if somebody holds the Lease.
func lead(ctx context.Context, config *rest.Config, o manager.Options, account *account) (led context.Context, release func(), err error) {
	lock, err := leaseLock(config, o)
	if err != nil {
		return nil, nil, err
	}
	name := lock.Describe()
	record, _, err := lock.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, nil, fmt.Errorf("reading Lease %s, which prevents apply and a controller from working at the same time: %w", name, err)
	case alive(*record, clock.RealClock{}.Now()):
		return nil, nil, heldError(name, *record)
	case record.HolderIdentity != "":
		account.warn(fmt.Sprintf("Lease %s was last renewed by %s at %s; waiting %s to be sure that it is no longer renewed",
			name, record.HolderIdentity, record.RenewTime.UTC().Format(time.RFC3339), o.LeaseDuration))
	}
	leading, ended := make(chan struct{}), make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: o.LeaseDuration, RenewDeadline: o.RenewDeadline, RetryPeriod: o.RetryPeriod, ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(leading) },
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("taking Lease %s: %w", name, err)
	}
	// A signal does not end it: the Lease is held until the write that has begun is done.
	electing, stop := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), logr.Discard()))
	led, lose := context.WithCancelCause(ctx)
	go func() {
		defer close(ended)
		elector.Run(electing)
		lose(errLeaseLost)
	}()
	release = func() { stop(); <-ended }
	// A holder that is gone is waited for as long as its Lease lasts, by our own clock from the first look on, and an API server may be slow.
	patience := clock.RealClock{}.NewTimer(3 * o.LeaseDuration)
	defer patience.Stop()
	select {
	case <-leading:
		return led, release, nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-patience.C():
		err = notTaken(context.WithoutCancel(ctx), lock)
	}
	release()
	return nil, nil, err
}

func leaseLock(config *rest.Config, o manager.Options) (*resourcelock.LeaseLock, error) {
	config = rest.CopyConfig(config)
	config.Timeout = max(o.RenewDeadline/2, time.Second) // one request that hangs must not cost the Lease
	client, err := coordinationv1client.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for the Lease: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the name of this machine, which identifies the holder of the Lease: %w", err)
	}
	return &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: o.Namespace(), Name: o.LeaderElectionID},
		Client:     client,
		LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_apply_" + string(uuid.NewUUID())},
	}, nil
}

// alive reports that the holder of a Lease has renewed it lately.
func alive(record resourcelock.LeaderElectionRecord, now time.Time) bool {
	end := record.RenewTime.Add(time.Duration(record.LeaseDurationSeconds) * time.Second)
	return record.HolderIdentity != "" && now.Before(end)
}

// heldError says who holds the Lease and what to do.
func heldError(name string, record resourcelock.LeaderElectionRecord) error {
	return fmt.Errorf("%s holds Lease %s and is running: let it do this, unless it runs with --mode=report, or stop it first (kubectl scale --replicas=0 for the controller's Deployment) "+
		"and run apply again", record.HolderIdentity, name)
}

// notTaken says why the Lease could not be taken in time.
func notTaken(ctx context.Context, lock *resourcelock.LeaseLock) error {
	record, _, err := lock.Get(ctx)
	switch {
	case err != nil:
		return fmt.Errorf("taking Lease %s: %w; it needs the rights to get, create and update leases there", lock.Describe(), err)
	case record.HolderIdentity == "" || record.HolderIdentity == lock.Identity():
		return fmt.Errorf("lease %s could not be taken: it needs the right to update it", lock.Describe())
	}
	return heldError(lock.Describe(), *record)
}
