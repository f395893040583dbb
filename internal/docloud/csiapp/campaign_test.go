// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// campaign does what Kubernetes' sidecars and kubelet do, at random, while everything fails, and knows what each disk must hold.
type campaign struct {
	*scene

	random   *rand.Rand
	trouble  *trouble
	controls []*program
	volumes  []*disk
	made     int
	logged   int // of the programs' log, in bytes
	count    map[string]int
}

// disk is what is known of a volume.
type disk struct {
	id, fileSystem string // file system "" is a raw block volume
	size           int64  // GiB
	at             *machine
	attributes     map[string]string // of its PersistentVolume
	published      map[string]string
	bound          bool // staged and published
	made           bool // it has a file system, or data
	complete       bool // mkfs has succeeded
	before         attachedBefore
	data           map[string][]byte // by file, or by offset; all of it was synced
}

// attachedBefore is whether a disk was at a droplet before the one that has it, as far as this test can know.
type attachedBefore int

const (
	never attachedBefore = iota
	perhaps
	surely
)

// TestNoByteIsLost runs random operations on real bytes while both programs are killed at any point and DigitalOcean's API fails, with every pair of what
// disks show of their serial numbers and how far lists are behind. The seed replays the
// operations, the faults of the API, and what is killed at which call or program. Kills at a time fall a few milliseconds apart from run to run.
func TestNoByteIsLost(t *testing.T) {
	t.Parallel()
	seed := cases.Seed(t)
	tr := newTrouble(t)
	const quick = 30 * time.Millisecond
	c := &campaign{trouble: tr, random: rand.New(rand.NewPCG(seed, seed)), count: map[string]int{}} //nolint:gosec // it is to be repeated
	c.scene = newSceneWith(t, 3, sceneOptions{
		seed: seed, between: tr.between, programs: tr.folder,
		volumes: digitalocean.VolumeOptions{AttachAfter: quick, DetachAfter: quick, ResizeAfter: quick, SnapshotEvery: -1, ErrorProbability: .05},
	})
	c.controls = []*program{c.control, c.newController("controller-2")}
	if err := c.sim.Inject(faults()...); err != nil {
		t.Fatal(err)
	}
	for c.count["operations"] < cases.Number(t, 30, 80, 500) {
		c.step()
	}
	c.sim.ClearFaults()
	c.cleanUp()
	for _, name := range slices.Sorted(maps.Keys(c.count)) {
		t.Logf("%4d %s", c.count[name], name)
	}
	for _, point := range slices.Sorted(maps.Keys(tr.kills)) {
		t.Logf("%4d kills of %s", tr.kills[point], point)
	}
}

// step is one operation, maybe with a kill.
func (c *campaign) step() {
	c.control = c.controls[c.random.IntN(len(c.controls))]
	c.disks.Late(time.Duration(max(0, c.random.IntN(1000)-400)) * time.Millisecond)
	serial := c.vary()
	designators := assumed.DiskDesignatorBytes()
	// A link that is left over is told from a good one by what disks show: here each of them shows something.
	c.disks.Show(serial, max(designators[c.random.IntN(len(designators))], assumed.VolumeNameLength*(1-min(serial, 1))))
	c.disks.KeepLinks(c.random.IntN(3) == 0)
	c.disks.Mislead(c.random.IntN(2) == 0)
	end := func() {}
	if c.random.IntN(2) == 0 {
		end = c.trouble.plan(c.random, c.control.process, c.droplets[c.random.IntN(len(c.droplets))].process)
	}
	op, d := c.choose()
	op.do(c, d)
	end()
	c.trouble.struck()
	c.revive()
	c.count["operations"]++
	c.count["operations: "+op.name]++
	c.check(op.name)
}

// vary takes the next of the pairs of what disks show and how far lists are behind, and returns how many bytes of a serial number disks show.
// Actions take 30 ms here, not seconds. At night lists lag as long as assumed, otherwise a fiftieth of it.
func (c *campaign) vary() (serial int) {
	serials, lags := assumed.DiskSerialBytes(), assumed.ListLags()
	operation := c.count["operations"]
	serial = serials[operation%len(serials)]
	lag := lags[operation/len(serials)%len(lags)]
	if !cases.Night() {
		lag /= 50
	}
	c.sim.SetConsistency(digitalocean.Consistency{List: lag})
	c.count[fmt.Sprintf("operations with %d bytes of a serial number, lists %s behind", serial, lag)]++
	return serial
}

// choose draws an operation that is possible, and a disk for it.
func (c *campaign) choose() (operation, *disk) {
	all := operations()
	total := 0
	for _, op := range all {
		total += op.weight
	}
	for {
		at := c.random.IntN(total)
		op := all[0]
		for _, op = range all {
			if at -= op.weight; at < 0 {
				break
			}
		}
		if op.can == nil && len(c.volumes) < mostVolumes {
			return op, nil
		}
		if op.can == nil {
			continue
		}
		var fit []*disk
		for _, d := range c.volumes {
			if op.can(c, d) {
				fit = append(fit, d)
			}
		}
		if len(fit) > 0 {
			return op, fit[c.random.IntN(len(fit))]
		}
		if len(c.volumes) == 0 {
			return all[0], nil
		}
	}
}

// revive starts what was killed.
func (c *campaign) revive() {
	for _, p := range c.controls {
		if p.ended() {
			c.start(p)
		}
	}
	for _, m := range c.droplets {
		if m.ended() {
			c.start(m.program)
		}
	}
}

// again does something until it succeeds, as the sidecars and kubelet do.
func (c *campaign) again(what string, do func(ctx context.Context) error) {
	c.t.Helper()
	const most = 60
	for attempt := range most {
		err := c.try(do)
		if err == nil {
			return
		}
		c.count["requests tried again"]++
		if attempt == most-1 {
			c.showStacks()
			c.t.Fatalf("%s does not succeed: %v", what, err)
		}
		c.wait(attempt)
	}
}

// refused does something until it is refused, and fails the test if it succeeds.
func (c *campaign) refused(what string, do func(ctx context.Context) error, as ...codes.Code) {
	c.t.Helper()
	const most = 60
	for attempt := range most {
		err := c.try(do)
		if err == nil {
			c.t.Errorf("%s was not refused", what)
			return
		}
		if slices.Contains(as, status.Code(err)) && !strings.Contains(err.Error(), "connection error") {
			c.count["refused as it must be"]++
			return
		}
		if attempt == most-1 {
			c.t.Fatalf("%s is not refused as one of %v: %v", what, as, err)
		}
		c.wait(attempt)
	}
}

func (c *campaign) try(do func(ctx context.Context) error) error {
	c.revive()
	ctx, cancel := context.WithTimeout(c.t.Context(), 20*time.Second)
	defer cancel()
	return do(ctx)
}

// showStacks makes all programs log what they do, which ends them.
func (c *campaign) showStacks() {
	for _, p := range c.controls {
		p.process.Signal(unix.SIGQUIT)
		<-p.process.Done()
	}
	for _, m := range c.droplets {
		m.process.Signal(unix.SIGQUIT)
		<-m.process.Done()
	}
}

func (c *campaign) wait(attempt int) {
	select {
	case <-c.t.Context().Done():
	case <-time.After(min(20*time.Millisecond<<min(attempt, 6), time.Second)):
	}
}

// loops finds the loop device in a line of mountinfo: by its number, or as what is bound.
var loops = regexp.MustCompile(`^\d+ \d+ (?:7:(\d+) \S+|\d+:\d+ /loop(\d+)) (\S+)`)

// check looks at what must hold at any time.
func (c *campaign) check(after string) {
	c.t.Helper()
	where := map[string]*machine{}
	for _, m := range c.droplets {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", m.holder.PID()))
		if err != nil {
			c.t.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			found := loops.FindStringSubmatch(line)
			if found == nil || !strings.HasPrefix(found[3], m.folder) {
				continue
			}
			file, _ := os.ReadFile("/sys/block/loop" + found[1] + found[2] + "/loop/backing_file")
			id := strings.TrimPrefix(filepath.Base(strings.TrimSpace(string(file))), "volume-")
			if other, twice := where[id]; twice && other != m {
				c.t.Errorf("after %s: volume %s is on machines %d and %d", after, id, other.id, m.id)
			}
			where[id] = m
		}
	}
	for _, v := range c.sim.Account("").Volumes() {
		if m, used := where[v.ID]; used && (len(v.DropletIDs) != 1 || v.DropletIDs[0] != m.id) {
			c.t.Errorf("after %s: volume %s is in use on machine %d and attached to %v", after, v.ID, m.id, v.DropletIDs)
		}
		if len(v.DropletIDs) > 1 {
			c.t.Errorf("after %s: volume %s is attached to %v", after, v.ID, v.DropletIDs)
		}
	}
	c.checkFormats(after)
	if c.t.Failed() {
		c.t.FailNow()
	}
}

// checkFormats reads the programs' log: no disk is formatted that has a file system or data.
func (c *campaign) checkFormats(after string) {
	text, _ := os.ReadFile(filepath.Join(c.trouble.folder, "log"))
	for line := range strings.Lines(string(text[c.logged:])) {
		words := strings.Fields(line)
		if len(words) < 3 || !strings.HasPrefix(words[1], "mkfs.") {
			continue
		}
		for _, d := range c.volumes {
			if "volume-"+d.id != words[2] {
				continue
			}
			if words[0] == "begin" {
				c.count["formats"]++
			}
			if words[0] == "begin" && words[3] == "0" {
				c.t.Errorf("after %s: volume %s could be another disk by now: nothing holds it while %s runs", after, d.id, words[1])
			}
			if words[0] == "begin" && (d.complete || len(d.data) > 0) {
				c.t.Errorf("after %s: %s on volume %s, which has a file system or data", after, words[1], d.id)
			}
			d.complete = d.complete || words[0] == "end" && words[3] == "0"
		}
	}
	c.logged = len(text)
}

// cleanUp takes everything apart: nothing may be left.
func (c *campaign) cleanUp() {
	c.t.Helper()
	for _, d := range slices.Clone(c.volumes) {
		if d.at == nil { // what it holds is read a last time
			c.attachDisk(d, c.anyMachine())
		}
		if d.bound || c.useDisk(d) {
			c.giveUp(d)
		}
	}
	c.check("the end")
	if left := c.sim.Account("").Volumes(); len(left) > 0 {
		c.t.Errorf("%d volumes are left: %+v", len(left), left)
	}
	if left := c.sim.Account("").Snapshots(); len(left) > 0 {
		c.t.Errorf("%d snapshots are left: %+v", len(left), left)
	}
	for _, m := range c.droplets {
		for _, folder := range []string{m.staging(""), m.target("")} {
			if left, _ := os.ReadDir(c.see(m, folder)); len(left) > 0 {
				c.t.Errorf("machine %d has %v left in %s", m.id, left, folder)
			}
		}
	}
	testkit.Eventually(c.t, "the end of all loop devices", func() string {
		files, _ := filepath.Glob("/sys/block/loop*/loop/backing_file")
		for _, name := range files {
			if file, _ := os.ReadFile(name); strings.HasPrefix(string(file), c.folder) {
				return name + " is " + string(file)
			}
		}
		return ""
	})
}
