// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/scratch"
)

// A plane is one control plane of a pool.
type plane interface {
	// dir is the folder of its lab.
	dir() string
	// reset brings it back to the state in which it was first ready.
	reset(ctx context.Context) error
	// freeze makes it use no CPU time until thaw.
	freeze()
	thaw()
	// used is the CPU time that it has used so far.
	used() time.Duration
	// stop ends it, frozen or not, and returns the CPU time that it used.
	stop() time.Duration
}

// Usage is what a pool has done.
type Usage struct {
	// Starts and Loans count control planes started and lent, Broken those that reset could not bring back.
	Starts, Loans, Broken int
	// CPU is the CPU time of all control planes, Lent the part of it during loans, resets included, by the folder of the borrower.
	CPU  time.Duration
	Lent map[string]time.Duration
}

// A Pool lends control planes until it is closed.
type Pool struct {
	listener net.Listener
	folder   *scratch.Folder
	idleMost int
	start    func(ctx context.Context, folder string) (plane, error)
	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	group    sync.WaitGroup
	// starting lets control planes start one after another: those that start at the same time make each other late, and kube-apiserver gives up when
	// it cannot write its roles within thirty seconds.
	starting sync.Mutex

	mu    sync.Mutex // guards what follows
	idle  []plane
	usage Usage
	// resetting counts control planes that are being reset; returned is closed when one of them no longer is, and then made again.
	resetting int
	returned  chan struct{}
}

// longestReset is how long a borrower waits for a control plane that is being reset before another one is started.
const longestReset = 15 * time.Second

// Open listens on socket and starts a control plane, by bin/lab or another program of that path, whenever somebody borrows one while none is idle. At
// most idle of them are kept when nobody uses them. apiServer is the kube-apiserver to use in place of the lab's own, or "". The folders of the labs are
// in one that Close removes.
func Open(socket, lab, apiServer string, idle int) (*Pool, error) {
	return open(socket, idle, func(ctx context.Context, folder string) (plane, error) { return startLab(ctx, lab, apiServer, folder) })
}

func open(socket string, idle int, start func(context.Context, string) (plane, error)) (*Pool, error) {
	listener, err := net.Listen("unix", socket) //nolint:noctx // Close ends it
	if err != nil {
		return nil, fmt.Errorf("lending control planes: %w", err)
	}
	folder, err := scratch.New("")
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	p := &Pool{listener: listener, folder: folder, idleMost: idle, start: start, returned: make(chan struct{}), usage: Usage{Lent: map[string]time.Duration{}}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.group.Go(p.serve)
	return p, nil
}

// Close stops all control planes, lent ones included, and returns what the pool has done.
func (p *Pool) Close() (Usage, error) {
	p.cancel()
	err := p.listener.Close()
	p.group.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.idle {
		p.usage.CPU += c.stop()
	}
	p.idle = nil
	return p.usage, errors.Join(err, p.folder.Remove())
}

func (p *Pool) serve() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // it was closed
		}
		p.group.Go(func() { p.lend(conn) })
	}
}

// lend has a control plane borrowed for as long as the connection lasts.
func (p *Pool) lend(conn net.Conn) {
	defer context.AfterFunc(p.ctx, func() { _ = conn.Close() })()
	var asked request
	received := json.NewDecoder(conn)
	if received.Decode(&asked) != nil {
		_ = conn.Close() // the borrower has died
		return
	}
	c, err := p.take()
	if err != nil {
		_ = json.NewEncoder(conn).Encode(reply{Error: err.Error()})
		_ = conn.Close()
		return
	}
	before := c.used()
	if json.NewEncoder(conn).Encode(reply{Dir: c.dir()}) == nil {
		_, _ = io.Copy(io.Discard, conn) // until the borrower closes it, or dies
	}
	p.mu.Lock()
	p.resetting++ // before the borrower knows: if it borrows again, it waits for this one
	p.mu.Unlock()
	_ = conn.Close()
	p.takeBack(c, func() { p.charge(asked.Folder, c.used()-before) })
}

// charge records what a loan has cost.
func (p *Pool) charge(folder string, used time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage.Lent[folder] += used
}

// take returns an idle control plane, waits for one that is being reset, or starts one.
func (p *Pool) take() (plane, error) {
	if c, _ := p.takeIdle(); c != nil {
		return c, nil
	}
	p.starting.Lock()
	defer p.starting.Unlock()
	late := time.After(longestReset)
	for waiting := true; waiting; {
		c, returned := p.takeIdle()
		if c != nil {
			return c, nil
		}
		if returned == nil {
			break
		}
		select {
		case <-returned:
		case <-late:
			waiting = false
		case <-p.ctx.Done():
			waiting = false
		}
	}
	if p.ctx.Err() != nil {
		return nil, errors.New("the pool of control planes is being closed")
	}
	p.mu.Lock()
	p.usage.Starts++
	p.usage.Loans++
	folder := filepath.Join(p.folder.Path, strconv.Itoa(p.usage.Starts))
	p.mu.Unlock()
	return p.start(p.ctx, folder)
}

// takeIdle returns an idle control plane; if there is none but one is being reset, what is closed when one no longer is.
func (p *Pool) takeIdle() (c plane, returned <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	last := len(p.idle) - 1
	if last < 0 {
		if p.resetting > 0 {
			return nil, p.returned
		}
		return nil, nil
	}
	c = p.idle[last]
	p.idle = p.idle[:last]
	c.thaw()
	p.usage.Loans++
	return c, nil
}

// takeBack resets a control plane that counts as being reset, and keeps it for the next borrower, or stops it. It says when it has been reset.
func (p *Pool) takeBack(c plane, reset func()) {
	err := p.ctx.Err()
	if err == nil {
		err = c.reset(p.ctx)
	}
	reset()
	if p.keep(c, err) {
		return
	}
	used := c.stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usage.CPU += used
}

// keep freezes a control plane and puts it among the idle ones, unless it could not be reset, or enough are idle.
func (p *Pool) keep(c plane, problem error) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.resetting--
	close(p.returned)
	p.returned = make(chan struct{})
	if problem == nil && len(p.idle) < p.idleMost {
		c.freeze()
		p.idle = append(p.idle, c)
		return true
	}
	if problem != nil && p.ctx.Err() == nil {
		p.usage.Broken++
		fmt.Fprintln(os.Stderr, "lending: a control plane is stopped:", problem)
	}
	return false
}
