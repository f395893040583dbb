// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/pki"
	"github.com/mooring-dev/mooring/lab/internal/ports"
	"github.com/mooring-dev/mooring/lab/internal/process"
	"github.com/mooring-dev/mooring/lab/internal/supervisor"
)

// Request is one start of a lab.
type Request struct {
	Options blueprint.Options
	// Given returns which options the user chose rather than defaults; a folder that holds a lab may contradict only those.
	Given Given
	// RestoreMachines brings back the machines of the first start that have been removed since.
	RestoreMachines bool
	// MinFreeBytes is the disk space that must be free.
	MinFreeBytes uint64
	// Executable is the lab's own binary.
	Executable string
	// Progress is told, in half a sentence, what happens next.
	Progress func(string)
	// Populated is called once the folder's subfolders exist; may be nil.
	Populated func(blueprint.Layout) error
	// Ready is called when all processes are ready and lab.json is written.
	Ready func(folder.Lab)
	// FixedPorts are ports that have been chosen already, by name; others are any free ones.
	FixedPorts map[string]int
	// Patience is how long one process may take to come up; 0 means the supervisor's default.
	Patience time.Duration
}

// Given returns which options the user chose.
type Given struct{ Datastore, Nodes, Zones, Cloud, Network, IPFamilies, RealNodes bool }

// memory is options.json: what later starts in the same folder must agree with.
type memory struct {
	Datastore string `json:"calicoDatastore"`
	Nodes     int    `json:"nodes"`
	Zones     int    `json:"zones"`
	// Cloud is empty in the folder of a lab that was made when there was none.
	Cloud string `json:"cloud,omitempty"`
	// Network is empty in the folder of a lab that was made when there was only one.
	Network string `json:"network,omitempty"`
	// IPFamilies is empty if machines and pods have IPv4 addresses alone.
	IPFamilies string `json:"ipFamilies,omitempty"`
	// RealNodes is how many of the first machines are real.
	RealNodes int `json:"realNodes,omitempty"`
}

// recall reads what the lab in the folder was made with.
func recall(layout blueprint.Layout) (memory, error) {
	var m memory
	if err := folder.ReadJSON(layout.OptionsFile(), &m); err != nil {
		return memory{}, err
	}
	if m.Cloud == "" {
		m.Cloud = blueprint.CloudNone
	}
	if m.Network == "" {
		m.Network = blueprint.NetworkLoopback
	}
	return m, nil
}

// Run starts the lab and keeps it running until ctx ends; then it stops it and returns nil. Errors are for users.
func Run(ctx context.Context, r Request) error {
	options, err := Agree(r.Options, r.Given)
	if err != nil {
		return err
	}
	claimed, err := folder.Claim(options.Dir)
	if errors.Is(err, folder.ErrBusy) {
		return fmt.Errorf("a lab already runs in %s; stop it with `lab down --dir %s` or choose another folder with --dir",
			options.Dir, options.Dir)
	}
	if err != nil {
		return err
	}
	if err := folder.CheckSpace(options.Dir, r.MinFreeBytes); err != nil {
		return errors.Join(err, claimed.Abandon())
	}
	var held ports.Holder
	defer func() { _ = held.Close() }()
	description, assigned, err := describe(ctx, claimed, options, r.FixedPorts, &held)
	if err != nil {
		return errors.Join(err, claimed.Abandon())
	}
	defer func() { _ = claimed.Release() }()
	r.Options = options
	return r.run(ctx, claimed, description, assigned)
}

// Agree resolves options and makes them agree with the lab that the folder holds from an earlier start, if any.
func Agree(options blueprint.Options, given Given) (blueprint.Options, error) {
	remembered, err := recall(blueprint.Layout{Dir: options.Dir})
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOTDIR):
		return blueprint.Resolve(options) // nothing there, or Claim says what is wrong
	case err != nil:
		return blueprint.Options{}, err
	}
	if err := contradiction(options, given, remembered); err != nil {
		return blueprint.Options{}, err
	}
	options.Datastore, options.NodeCount, options.ZoneCount = remembered.Datastore, remembered.Nodes, remembered.Zones
	options.Cloud, options.Network = remembered.Cloud, remembered.Network
	options.IPFamilies, options.RealNodes = remembered.IPFamilies, remembered.RealNodes
	return blueprint.Resolve(options)
}

// contradiction returns which of the options that were given is not that of the lab in the folder.
func contradiction(options blueprint.Options, given Given, remembered memory) error {
	fresh := fmt.Sprintf("leave the option out to go on with that lab, or start again after `lab down --delete --dir %s`", options.Dir)
	number := strconv.Itoa
	for _, o := range []struct {
		given           bool
		flag            string
		now, then, cure string
	}{
		{given.Datastore, "--calico-datastore ", options.Datastore, remembered.Datastore, ""},
		{given.Nodes, "--nodes ", number(options.NodeCount), number(remembered.Nodes), "use `lab node add|remove`, or "},
		{given.Zones, "--zones ", number(options.ZoneCount), number(remembered.Zones), ""},
		{given.Cloud, "--cloud ", options.Cloud, remembered.Cloud, ""},
		{given.Network, "--network ", options.Network, remembered.Network, ""},
		{given.IPFamilies, "--ip-families ", families(options.IPFamilies), families(remembered.IPFamilies), ""},
		{given.RealNodes, "--real-nodes ", number(options.RealNodes), number(remembered.RealNodes), "use `lab droplet create --real` or `lab node add --real`, or "},
	} {
		if o.given && o.now != strings.TrimPrefix(o.then, o.flag) {
			return fmt.Errorf("%s%s contradicts the lab in %s, which was made with %s; %s%s", o.flag, o.now, options.Dir, o.then, o.cure, fresh)
		}
	}
	return nil
}

// families is what is intended if nothing is said.
func families(said string) string { return cmp.Or(said, blueprint.FamilyIPv4) }

// Cloud says what the machines of the lab in the folder stand on, running or not: one of the values of blueprint.Options.Cloud.
func Cloud(layout blueprint.Layout) (string, error) {
	m, err := made(layout)
	return m.Cloud, err
}

// Network says what packets between pods of the lab in the folder travel on: one of the values of blueprint.Options.Network.
func Network(layout blueprint.Layout) (string, error) {
	m, err := made(layout)
	return m.Network, err
}

// RealNodes says with how many real machines the lab in the folder was made, running or not.
func RealNodes(layout blueprint.Layout) (int, error) {
	m, err := made(layout)
	return m.RealNodes, err
}

// made is recall for a folder in which there must be a lab.
func made(layout blueprint.Layout) (memory, error) {
	m, err := recall(layout)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return memory{}, fmt.Errorf("there is no lab in %s; start one with `lab up --dir %s`", layout.Dir, layout.Dir)
	}
	return m, err
}

// describe makes sure that nothing of an earlier run is left, holds the ports and makes the blueprint.
func describe(
	ctx context.Context, claimed *folder.Folder, options blueprint.Options, fixed map[string]int, held *ports.Holder,
) (blueprint.Blueprint, blueprint.Ports, error) {
	if _, err := clearLeftovers(ctx, claimed.Layout); err != nil {
		return blueprint.Blueprint{}, nil, err
	}
	assigned, err := hold(ctx, options, fixed, held)
	if err != nil {
		return blueprint.Blueprint{}, nil, err
	}
	description, err := blueprint.Make(options, assigned)
	return description, assigned, err
}

func hold(ctx context.Context, options blueprint.Options, fixed map[string]int, held *ports.Holder) (blueprint.Ports, error) {
	assigned := blueprint.Ports{}
	for _, name := range blueprint.NeededPorts(options) {
		if port, ok := fixed[name]; ok {
			if err := held.Exactly(ctx, port); err != nil {
				return nil, fmt.Errorf("the port of %s: %w", name, err)
			}
			assigned[name] = strconv.Itoa(port)
			continue
		}
		if name == blueprint.APIServerPort && options.APIServerPort != 0 {
			if err := held.Exactly(ctx, options.APIServerPort); err != nil {
				return nil, fmt.Errorf("--apiserver-port: %w", err)
			}
			assigned[name] = strconv.Itoa(options.APIServerPort)
			continue
		}
		port, err := held.Any()
		if err != nil {
			return nil, err
		}
		assigned[name] = strconv.Itoa(port)
	}
	return assigned, nil
}

// run makes the blueprint real.
func (r Request) run(ctx context.Context, claimed *folder.Folder, description blueprint.Blueprint, assigned blueprint.Ports) error {
	self, err := process.Self()
	if err != nil {
		return fmt.Errorf("identifying the supervisor: %w", err)
	}
	if err := folder.WriteJSON(claimed.StateFile(), folder.State{Supervisor: self}); err != nil {
		return err
	}
	if err := r.prepare(claimed, description); err != nil {
		return err
	}
	log, err := os.OpenFile(claimed.Log("supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer log.Close()

	journal := newJournal(claimed.Layout, description, assigned, self, slog.New(slog.NewTextHandler(log, nil)), r.Progress)
	config := supervisor.DefaultConfig()
	config.Processes, config.Executable, config.Dir = description.Processes, r.Executable, claimed.Dir
	config.Logger, config.OnChange = journal.logger, journal.record
	if r.Patience > 0 {
		config.Patience = r.Patience
	}
	err = supervisor.Run(ctx, config, func() { r.Ready(journal.publish()) })
	if failed, ok := errors.AsType[*supervisor.StartError](err); ok {
		if tail := lastLines(failed.Log, 5); tail != "" {
			err = fmt.Errorf("%w\nits last lines are:\n%s", err, tail)
		}
	}
	return errors.Join(err, forget(claimed.Layout))
}

// prepare writes everything that processes read.
func (r Request) prepare(claimed *folder.Folder, description blueprint.Blueprint) error {
	if err := claimed.Populate(); err != nil {
		return err
	}
	if err := archiveLogs(claimed.Layout); err != nil {
		return err
	}
	if r.Populated != nil {
		if err := r.Populated(claimed.Layout); err != nil {
			return err
		}
	}
	o := r.Options
	remembered := memory{Datastore: o.Datastore, Nodes: o.NodeCount, Zones: o.ZoneCount, Cloud: o.Cloud, Network: o.Network, IPFamilies: o.IPFamilies,
		RealNodes: o.RealNodes}
	if err := folder.WriteJSON(claimed.OptionsFile(), remembered); err != nil {
		return err
	}
	r.Progress("keys and certificates")
	if err := pki.Ensure(claimed.PKI(), description.PKI, time.Now()); err != nil {
		return fmt.Errorf("preparing keys and certificates: %w", err)
	}
	for _, file := range description.Files {
		if err := folder.WriteFile(file.Path, []byte(file.Content)); err != nil {
			return err
		}
	}
	if o.Cloud == blueprint.CloudDigitalOcean {
		if err := cloud.Prepare(claimed.Layout, o.NodeCount, o.ZoneCount, o.RealNodes, r.RestoreMachines); err != nil {
			return fmt.Errorf("preparing the simulated cloud: %w", err)
		}
		return nil
	}
	return seed(claimed.MachinesFile(), machines.Seed(o.NodeCount, o.ZoneCount, o.RealNodes), r.RestoreMachines)
}

// seed writes the first list of machines; a list that is there already is the truth.
func seed(path string, first machines.List, restore bool) error {
	_, err := machines.Load(path)
	switch {
	case err == nil && !restore:
		return nil
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return machines.Edit(path, func(list machines.List) (machines.List, error) { return list.Include(first), nil })
}
