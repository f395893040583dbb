// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package speaker runs the BGP speakers of a BGP lab: for each node Debian's bird and bird6, in the node's network namespace, and Calico's confd
// and status reporter (package agent), outside of it, where the API server is.
//
// Each process is started again when it ends, as runit does in calico-node.
package speaker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/bgp/agent"
	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
)

// pause is between the end of a process and its next start, poll how often a file is looked for.
const (
	pause = time.Second
	poll  = 50 * time.Millisecond
)

// Config says where everything is.
type Config struct {
	// Dir is a folder for the speakers' files.
	Dir string
	// Templates is the folder of confd's templates (FindTemplates).
	Templates string
	// Patch has the templates patched as kubectl mooring bird-templates does.
	Patch bool
	// Bird and Bird6 are the paths of these programs (FindBird).
	Bird, Bird6 string
	// Executable is the lab's own binary.
	Executable string
	// Datastore is the environment that names Calico's datastore.
	Datastore []string
	Logger    *slog.Logger
}

// Speakers are running speakers. Add and Remove must be called by one goroutine at a time.
type Speakers struct {
	config Config
	nodes  map[string]*node
	mu     sync.Mutex     // guards pids
	pids   map[string]int // by node/process
}

// node is what runs for one.
type node struct {
	stop      context.CancelFunc
	processes sync.WaitGroup
}

// New prepares the folder of speakers, of which there are none yet.
func New(c Config) (*Speakers, error) {
	bin := filepath.Join(c.Dir, "bin")
	if err := os.MkdirAll(bin, 0o700); err != nil {
		return nil, fmt.Errorf("making a folder: %w", err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sv"), []byte(svScript), 0o700); err != nil { //nolint:gosec // it is a program
		return nil, fmt.Errorf("writing sv: %w", err)
	}
	return &Speakers{config: c, nodes: map[string]*node{}, pids: map[string]int{}}, nil
}

// Add starts the speaker of a host and returns at once. It runs until Remove, Close or the end of ctx.
func (s *Speakers) Add(ctx context.Context, h fabric.Host) error {
	if err := s.prepare(h.Name); err != nil {
		return fmt.Errorf("preparing %s: %w", h.Name, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	n := &node{stop: cancel}
	s.nodes[h.Name] = n
	s.keep(ctx, n, h.Name+"/agent", func() (*exec.Cmd, error) { return s.startAgent(h) })
	s.keep(ctx, n, h.Name+"/bird", func() (*exec.Cmd, error) { return s.startBird(ctx, h, s.config.Bird, "bird") })
	s.keep(ctx, n, h.Name+"/bird6", func() (*exec.Cmd, error) { return s.startBird(ctx, h, s.config.Bird6, "bird6") })
	return nil
}

// Remove kills the speaker of a node, as the end of its machine does, and waits for the end of its processes. Its logs stay until a node of
// that name comes again.
func (s *Speakers) Remove(name string) {
	n, ok := s.nodes[name]
	if !ok {
		return
	}
	n.stop()
	n.processes.Wait()
	delete(s.nodes, name)
}

// Close kills all speakers and waits for the end of their processes.
func (s *Speakers) Close() {
	for _, n := range s.nodes {
		n.stop()
	}
	for name := range s.nodes {
		s.Remove(name)
	}
}

// PIDs returns the numbers of the processes that run, by node/process: bird, bird6, agent.
func (s *Speakers) PIDs() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.pids)
}

// dir is in a folder for nodes alone, since a node may have any name.
func (s *Speakers) dir(node string) string { return filepath.Join(s.config.Dir, "nodes", node) }

// prepare makes a node's folder again: what an earlier run rendered says nothing about this one.
func (s *Speakers) prepare(node string) error {
	dir := s.dir(node)
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	for _, folder := range []string{filepath.Join("run", "calico"), "logs"} {
		if err := os.MkdirAll(filepath.Join(dir, folder), 0o700); err != nil {
			return err
		}
	}
	return copyTemplates(s.config.Templates, filepath.Join(dir, "confd"), s.config.Patch)
}

// keep starts a process of a node again and again until ctx ends.
func (s *Speakers) keep(ctx context.Context, n *node, name string, start func() (*exec.Cmd, error)) {
	n.processes.Go(func() {
		for ctx.Err() == nil {
			command, err := start()
			if err == nil {
				err = s.watch(ctx, name, command)
			}
			if ctx.Err() != nil {
				return
			}
			s.config.Logger.Info("A process of a node ended and is started again", "process", name, "because", err)
			wait(ctx, pause)
		}
	})
}

// watch waits for the end of a process, and kills it when ctx ends: there is nothing that it could still have to do, since its machine ends too.
func (s *Speakers) watch(ctx context.Context, name string, command *exec.Cmd) error {
	s.note(name, command.Process.Pid)
	defer s.note(name, 0)
	ended := make(chan struct{})
	var err error
	go func() {
		err = command.Wait()
		close(ended)
	}()
	select {
	case <-ended:
		if err == nil {
			err = errors.New("it ended by itself")
		}
		return err
	case <-ctx.Done():
	}
	_ = command.Process.Kill()
	<-ended
	return ctx.Err()
}

func (s *Speakers) note(name string, pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if pid == 0 {
		delete(s.pids, name)
		return
	}
	s.pids[name] = pid
}

// startBird starts bird or bird6 as calico-node does, once confd has written a configuration. Paths are relative, since those of sockets are
// limited to 107 bytes.
func (s *Speakers) startBird(ctx context.Context, h fabric.Host, program, name string) (*exec.Cmd, error) {
	configuration := filepath.Join("confd", "config", name+".cfg")
	for !exists(filepath.Join(s.dir(h.Name), configuration)) {
		if !wait(ctx, poll) {
			return nil, ctx.Err()
		}
	}
	run := filepath.Join("run", "calico")
	command := exec.Command(program, "-R", "-d", "-s", filepath.Join(run, name+".ctl"), "-P", filepath.Join(run, name+".pid"), "-c", configuration) //nolint:noctx // watch ends it
	return command, s.start(h.Name, name, command, h.Start)
}

// startAgent starts confd and the status reporter in a mount namespace of their own.
func (s *Speakers) startAgent(h fabric.Host) (*exec.Cmd, error) {
	dir := s.dir(h.Name)
	command := exec.Command(s.config.Executable, agent.Name, //nolint:noctx // watch ends it
		"--confd-dir="+filepath.Join(dir, "confd"), "--run-dir="+filepath.Join(dir, "run"))
	command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	command.Env = append([]string{
		"NODENAME=" + h.Name,
		"CALICO_K8S_NODE_REF=" + h.Name,
		"CALICO_NETWORKING_BACKEND=bird",
		// confd asks bird whether it understands what it has written.
		"PATH=" + filepath.Join(s.config.Dir, "bin") + ":" + filepath.Dir(s.config.Bird) + ":/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + dir,
		"TMPDIR=" + os.TempDir(),
		// One node of a lab has little to do; without limits each of these processes keeps as many threads and as much garbage as a server.
		"GOMAXPROCS=1",
		"GOGC=50",
		"BGP_LOGSEVERITYSCREEN=warning",
		"CALICO_STARTUP_LOGLEVEL=WARNING",
	}, s.config.Datastore...)
	if !h.Address.IsValid() {
		// The router ID, a number of four bytes, is the IPv4 address otherwise.
		command.Env = append(command.Env, "CALICO_ROUTER_ID=hash")
	}
	return command, s.start(h.Name, "agent", command, s.startHere)
}

// startHere starts a command outside the fabric, from a thread that lives as long as this process does: the first.
func (s *Speakers) startHere(command *exec.Cmd) error { return onLastingThread(command.Start) }

// start starts a command with its output in a log.
func (s *Speakers) start(node, name string, command *exec.Cmd, start func(*exec.Cmd) error) error {
	dir := s.dir(node)
	log, err := os.OpenFile(filepath.Join(dir, "logs", name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the log: %w", err)
	}
	defer func() { _ = log.Close() }()
	command.Dir, command.Stdout, command.Stderr = dir, log, log
	if err := start(command); err != nil {
		return fmt.Errorf("starting %s: %w", strconv.Quote(name), err)
	}
	return nil
}

// wait waits, and reports whether ctx has not ended.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
