// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

const (
	// bootTime and networkTime are how long a new droplet takes; at DigitalOcean it is the better part of a minute.
	bootTime, networkTime = 2 * time.Second, time.Second
	// balancerTime is how long a load balancer takes; at DigitalOcean it is a minute or two.
	balancerTime = 5 * time.Second
	// busyTime is how long a load balancer refuses further changes after one.
	busyTime = time.Second
)

// settings are those of the simulator of a lab.
func settings(token string, seed uint64, limited bool) digitalocean.Options {
	o := digitalocean.Options{
		Seed: seed,
		Accounts: []digitalocean.AccountOptions{{
			Name: Account, Tokens: []digitalocean.Token{{Value: token}},
			VPCs: []digitalocean.VPC{{Name: "lab", Region: Region, IPRange: machines.Network().String()}},
		}},
		Droplets:      digitalocean.DropletOptions{BootAfter: bootTime, NetworksAfter: networkTime},
		LoadBalancers: digitalocean.LoadBalancerOptions{ActiveAfter: balancerTime, BusyAfterUpdate: busyTime},
		Volumes:       digitalocean.VolumeOptions{AttachAfter: attachTime, DetachAfter: attachTime, ResizeAfter: attachTime},
	}
	if !limited {
		o.RateLimits = ratelimit.Limits{Hour: -1, Minute: -1}
	}
	return o
}

// readState returns what is remembered, nil if nothing is.
func readState(path string) ([]byte, error) {
	state, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the simulated cloud remembers: %w", err)
	}
	return state, nil
}

// Prepare makes, before the process starts, what it needs: the token, and at the first start the droplets of the control plane and of node-1 to
// node-N, of which the first are real; later those of them that are gone, if restore says so.
func Prepare(layout blueprint.Layout, nodes, zones, realNodes int, restore bool) error {
	token, err := ensureToken(layout.CloudToken())
	if err != nil {
		return err
	}
	state, err := readState(layout.CloudState())
	if err != nil {
		return err
	}
	seed, err := randomSeed()
	if err != nil {
		return err
	}
	sim, err := digitalocean.Open(settings(token, seed, false), state)
	if err != nil {
		return fmt.Errorf("%s is damaged (%w); delete the lab with `lab down --delete`", layout.CloudState(), err)
	}
	account := sim.Account(Account)
	if state == nil || restore {
		if err := populate(account, machines.Seed(nodes, zones, realNodes)); err != nil {
			return err
		}
	}
	document, err := sim.Image()
	if err != nil {
		return err
	}
	if err := folder.WriteFile(layout.CloudState(), document); err != nil {
		return err
	}
	return machines.Edit(layout.MachinesFile(), func(list machines.List) (machines.List, error) {
		return Machines(list, account.Droplets()), nil
	})
}

// populate creates the droplets that are missing of a lab's first ones. They have booted long ago.
func populate(account *digitalocean.Account, first machines.List) error {
	there := map[string]bool{}
	for _, d := range account.Droplets() {
		there[d.Name] = true
	}
	specs := []digitalocean.DropletSpec{{Name: ControlPlane, Region: Region}}
	for _, m := range first.Machines {
		specs = append(specs, specOf(m.Name, m.Zone, m.Real))
	}
	for _, spec := range specs {
		if there[spec.Name] {
			continue
		}
		spec.BootAfter, spec.NetworksAfter = new(time.Duration), new(time.Duration)
		if _, err := account.CreateDroplet(spec); err != nil {
			return err
		}
	}
	return nil
}

// ensureToken returns the token of the lab's account, and makes one at the first start.
func ensureToken(path string) (string, error) {
	content, err := os.ReadFile(path)
	if token := strings.TrimSpace(string(content)); err == nil && token != "" {
		return token, nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("reading the token of the simulated cloud: %w", err)
	}
	var secret [32]byte
	if _, err := rand.Read(secret[:]); err != nil {
		return "", fmt.Errorf("making a token: %w", err)
	}
	token := "dop_v1_" + hex.EncodeToString(secret[:]) // the form of DigitalOcean's personal tokens
	return token, folder.WriteFile(path, []byte(token+"\n"))
}

func randomSeed() (uint64, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return 0, fmt.Errorf("making a seed: %w", err)
	}
	return binary.BigEndian.Uint64(seed[:]), nil
}
