// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package certreload

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fsnotify/fsnotify"
)

// DefaultInterval is the time between two periodic reads.
const DefaultInterval = time.Minute

// Options tune a Reloader; the zero value is ready for use.
type Options struct {
	// Interval between periodic reads; 0 means DefaultInterval.
	Interval time.Duration
	// OnReload is called after each read that changed something (nil) and for each new error (not for
	// its repetitions). It is called from one goroutine at a time and must not call the Reloader's
	// Reload. Nil: nobody is told.
	OnReload func(error)
	// Check judges each complete set before it is taken over, with the time of the reading: what it refuses is a rejected read, and
	// the last good set stays. Nil: every complete set is good. An expired certificate, for example, parses well.
	Check func(s *Snapshot, now time.Time) error
	// Ticks returns a channel that says when to read, and what stops it; nil means a ticker of the system's clock.
	Ticks func(interval time.Duration) (ticks <-chan time.Time, stop func())
	// Now is the time for Check, Expired and the handshakes of the configurations that the Reloader makes; nil means the system's clock.
	Now func() time.Time
}

func systemTicks(interval time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(interval)
	return t.C, t.Stop
}

// Reloader holds the current snapshot of a set of files. All methods are safe for concurrent use.
type Reloader struct {
	files    Files
	interval time.Duration
	onReload func(error)
	check    func(*Snapshot, time.Time) error
	ticks    func(time.Duration) (<-chan time.Time, func())
	now      func() time.Time

	current atomic.Pointer[Snapshot]

	reloads  atomic.Int64 // sets taken over, the first included
	failures atomic.Int64 // reads that were rejected
	failing  atomic.Bool  // whether the last read was one of them

	mu        sync.Mutex // serializes Reload and guards lastError
	lastError string     // the error last reported; empty after a success
}

// New reads the files for the first time. Unlike later reads, a failure here is returned: a server
// must not start with nothing to serve.
func New(files Files, o Options) (*Reloader, error) {
	if err := files.Validate(); err != nil {
		return nil, err
	}
	r := &Reloader{files: files, interval: o.Interval, onReload: o.OnReload, check: o.Check, ticks: o.Ticks, now: o.Now}
	if r.now == nil {
		r.now = time.Now
	}
	if r.interval <= 0 {
		r.interval = DefaultInterval
	}
	if r.onReload == nil {
		r.onReload = func(error) {}
	}
	if r.check == nil {
		r.check = func(*Snapshot, time.Time) error { return nil }
	}
	if r.ticks == nil {
		r.ticks = systemTicks
	}
	first, err := r.load()
	if err != nil {
		return nil, err
	}
	r.current.Store(first)
	r.reloads.Add(1)
	return r, nil
}

// Current is the last good snapshot; never nil.
func (r *Reloader) Current() *Snapshot { return r.current.Load() }

// Now is the time that certificates are held against: Options.Now, or the system's clock.
func (r *Reloader) Now() time.Time { return r.now() }

// Reload reads the files now. changed tells whether another set is served from here on; with an error
// the last good one still is.
func (r *Reloader) Reload() (changed bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, err := r.load()
	r.failing.Store(err != nil)
	if err != nil {
		r.failures.Add(1)
		if msg := err.Error(); msg != r.lastError {
			r.lastError = msg
			r.onReload(err)
		}
		return false, err
	}
	recovered := r.lastError != ""
	r.lastError = ""
	changed = !next.raw.equal(r.current.Load().raw)
	if changed {
		r.current.Store(next)
		r.reloads.Add(1)
	}
	if changed || recovered {
		r.onReload(nil)
	}
	return changed, nil
}

func (r *Reloader) load() (*Snapshot, error) {
	raw, err := r.files.read()
	if err != nil {
		return nil, fmt.Errorf("reading TLS files: %w", err)
	}
	out, err := r.files.parse(raw)
	if err != nil {
		return nil, err
	}
	if err := r.check(out, r.now()); err != nil {
		return nil, err
	}
	return out, nil
}

// Run keeps the snapshot current until ctx ends, and returns nil then. Without a directory watch (too
// many inotify instances, for example) it reports the reason once through OnReload and goes on with
// periodic reads. Run fits controller-runtime's Runnable; it needs no leader election.
func (r *Reloader) Run(ctx context.Context) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		r.report(fmt.Errorf("watching TLS files, falling back to a read every %s: %w", r.interval, err))
		watcher = &fsnotify.Watcher{} // its nil channels never deliver
	} else {
		defer watcher.Close()
	}
	// What was read may lie in a directory that replaced the watched one in between, so what has changed is watched and
	// read again.
	refresh := func() {
		for changed := true; changed; {
			if err == nil {
				r.watchDirectories(watcher)
			}
			changed, _ = r.Reload() // errors went to OnReload
		}
	}
	ticks, stop := r.ticks(r.interval)
	defer stop()
	refresh()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event := <-watcher.Events:
			if event.Has(fsnotify.Chmod) && event.Op == fsnotify.Chmod {
				continue
			}
			refresh()
		case werr := <-watcher.Errors:
			// An overflow loses events, so read.
			if errors.Is(werr, fsnotify.ErrEventOverflow) {
				refresh()
			}
		case <-ticks:
			refresh()
		}
	}
}

// Start is Run under the name that controller-runtime's manager.Runnable asks for.
func (r *Reloader) Start(ctx context.Context) error { return r.Run(ctx) }

// NeedLeaderElection tells controller-runtime that every replica keeps its own certificates current.
func (*Reloader) NeedLeaderElection() bool { return false }

func (r *Reloader) watchDirectories(w *fsnotify.Watcher) {
	var dirs []string
	for _, p := range r.files.paths() {
		dirs = append(dirs, filepath.Dir(p))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := w.Add(dir); err != nil {
			r.report(fmt.Errorf("watching directory %s, falling back to a read every %s: %w", dir, r.interval, err))
		}
	}
}

func (r *Reloader) report(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.onReload(err)
}
