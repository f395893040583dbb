// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package network is the process behind the lab's BGP network: it follows the machines of a lab and what Calico has given them, as the API
// server has it, with one machine of the fabric and one BGP speaker for each. It answers questions, and probes, on a Unix socket in its folder.
//
// It runs as root, or without root in a user namespace of its own; either way everything it makes ends with it.
package network

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// Options are what a network needs. All paths are absolute.
type Options struct {
	// Dir is the network's folder, Kubeconfig the administrator's, Machines the list of machines.
	Dir, Kubeconfig, Machines string
	// Datastore is Calico's, kubernetes or etcdv3. Where etcd is says the environment, by the names that Calico has for it.
	Datastore string
	// Templates is the folder of confd's templates, Bird and Bird6 are the paths of these programs.
	Templates, Bird, Bird6 string
	// PatchTemplates has the templates patched as kubectl mooring bird-templates does.
	PatchTemplates bool
	// ReadyFile is written once the speakers of the first machines run.
	ReadyFile string
	Logger    *slog.Logger
}

// Run builds the network and keeps it until ctx ends.
func Run(ctx context.Context, o Options) error {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return fmt.Errorf("making the folder: %w", err)
	}
	// The path of a socket may not be long, so that it is said from here.
	if err := os.Chdir(o.Dir); err != nil {
		return fmt.Errorf("entering the folder: %w", err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.Kubeconfig, err)
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	speakers, err := speaker.New(speaker.Config{
		Dir: o.Dir, Templates: o.Templates, Patch: o.PatchTemplates, Bird: o.Bird, Bird6: o.Bird6, Executable: executable, Logger: o.Logger,
		Datastore: o.environment(),
	})
	if err != nil {
		return err
	}
	f := &follower{Options: o, speakers: speakers}
	if f.fabric, err = fabric.New(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := errors.Join(f.watch(ctx, config), f.watchCalico(ctx)); err != nil {
		return errors.Join(err, f.close())
	}
	return errors.Join(f.serve(ctx), f.close())
}

// environment names Calico's datastore to confd.
func (o Options) environment() []string {
	out := []string{"DATASTORE_TYPE=" + o.Datastore}
	if o.Datastore == blueprint.DatastoreKubernetes {
		return append(out, "KUBECONFIG="+o.Kubeconfig)
	}
	for _, variable := range os.Environ() {
		if strings.HasPrefix(variable, "ETCD_") {
			out = append(out, variable)
		}
	}
	return out
}

// serve follows the machines and answers questions until ctx ends.
func (f *follower) serve(ctx context.Context) error {
	listener, err := listen(SocketName)
	if err != nil {
		return fmt.Errorf("listening on %s: %w", filepath.Join(f.Dir, SocketName), err)
	}
	s := &server{hosts: f.fabric.Hosts, processes: f.speakers.PIDs, pending: f.pending, probers: map[string]running{}}
	web := &http.Server{Handler: s.handler(), ReadHeaderTimeout: time.Minute}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		failed <- web.Serve(listener)
		cancel()
	}()
	err = f.run(ctx)
	_ = web.Close()
	if served := <-failed; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, fmt.Errorf("answering on the socket: %w", served))
	}
	return err
}
