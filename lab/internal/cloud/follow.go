// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

// followInterval is how often is looked whether anything has changed.
const followInterval = 100 * time.Millisecond

// follower keeps the list of machines in step with the droplets, and the log with what was asked of the API.
type follower struct {
	path   string
	logger *slog.Logger
	sim    *digitalocean.Simulator
	// dirty reports that something has changed since the list was last written.
	dirty atomic.Bool
	told  uint64 // the last request in the log
}

// run follows until ctx ends.
func (f *follower) run(ctx context.Context) {
	ticker := time.NewTicker(followInterval)
	defer ticker.Stop()
	for {
		if f.dirty.Swap(false) {
			f.follow()
		}
		f.tell()
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// follow writes the list of machines if it is not as the droplets are.
func (f *follower) follow() {
	droplets := f.sim.Account(Account).Droplets()
	if booting(droplets) {
		f.dirty.Store(true) // look again
	}
	if current, err := machines.Load(f.path); err == nil && slices.Equal(current.Machines, Machines(current, droplets).Machines) {
		return
	}
	err := machines.Edit(f.path, func(former machines.List) (machines.List, error) {
		list := Machines(former, droplets)
		f.compare(former, list)
		return list, nil
	})
	if err != nil {
		f.logger.Error("The list of machines does not follow the droplets yet", "error", err)
		f.dirty.Store(true)
	}
}

// compare logs what differs between two lists.
func (f *follower) compare(former, now machines.List) {
	for _, m := range now.Machines {
		if before, ok := former.Find(m.Name); !ok || before.Droplet != m.Droplet {
			f.logger.Info("A droplet has booted", "name", m.Name, "droplet", m.Droplet, "zone", m.Zone, "address", m.Address)
		} else if before.State != m.State {
			f.logger.Info("A droplet has changed", "name", m.Name, "droplet", m.Droplet, "state", m.State)
		}
	}
	for _, m := range former.Machines {
		if after, ok := now.Find(m.Name); !ok || after.Droplet != m.Droplet {
			f.logger.Info("A droplet is gone", "name", m.Name, "droplet", m.Droplet)
		}
	}
}

// tell logs what has been asked of the API and was more than a look.
func (f *follower) tell() {
	if f.sim.Mark() == f.told {
		return
	}
	for _, entry := range f.sim.Requests(journal.Filter{After: f.told}) {
		f.told = max(f.told, entry.Number)
		if entry.Method != http.MethodGet || entry.Status >= http.StatusBadRequest {
			f.logger.Info("API", "request", entry.Method+" "+entry.URL, "status", entry.Status)
		}
	}
}
