// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
	"github.com/mooring-dev/mooring/lab/internal/storage"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

const (
	// pollInterval is how often the list is read, restartPause how long a machine that could not be started or has ended by itself stays off.
	pollInterval = 200 * time.Millisecond
	restartPause = 2 * time.Second
	// callTimeout bounds one call to the API server.
	callTimeout = 10 * time.Second
)

type options struct {
	dir, bin, kubeconfig, apiServerPort, readyFile string
	images, wanted                                 []string
	archives                                       []image.Archive
	uninitialized, defaultHeartbeats               bool
	disks                                          string
}

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	var o options
	command := subcommand.Hidden(blueprint.RealNodes, "Run real machines", func(ctx context.Context) error { return o.run(ctx) })
	flags := command.Flags()
	flags.StringVar(&o.dir, "lab-dir", "", "folder of the lab")
	flags.StringVar(&o.bin, "bin", "", "folder of the programs that run on machines")
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig with which to see whether machines are up")
	flags.StringVar(&o.apiServerPort, "apiserver-port", "", "port of the API server")
	flags.StringVar(&o.readyFile, "ready-file", "", "file to write once all real machines are up")
	flags.BoolVar(&o.uninitialized, "uninitialized", false, "count machines as up before a cloud controller manager has initialized their Nodes")
	flags.BoolVar(&o.defaultHeartbeats, "default-heartbeats", false, "let kubelets renew their Leases as by Kubernetes' defaults, not twice as often")
	flags.StringArrayVar(&o.wanted, "image", nil, "NAME or NAME=/PATH of an image for all machines, to make of a program; may be repeated")
	flags.StringArrayVar(&o.images, "image-archive", nil, "archive of an image for all machines; may be repeated")
	flags.StringVar(&o.disks, "disks", "", "folder of the simulated cloud's disks; with it machines see their volumes, and have the images of their driver")
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
	layout := blueprint.Layout{Dir: o.dir}
	if o.archives, err = o.makeImages(layout.Data("images")); err != nil {
		return err
	}
	// Groups of a run that was killed; nothing of it runs any more.
	if err := cgroup.Remove(ctx, cgroup.Root(o.dir)); err != nil {
		return err
	}
	if o.disks != "" {
		more, err := storage.MakeImages(o.bin, layout.Data("images"))
		if err != nil {
			return err
		}
		o.archives = append(o.archives, more...)
	}
	m := &manager{
		options: o, api: api, hosts: map[string]*host{}, after: map[string]time.Time{}, logger: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	m.follow(ctx)
	return errors.Join(m.stopAll(), cgroup.Remove(context.WithoutCancel(ctx), cgroup.Root(o.dir)))
}

// makeImages makes the archives of all images, in a folder.
func (o options) makeImages(dir string) ([]image.Archive, error) {
	var wanted []image.Image
	for _, text := range o.wanted {
		i, err := image.Parse(text, o.bin)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, i)
	}
	archives, err := image.Make(o.bin, dir, wanted)
	if err != nil {
		return nil, err
	}
	for _, file := range o.images {
		archive, err := image.Find(file)
		if err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// manager makes what runs agree with the list of machines. Only the goroutine of follow uses it.
type manager struct {
	options
	api    kubernetes.Interface
	hosts  map[string]*host
	after  map[string]time.Time // before which a machine is not started again
	logger *slog.Logger
}

// follow compares until ctx ends.
func (m *manager) follow(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	announced := false
	for {
		list, err := machines.Load(blueprint.Layout{Dir: m.dir}.MachinesFile())
		if err != nil {
			m.logger.Error("The list of machines cannot be read", "error", err) // nothing is known, so nothing is done
		} else {
			m.compare(ctx, list)
			if !announced && m.up(ctx, list) {
				announced = os.WriteFile(m.readyFile, []byte("ready\n"), 0o600) == nil
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// compare makes what runs agree with the list.
func (m *manager) compare(ctx context.Context, list machines.List) {
	for name, h := range m.hosts {
		wanted, ok := list.Find(name)
		same := ok && wanted.Same(h.Machine)
		if same && wanted.State != machines.Off && h.runs() {
			continue
		}
		if !h.runs() {
			m.logger.Error("Machine ended by itself; it boots again", "machine", name, "log", filepath.Join(blueprint.Layout{Dir: m.dir}.RealNode(name), "logs"))
			m.after[name] = time.Now().Add(restartPause)
		}
		m.end(ctx, h)
		if !same {
			m.erase(name)
		}
	}
	m.discard(list)
	for _, wanted := range list.Machines {
		if !wanted.Real || wanted.State == machines.Off || time.Now().Before(m.after[wanted.Name]) {
			continue
		}
		if err := m.ensure(ctx, wanted); err != nil {
			m.logger.Error("Machine does not start", "machine", wanted.Name, "error", err)
			m.after[wanted.Name] = time.Now().Add(restartPause)
		}
	}
}

// ensure starts a machine that does not run, and connects or cuts its cable.
func (m *manager) ensure(ctx context.Context, wanted machines.Machine) error {
	h := m.hosts[wanted.Name]
	if h == nil {
		var err error
		if h, err = m.start(ctx, wanted); err != nil {
			return err
		}
		m.hosts[wanted.Name] = h
		h.State = machines.Running
		m.logger.Info("Machine switched on", "machine", wanted.Name, "address", wanted.Address)
	}
	if h.State == wanted.State {
		return nil
	}
	if err := plug(h.port, wanted.State != machines.Frozen); err != nil {
		return err
	}
	h.State = wanted.State
	m.logger.Info("Machine changed", "machine", wanted.Name, "state", wanted.State)
	return nil
}

// end switches a machine off.
func (m *manager) end(ctx context.Context, h *host) {
	err := errors.Join(h.stop(), cgroup.Remove(ctx, cgroup.Of(m.dir, h.Name)))
	delete(m.hosts, h.Name)
	m.logger.Info("Machine switched off", "machine", h.Name, "error", err)
}

// discard removes the disks of machines that are in the list no more, such as those that went while nobody looked.
func (m *manager) discard(list machines.List) {
	folders, err := os.ReadDir(blueprint.Layout{Dir: m.dir}.RealNodes())
	if err != nil {
		return // there never was a machine
	}
	for _, folder := range folders {
		if wanted, ok := list.Find(folder.Name()); ok && wanted.Real {
			continue
		}
		m.erase(folder.Name())
	}
}

// erase removes the disk of a machine that is gone.
func (m *manager) erase(name string) {
	if err := os.RemoveAll(blueprint.Layout{Dir: m.dir}.RealNode(name)); err != nil {
		m.logger.Error("The disk of a machine that is gone stays", "machine", name, "error", err)
	}
}

// stopAll switches all machines off, at once.
func (m *manager) stopAll() error {
	var group sync.WaitGroup
	errs := make(chan error, len(m.hosts))
	for _, h := range m.hosts {
		group.Go(func() { errs <- h.stop() })
	}
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// up reports whether the Nodes of all real machines that are on are Ready and, with a cloud, initialized.
func (m *manager) up(ctx context.Context, list machines.List) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	nodes, err := m.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: fleet.OwnerLabel + "=true"})
	if err != nil {
		return false
	}
	return !slices.ContainsFunc(list.Machines, func(wanted machines.Machine) bool {
		if !wanted.Real || wanted.State != machines.Running {
			return false
		}
		for _, node := range nodes.Items {
			if node.Name == wanted.Name {
				return !fleet.IsUp(wanted, node, m.uninitialized)
			}
		}
		return true
	})
}
