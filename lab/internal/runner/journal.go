// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/ports"
	"github.com/mooring-dev/mooring/lab/internal/process"
	"github.com/mooring-dev/mooring/lab/internal/supervisor"
)

// journal keeps state.json and, once the lab is ready, lab.json in step with the supervisor.
type journal struct {
	layout      blueprint.Layout
	description blueprint.Blueprint
	ports       blueprint.Ports
	self        process.Identity
	logger      *slog.Logger
	progress    func(string)

	mu        sync.Mutex // guards what follows
	processes []folder.Process
	states    map[string]supervisor.State
	published bool
}

func newJournal(
	layout blueprint.Layout, description blueprint.Blueprint, assigned blueprint.Ports,
	self process.Identity, logger *slog.Logger, progress func(string),
) *journal {
	return &journal{
		layout: layout, description: description, ports: assigned, self: self, logger: logger, progress: progress,
		states: map[string]supervisor.State{},
	}
}

// record is the supervisor's OnChange. It cannot fail: a file that cannot be written is logged, and the next change tries again.
func (j *journal) record(statuses []supervisor.Status) {
	j.mu.Lock()
	defer j.mu.Unlock()
	state := folder.State{Supervisor: j.self, Identities: map[string]process.Identity{}}
	j.processes = nil
	for _, status := range statuses {
		if status.Identity.PID != 0 {
			state.Identities[status.Name] = status.Identity
		}
		j.processes = append(j.processes, j.describe(status))
		if j.states[status.Name] != status.State {
			j.states[status.Name] = status.State
			j.logger.Info("Process", "name", status.Name, "state", status.State, "pid", status.Identity.PID, "lastExit", status.LastExit)
			if !j.published && (status.State == supervisor.Ready || status.State == supervisor.Done) {
				j.progress(status.Name + " is " + string(status.State))
			}
		}
	}
	state.Processes = j.processes
	if err := folder.WriteJSON(j.layout.StateFile(), state); err != nil {
		j.logger.Error("The state could not be saved", "error", err)
	}
	if j.published {
		j.write()
	}
}

// publish writes lab.json for the first time.
func (j *journal) publish() folder.Lab {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.published = true
	return j.write()
}

func (j *journal) write() folder.Lab {
	lab := folder.Lab{Version: folder.LabVersion, CalicoDatastore: j.description.Options.Datastore, Processes: j.processes}
	if _, ok := j.description.Process(blueprint.APIServer); ok {
		lab.Kubeconfig = j.layout.Kubeconfig()
		lab.APIServer = &folder.APIServer{
			URL:    "https://" + ports.Host + ":" + j.ports[blueprint.APIServerPort],
			CAFile: j.layout.AuthorityFile(),
		}
	}
	if _, ok := j.description.Process(blueprint.Etcd); ok {
		access := j.layout.EtcdAccess(j.ports)
		lab.Etcd = &access
	}
	if _, ok := j.description.Process(blueprint.CalicoEtcd); ok {
		access := j.layout.CalicoEtcdAccess(j.ports)
		lab.CalicoEtcd = &access
	}
	if _, ok := j.description.Process(blueprint.DigitalOcean); ok {
		access := j.layout.CloudAccess(j.ports)
		lab.DigitalOcean = &access
	}
	if err := folder.WriteJSON(j.layout.LabFile(), lab); err != nil {
		j.logger.Error("The description lab.json could not be written", "error", err)
	}
	return lab
}

func (j *journal) describe(status supervisor.Status) folder.Process {
	description, _ := j.description.Process(status.Name)
	result := folder.Process{
		Name: status.Name, PID: status.Identity.PID, Restarts: status.Restarts, Log: description.Log,
		State: string(status.State), Since: status.Since, LastExit: status.LastExit,
	}
	for _, port := range description.Ports {
		result.Addresses = append(result.Addresses, ports.Host+":"+port.Number)
	}
	return result
}

// forget removes the files that speak of a running lab.
func forget(layout blueprint.Layout) error {
	var errs []error
	ready, err := filepath.Glob(layout.ReadyFile("*"))
	errs = append(errs, err)
	for _, path := range append(ready, layout.LabFile(), layout.StateFile()) {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("removing %s: %w", path, err))
		}
	}
	return errors.Join(errs...)
}

// archiveLogs keeps the logs of the run before this one, and only those.
func archiveLogs(layout blueprint.Layout) error {
	logs, err := filepath.Glob(layout.Log("*"))
	if err != nil {
		return fmt.Errorf("listing old logs: %w", err)
	}
	for _, path := range logs {
		if err := os.Rename(path, path+".previous"); err != nil {
			return fmt.Errorf("putting an old log aside: %w", err)
		}
	}
	return nil
}

// lastLines returns up to n last lines of a file, indented; nothing if it cannot be read.
func lastLines(path string, n int) string {
	content, err := os.ReadFile(path)
	if err != nil || len(content) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimRight(string(content), "\n"), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-n):], "\n  ")
}
