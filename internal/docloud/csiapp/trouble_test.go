// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// trouble kills programs at points that a seed decides: at a call to DigitalOcean, at a program that the node plugin runs, or at a time.
type trouble struct {
	folder string

	mu     sync.Mutex // guards all below
	calls  int        // until the kill
	after  bool       // the call is applied before the kill
	victim *testkit.Process
	kills  map[string]int

	planned map[string]bool // kills at programs
}

func (tr *trouble) point(name string) string { return filepath.Join(tr.folder, "kill-"+name) }

// struck counts the kills at programs that have happened.
func (tr *trouble) struck() {
	for point := range tr.planned {
		if _, err := os.Stat(tr.point(point)); errors.Is(err, fs.ErrNotExist) {
			tr.count("node plugin " + point + " a program")
			delete(tr.planned, point)
		}
	}
}

// wrapper stands in front of a program: it logs what is done to which volume and how often the node plugin has it open, and kills the process group of the node plugin where that is planned.
const wrapper = `#!/bin/sh
for last; do :; done
file=$(cat /sys/block/"${last##*/}"/loop/backing_file 2>/dev/null)
held=$(ls -l /proc/$PPID/fd | grep -c -e " -> $last\$")
echo "begin NAME ${file##*/} $held" >>FOLDER/log
if rm FOLDER/kill-before 2>/dev/null; then kill -9 0; fi
if during=$(cat FOLDER/kill-during 2>/dev/null); then
	rm FOLDER/kill-during
	REAL "$@" &
	sleep "$during"
	kill -9 0
fi
REAL "$@"
code=$?
echo "end NAME ${file##*/} $code" >>FOLDER/log
if rm FOLDER/kill-after 2>/dev/null; then kill -9 0; fi
exit $code
`

// newTrouble makes the folder with the programs.
func newTrouble(t *testing.T) *trouble {
	t.Helper()
	needDevices(t)
	tr := &trouble{folder: testkit.Folder(t, "programs"), kills: map[string]int{}, planned: map[string]bool{}}
	for _, name := range []string{"mkfs.ext4", "mkfs.xfs", "e2fsck", "resize2fs", "xfs_growfs"} {
		program, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		script := strings.NewReplacer("NAME", name, "FOLDER", tr.folder, "REAL", program).Replace(wrapper)
		if err := os.WriteFile(filepath.Join(tr.folder, name), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
			t.Fatal(err)
		}
	}
	return tr
}

// between stands between the driver and the simulator.
func (tr *trouble) between(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tr.mu.Lock()
		victim, after := tr.victim, tr.after
		if tr.calls--; victim == nil || tr.calls != 0 {
			tr.mu.Unlock()
			next.ServeHTTP(w, r)
			return
		}
		tr.victim = nil
		tr.mu.Unlock()
		if after {
			next.ServeHTTP(httptest.NewRecorder(), r)
		}
		tr.kill(victim, map[bool]string{false: "controller before a call", true: "controller after a call"}[after])
		panic(http.ErrAbortHandler)
	})
}

func (tr *trouble) kill(victim *testkit.Process, point string) {
	select {
	case <-victim.Done():
	default:
		victim.Kill()
		tr.count(point)
	}
}

func (tr *trouble) count(point string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.kills[point]++
}

// plan draws one kill, and returns what takes it back.
func (tr *trouble) plan(random *rand.Rand, controller, node *testkit.Process) (end func()) {
	points := []string{"before", "during", "after"}
	point, tail := points[random.IntN(len(points))], random.IntN(100)
	after := time.Duration(random.IntN(40_000)) * time.Microsecond
	switch random.IntN(5) {
	case 0, 1:
		tr.mu.Lock()
		defer tr.mu.Unlock()
		tr.calls, tr.after, tr.victim = 1+tail%5, tail%2 == 0, controller
		return func() {
			tr.mu.Lock()
			defer tr.mu.Unlock()
			tr.victim = nil
		}
	case 2, 3: // it stays until a program runs
		_ = os.WriteFile(tr.point(point), fmt.Appendf(nil, "0.%03d", tail), 0o600)
		tr.planned[point] = true
		return func() {}
	default:
		victim, what := controller, "controller at a time"
		if tail%2 == 0 {
			victim, what = node, "node plugin at a time"
		}
		timer := time.AfterFunc(after, func() { tr.kill(victim, what) })
		return func() { timer.Stop() }
	}
}

// faults are those of DigitalOcean's API.
func faults() []fault.Rule {
	const changes = "POST /v2/volumes/{volume_id}/actions"
	return []fault.Rule{
		{Kind: fault.Error, Status: http.StatusInternalServerError, Probability: .02},
		{Kind: fault.ProxyError, Probability: .01},
		{Kind: fault.Reset, Probability: .02},
		{Kind: fault.TruncatedJSON, Probability: .01},
		{Kind: fault.ShortBody, Probability: .01},
		{Kind: fault.Delay, Delay: 20 * time.Millisecond, Jitter: 200 * time.Millisecond, Probability: .05},
		{Route: changes, Kind: fault.CutAfterApply, Probability: .05},
		{Route: changes, Kind: fault.ErrorAfterApply, Probability: .03},
		{Route: changes, Kind: fault.HangAfterApply, Probability: .01},
		{Route: "POST /v2/volumes", Kind: fault.CutAfterApply, Probability: .2},
		{Route: "POST /v2/volumes", Kind: fault.HangAfterApply, Probability: .02},
		{Route: "DELETE *", Kind: fault.CutAfterApply, Probability: .1},
		{Route: "GET /v2/volumes", Kind: fault.HideItems, Probability: .1},
		{Route: "GET /v2/snapshots", Kind: fault.HideItems, Probability: .05},
	}
}
