// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/disks"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/blocklog"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// crashes is one machine on which disks are staged that lost power.
type crashes struct {
	*testing.T

	folder     string
	disks      *disks.Disks
	fileSystem string
	size       int64 // of the disk that is used now, in bytes
	count      int
}

const (
	crashedSize = 1 << 30
	// grownSize is the size of a disk that was grown since the power failure.
	grownSize   = 2 * crashedSize
	crashedFile = "file"
	// powerless is how the names of disks end that hold the file.
	powerless = "-powerless"
	// crashedData is what was written and synced before the crash.
	crashedData = "what a person keeps"
)

// with is a machine of another test's own.
func (c *crashes) with(t *testing.T) *crashes {
	t.Helper()
	other := &crashes{T: t, folder: inMemory(t), fileSystem: c.fileSystem, size: c.size}
	other.disks = disks.New(other.folder)
	t.Cleanup(other.disks.Close)
	return other
}

// node is the node plugin with what it had kept on its own disk.
func (c *crashes) node(state string) *csi.Node {
	host := &blockdevice.Host{
		Links: c.disks.Links(1), Sysfs: c.disks.Sysfs(), State: state, Clock: clock.RealClock{},
	}
	return csi.NewNode(csi.NodeOptions{Droplet: "1", Region: "nyc1", VolumeLimit: 15, Log: logr.Discard(), Host: host})
}

func (c *crashes) must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// on does something with a file that is the disk of a volume.
func (c *crashes) on(file string, do func(volume, device string)) {
	c.Helper()
	c.count++
	volume := strconv.Itoa(c.count)
	c.must(c.disks.Create(volume, "pvc-"+volume, int(c.size>>30), ""))
	c.must(os.Remove(c.disks.File(volume)))
	c.must(os.Symlink(file, c.disks.File(volume)))
	c.must(c.disks.Attach(volume, 1))
	device := c.disks.Device(volume)
	do(volume, device)
	// One that is used would be pulled out, and its file kept as it was then.
	testkit.Eventually(c.T, "a device that nobody has", func() string {
		f, err := os.OpenFile(device, os.O_RDONLY|unix.O_EXCL, 0) //nolint:gosec // ours
		if err != nil {
			return err.Error()
		}
		_ = f.Close()
		return ""
	})
	c.must(c.disks.Detach(volume, 1))
	c.must(c.disks.Delete(volume))
}

// stage stages a volume. What the plugin keeps of it is under an ID that is the same for all disks of a story.
func (c *crashes) stage(state, volume string, right volume.Right) (path string, err error) {
	path = filepath.Join(c.folder, "staging", volume)
	_, err = c.node(state).NodeStageVolume(c.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: "id", StagingTargetPath: path, VolumeCapability: mounted(c.fileSystem), VolumeContext: made(),
		PublishContext: map[string]string{
			csi.VolumeNameKey: "pvc-" + volume, csi.VolumeSizeKey: strconv.FormatInt(c.size, 10), csi.FormatKey: string(right),
		},
	})
	return path, err
}

// unmount waits for what other tests of this process still have open: a child that was forked and has not begun its
// program.
func (c *crashes) unmount(path string) {
	c.Helper()
	testkit.Eventually(c.T, "the end of a mount", func() string {
		if err := unix.Unmount(path, 0); err != nil {
			return err.Error()
		}
		return ""
	})
}

// sparse makes a file of zeros, or a copy of what another one holds.
func (c *crashes) sparse(name, from string) string {
	c.Helper()
	path, content := filepath.Join(c.folder, name), blocklog.Content{}
	if from != "" {
		content = c.read(from)
	}
	c.must(content.Save(path, c.size))
	return path
}

func (c *crashes) read(path string) blocklog.Content {
	c.Helper()
	content, err := blocklog.Read(path)
	c.must(err)
	return content
}

// recorded stages a copy of a disk, and returns what that wrote.
func (c *crashes) recorded(base string, right volume.Right) []blocklog.Write {
	c.Helper()
	log := blocklog.New(c.T, testkit.Folder(c.T, "log"), c.sparse("recorded", base))
	c.on(log.Path(), func(volume, device string) {
		path, err := c.stage(testkit.Folder(c.T, "state"), volume, right)
		c.must(err)
		c.unmount(path)
		flush := exec.CommandContext(c.Context(), "blockdev", "--flushbufs", device) //nolint:gosec // ours
		if out, err := flush.CombinedOutput(); err != nil {
			c.Fatalf("%v: %s", err, out)
		}
	})
	return log.Writes()
}

// used returns a disk with a file, as it is while the file system is mounted: a power failure left it.
func (c *crashes) used(name string) string {
	c.Helper()
	disk, copied := c.sparse(name, ""), ""
	c.on(disk, func(volume, device string) {
		path, err := c.stage(testkit.Folder(c.T, "state"), volume, "first")
		c.must(err)
		f, err := os.Create(filepath.Join(path, crashedFile)) //nolint:gosec // ours
		c.must(err)
		_, err = f.WriteString(crashedData)
		c.must(errors.Join(err, f.Sync(), f.Close()))
		copied = c.sparse(name+powerless, disk)
		c.unmount(path)
		_ = device
	})
	return copied
}

// grown returns what used does, of a volume that was grown after the power failure.
func (c *crashes) grown() string {
	c.Helper()
	small := c.used("small")
	c.size = grownSize
	return c.sparse("grown"+powerless, small)
}

// inMemory returns a folder where a flush costs nothing: what a disk loses is drawn, and needs no disk.
func inMemory(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("/dev/shm", "crash") //nolint:usetesting // the tests' own is on a disk
	if err != nil {
		return testkit.Folder(t, "crash")
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return folder
}

// TestEveryCrashOfAStage: each state that a disk can be in after a crash of a stage, of mkfs, of the repair, of growth
// or of the replay of a journal, is staged, or refused without a byte written. What a person wrote is there afterwards,
// and no disk is formatted that ever held it.
func TestEveryCrashOfAStage(t *testing.T) {
	t.Parallel()
	needDevices(t)
	for _, fileSystem := range []string{"ext4", "xfs"} {
		t.Run(fileSystem, func(t *testing.T) {
			t.Parallel()
			c := (&crashes{fileSystem: fileSystem, size: crashedSize}).with(t)
			blank, used := c.sparse("blank", ""), c.used("used")
			making, repairing := c.recorded(blank, "first"), c.recorded(used, "attached-before")
			grown := c.grown()
			growing := c.recorded(grown, "attached-before")
			t.Logf("mkfs and mount make %d writes, repair and mount %d, and with growth %d",
				len(making), len(repairing), len(growing))
			const first, spent = volume.RightFirst, volume.RightSpent
			for _, one := range []story{
				{"mkfs", blank, making, "begun ", first, crashedSize, true},
				{"mkfs, nothing is kept", blank, making, "", first, crashedSize, false},
				{"mkfs, at another node", blank, making, "", spent, crashedSize, false},
				{"mkfs was done long ago", blank, making, "done ", first, crashedSize, false},
				{"repair", used, repairing, "", spent, crashedSize, false},
				{"repair, where it began", used, repairing, "done ", first, crashedSize, false},
				{"growth", grown, growing, "", spent, grownSize, false},
				{"growth, where it began", grown, growing, "done ", first, grownSize, false},
			} {
				t.Run(one.name, func(t *testing.T) {
					t.Parallel()
					c.with(t).tryStates(one)
				})
			}
		})
	}
}

// story is a stage that a crash ended, and where the disk is staged after it.
type story struct {
	name, base string // what it is, and the disk before
	writes     []blocklog.Write
	progress   string // what the node has kept
	right      volume.Right
	size       int64
	all        bool // every state is staged; a superblock of which half was written is otherwise for a person
}

// tryStates stages disks as crashes left them. Disks that are equal are staged once.
func (c *crashes) tryStates(s story) {
	c.Helper()
	seed := cases.Seed(c.T)
	random := rand.New(rand.NewPCG(seed, uint64(len(s.name)))) //nolint:gosec // it is to be repeated
	base, judged, ended := c.read(s.base), map[[sha256.Size]byte]bool{}, map[string]int{}
	c.size = s.size
	for range cases.Number(c.T, 4, 125, 6250) {
		after, serials, designators := random.IntN(len(s.writes)+1), assumed.DiskSerialBytes(), assumed.DiskDesignatorBytes()
		c.disks.Show(serials[random.IntN(len(serials))], designators[random.IntN(len(designators))])
		content := base.After(blocklog.Crash(s.writes[:after], random))
		if sum := content.Sum(); judged[sum] {
			ended["equal to an earlier one"]++
		} else {
			judged[sum] = true
			ended[c.tryState(s, content, fmt.Sprintf("%s after %d of %d writes", s.name, after, len(s.writes)))]++
		}
	}
	c.Logf("%s, %s: %v", c.fileSystem, s.name, ended)
}

// tryState stages a disk, and returns how that ended.
func (c *crashes) tryState(s story, content blocklog.Content, what string) (ended string) {
	c.Helper()
	disk, state := filepath.Join(c.folder, "crashed"), testkit.Folder(c.T, "state")
	c.must(content.Save(disk, c.size))
	if s.progress != "" {
		file := filepath.Join(state, fmt.Sprintf("format-%x", sha256.Sum256([]byte("id"))))
		c.must(os.WriteFile(file, []byte(s.progress+"pvc\n"), 0o600))
	}
	c.on(disk, func(volume, device string) {
		path, err := c.stage(state, volume, s.right)
		ended = "staged"
		if c.size == grownSize && err != nil && strings.Contains(err.Error(), "errors that need a decision: run e2fsck") {
			// resize2fs keeps no journal, and e2fsck -p repairs what costs no data before it gives up. A person
			// does what the message says, and has all that was written.
			_ = exec.CommandContext(c.Context(), "e2fsck", "-fy", device).Run() //nolint:gosec // ours
			ended = "staged after a person's decision"
			path, err = c.stage(state, volume, s.right)
		}
		switch {
		case err == nil:
			c.checkStaged(what, path, s.base)
		case s.all:
			c.Errorf("%s: %v", what, err)
		case strings.Contains(err.Error(), "mounting "): // the kernel looks deeper than the driver does
			ended = "not mounted"
		case status.Code(err) != codes.FailedPrecondition:
			c.Errorf("%s: %v", what, err)
		case strings.HasSuffix(s.base, powerless) && !strings.Contains(err.Error(), "superblock has a wrong checksum"):
			c.Errorf("%s: a file is there, and it is refused: %v", what, err)
		case c.read(disk).Sum() != content.Sum():
			c.Errorf("%s: refused, and written to: %v", what, err)
		default:
			ended = "refused"
		}
	})
	// The kernel keeps the file of a disk for as long as anybody has that open: a child that was forked and has not begun.
	testkit.Eventually(c.T, "the file of a disk that was detached to be free", func() string {
		if err := os.Remove(disk); err != nil {
			return err.Error()
		}
		return ""
	})
	return ended
}

// checkStaged writes to what is staged, and looks for what was there.
func (c *crashes) checkStaged(what, path, base string) {
	c.Helper()
	defer c.unmount(path)
	if strings.HasSuffix(base, powerless) {
		got, err := os.ReadFile(filepath.Join(path, crashedFile)) //nolint:gosec // ours
		if err != nil || string(got) != crashedData {
			c.Errorf("%s: the file has %q, %v", what, got, err)
		}
	}
	var st unix.Statfs_t
	c.must(unix.Statfs(path, &st))
	if has := int64(st.Blocks) * st.Bsize; has < c.size*8/10 { //nolint:gosec // a disk is small
		c.Errorf("%s: the file system has %d bytes, and its disk %d", what, has, c.size)
	}
	f, err := os.Create(filepath.Join(path, "another")) //nolint:gosec // ours
	if err == nil {
		err = errors.Join(f.Sync(), f.Close())
	}
	if err != nil {
		c.Errorf("%s: %v", what, err)
	}
}
