// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// fakePlane cannot be reset while broken.
type fakePlane struct {
	folder  string
	broken  *atomic.Bool
	running *atomic.Int32
	uses    atomic.Int32
	frozen  atomic.Bool
}

func (f *fakePlane) dir() string { return f.folder }

func (f *fakePlane) reset(context.Context) error {
	if f.broken.Load() {
		return errors.New("it has changed")
	}
	return nil
}

func (f *fakePlane) used() time.Duration { return time.Duration(f.uses.Add(1)) * time.Second }

func (f *fakePlane) freeze() { f.frozen.Store(true) }

func (f *fakePlane) thaw() { f.frozen.Store(false) }

func (f *fakePlane) stop() time.Duration {
	f.running.Add(-1)
	return time.Second
}

// A borrower has a control plane for itself; what is returned is lent again, but for what cannot be reset; Close stops all.
func TestPool(t *testing.T) {
	t.Parallel()
	var broken atomic.Bool
	var running atomic.Int32
	socket := fmt.Sprintf("@mooring-pool-test-%d", time.Now().UnixNano())
	p := must.Get(open(socket, 1, func(_ context.Context, folder string) (plane, error) {
		running.Add(1)
		return &fakePlane{folder: folder, broken: &broken, running: &running}, nil
	})).Or(t)
	idle := func(want int) {
		t.Helper()
		testkit.Eventually(t, fmt.Sprintf("%d idle control planes", want), func() string {
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.idle) == want && p.usage.Broken == map[bool]int{true: 1}[broken.Load()] {
				return ""
			}
			return fmt.Sprintf("%d are idle, %+v", len(p.idle), p.usage)
		})
	}
	borrow := func() *Loan {
		t.Helper()
		loan := must.Get(Borrow(t.Context(), socket)).Or(t)
		return loan
	}
	first, second := borrow(), borrow()
	if first.Dir == second.Dir {
		t.Errorf("two borrowers have %s", first.Dir)
	}
	first.Return()
	idle(1)
	third := borrow()
	if third.Dir != first.Dir {
		t.Errorf("%s is lent while %s is idle", third.Dir, first.Dir)
	}
	broken.Store(true)
	third.Return()
	idle(0)
	usage, err := p.Close()
	folder, _ := os.Getwd()
	want := Usage{Starts: 2, Loans: 3, Broken: 1, CPU: 2 * time.Second, Lent: map[string]time.Duration{folder: 3 * time.Second}}
	if err != nil || !reflect.DeepEqual(usage, want) {
		t.Errorf("%+v, %v, want %+v", usage, err, want)
	}
	if n := running.Load(); n != 0 {
		t.Errorf("%d control planes run", n)
	}
	if _, err := Borrow(t.Context(), socket); err == nil {
		t.Error("a pool that is closed lends")
	}
}

// Why a control plane did not start is told to the borrower.
func TestAControlPlaneThatDoesNotStart(t *testing.T) {
	t.Parallel()
	socket := fmt.Sprintf("@mooring-pool-test-%d", time.Now().UnixNano())
	p, err := open(socket, 1, func(context.Context, string) (plane, error) { return nil, errors.New("no memory") })
	must.Do(t, err)
	if _, err := Borrow(t.Context(), socket); err == nil || err.Error() != "borrowing a control plane: no memory" {
		t.Errorf("got %v", err)
	}
	if _, err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	got := changes(map[string]string{"gone": "1", "same": "2", "other": "3"}, map[string]string{"same": "2", "other": "4", "new": "5"})
	var said []string
	for _, op := range got {
		said = append(said, fmt.Sprint(op.IsDelete(), " ", string(op.KeyBytes()), " ", string(op.ValueBytes())))
	}
	if want := "[true gone  false new 5 false other 4]"; fmt.Sprint(said) != want {
		t.Errorf("%v, want %s", said, want)
	}
}
