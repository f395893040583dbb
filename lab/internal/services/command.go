// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/names"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

// retryAfter is how long what could not be opened waits.
const retryAfter = time.Second

type options struct {
	kubeconfig, readyFile string
	logger                *slog.Logger
}

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	o := options{logger: slog.New(slog.NewTextHandler(os.Stderr, nil))}
	command := subcommand.Hidden(blueprint.Services, "Carry connections to Services and answer for their names", func(ctx context.Context) error { return o.run(ctx) })
	command.Flags().StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig with the rights of kube-proxy")
	command.Flags().StringVar(&o.readyFile, "ready-file", "", "file to write once the Services that there are work")
	return command
}

func (o options) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.kubeconfig, err)
	}
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	server, err := names.Listen(ctx, names.Address())
	if err != nil {
		return err
	}
	f := newFollower(ctx, api, server, o.logger)
	err = f.run(ctx, func() error { return os.WriteFile(o.readyFile, []byte("ready\n"), 0o600) })
	return errors.Join(err, server.Close())
}

// follower makes the ports and the names follow the API server.
type follower struct {
	factory  informers.SharedInformerFactory
	services corelisters.ServiceLister
	slices   discoverylisters.EndpointSliceLister
	synced   []cache.InformerSynced
	// changed holds a word if something has changed since it was last looked at.
	changed chan struct{}
	proxy   *proxy
	server  *names.Server
	logger  *slog.Logger
}

func newFollower(ctx context.Context, api kubernetes.Interface, server *names.Server, logger *slog.Logger) *follower {
	factory := informers.NewSharedInformerFactory(api, 0)
	services, endpointSlices := factory.Core().V1().Services(), factory.Discovery().V1().EndpointSlices()
	f := &follower{
		factory: factory, services: services.Lister(), slices: endpointSlices.Lister(), changed: make(chan struct{}, 1),
		proxy: newProxy(ctx), server: server, logger: logger,
	}
	for _, informer := range []cache.SharedIndexInformer{services.Informer(), endpointSlices.Informer()} {
		// The error says that the informer has ended, which it has not begun.
		registered, _ := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { f.change() }, UpdateFunc: func(any, any) { f.change() }, DeleteFunc: func(any) { f.change() },
		})
		f.synced = append(f.synced, informer.HasSynced, registered.HasSynced)
	}
	return f
}

func (f *follower) change() {
	select {
	case f.changed <- struct{}{}:
	default: // it is known already
	}
}

// run follows until ctx ends and calls ready once what there is at the beginning works.
func (f *follower) run(ctx context.Context, ready func() error) error {
	defer f.proxy.close()
	f.factory.StartWithContext(ctx)
	defer f.factory.Shutdown()
	if !cache.WaitForCacheSync(ctx.Done(), f.synced...) {
		return nil
	}
	f.change()
	for announced := false; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-f.changed:
		}
		if err := f.follow(); err != nil {
			f.logger.Warn("Not every Service works yet", "because", err)
			time.AfterFunc(retryAfter, f.change)
			continue
		}
		if announced {
			continue
		}
		announced = true
		if err := ready(); err != nil {
			return fmt.Errorf("saying that Services work: %w", err)
		}
	}
}

// follow looks at everything once.
func (f *follower) follow() error {
	services, err := f.services.List(labels.Everything())
	if err != nil {
		return err
	}
	all, err := f.slices.List(labels.Everything())
	if err != nil {
		return err
	}
	slicesOf := map[string][]*discoveryv1.EndpointSlice{}
	for _, slice := range all {
		if name := slice.Labels[discoveryv1.LabelServiceName]; name != "" {
			key := slice.Namespace + "/" + name
			slicesOf[key] = append(slicesOf[key], slice)
		}
	}
	f.server.Update(names.NewZone(services, slicesOf))
	return f.proxy.apply(plan(withoutOwn(services), slicesOf))
}

// withoutOwn leaves out the Service whose address is that of the server of names, which listens there itself.
func withoutOwn(services []*corev1.Service) []*corev1.Service {
	var others []*corev1.Service
	for _, service := range services {
		if service.Spec.ClusterIP != blueprint.NamesService {
			others = append(others, service)
		}
	}
	return others
}
