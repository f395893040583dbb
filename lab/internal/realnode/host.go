// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/fleet"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/pki"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
	"github.com/mooring-dev/mooring/lab/internal/realnode/describe"
	"github.com/mooring-dev/mooring/lab/internal/realnode/inside"
)

// host is a machine that is switched on.
type host struct {
	machines.Machine
	port      string
	namespace *netns.Namespace
	// ended is closed once the last process of the machine is gone.
	ended chan struct{}
}

// start switches a machine on.
func (o options) start(ctx context.Context, m machines.Machine) (*host, error) {
	if !describe.PodCIDR(m.Address).IsValid() {
		return nil, fmt.Errorf("there is no range of pods for the address %v; remove machines until a lower one is free", m.Address)
	}
	layout := blueprint.Layout{Dir: o.dir}
	certificates := blueprint.MachineCertificates(m.Name, m.Address.String())
	if err := pki.Ensure(layout.PKI(), certificates, time.Now()); err != nil {
		return nil, fmt.Errorf("making the certificates: %w", err)
	}
	d := o.describe(m, layout)
	o.addDisks(&d, m)
	dir := layout.RealNode(m.Name)
	if err := os.MkdirAll(filepath.Join(dir, "logs"), 0o700); err != nil {
		return nil, fmt.Errorf("making the folder: %w", err)
	}
	file := filepath.Join(dir, "machine.json")
	if err := folder.WriteJSON(file, d); err != nil {
		return nil, err
	}
	if err := cgroup.Make(cgroup.Of(o.dir, m.Name)); err != nil {
		return nil, err
	}
	namespace, err := netns.New()
	if err != nil {
		return nil, err
	}
	h := &host{Machine: m, namespace: namespace, ended: make(chan struct{}), port: "m" + strconv.Itoa(int(m.Address.As4()[3]))}
	if err := h.boot(ctx, file, dir); err != nil {
		close(h.ended)
		return nil, errors.Join(err, h.stop())
	}
	return h, nil
}

// boot connects the machine and starts its first process.
func (h *host) boot(ctx context.Context, description, dir string) error {
	if err := connect(h.port, h.namespace, h.Address); err != nil {
		return err
	}
	log, err := os.OpenFile(filepath.Join(dir, "logs", "machine.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer log.Close() // the child has its own copy
	// Its end is that of the machine, not of the request that switched it on.
	command := exec.CommandContext(context.WithoutCancel(ctx), "/proc/self/exe", inside.Name, description)
	command.Stdout, command.Stderr, command.Env = log, log, []string{}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC, Setsid: true,
	}
	if err := h.namespace.Start(command); err != nil {
		return fmt.Errorf("starting the first process: %w", err)
	}
	go func() {
		_ = command.Wait() // how it ended is in its log
		close(h.ended)
	}()
	return nil
}

// stop kills all of the machine at once and waits until it is gone. Nobody hears a last word, as its cable goes first.
func (h *host) stop() error {
	err := disconnect(h.port, h.Address)
	h.namespace.Close()
	<-h.ended
	return err
}

// runs reports whether the first process has not ended by itself.
func (h *host) runs() bool {
	select {
	case <-h.ended:
		return false
	default:
		return true
	}
}

// describe is the machine's description.
func (o options) describe(m machines.Machine, layout blueprint.Layout) describe.Description {
	client, server := blueprint.MachineCertificateNames(m.Name)
	labels := fleet.LabelsOf(m)
	var words []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		words = append(words, key+"="+labels[key])
	}
	return describe.Make(describe.Machine{
		Name: m.Name, Zone: m.Zone, Address: m.Address, External: m.ExternalCloudProvider, DefaultHeartbeats: o.defaultHeartbeats,
		Dir: layout.RealNode(m.Name), Bin: o.bin, CgroupRoot: cgroup.Of(o.dir, m.Name),
		APIServer:     "https://" + net.JoinHostPort(blueprint.ControlPlaneAddress, o.apiServerPort),
		AuthorityFile: layout.AuthorityFile(), ClientCAFile: layout.KubeletAuthorityFile(),
		KubeletClient: filepath.Join(layout.PKI(), client), KubeletServer: filepath.Join(layout.PKI(), server),
		ProxyClient: layout.KubeProxyClient(), Labels: words, Archives: o.archives,
	})
}
