// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// wipe makes a disk all zeros, as if it had never been used: no byte tells that it held files.
func (s *scene) wipe(volume string) {
	s.t.Helper()
	file := s.disks.File(volume)
	info, err := os.Stat(file)
	s.must(err)
	s.must(os.Truncate(file, 0))
	s.must(os.Truncate(file, info.Size()))
	flush := exec.CommandContext(s.t.Context(), "blockdev", "--flushbufs", s.disks.Device(volume)) //nolint:gosec // ours
	out, err := flush.CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, out)
	}
}

// isBlank reports whether a disk has nothing but zeros.
func (s *scene) isBlank(volume string) bool {
	s.t.Helper()
	blank := true
	s.must(eachBlock(s.disks.File(volume), func(int64, []byte) { blank = false }))
	return blank
}

// eachBlock calls what is given for each block of a sparse file that is not all zeros.
func eachBlock(path string, do func(at int64, block []byte)) error {
	f, err := os.Open(path) //nolint:gosec // ours
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 4096)
	for at := int64(0); ; {
		data, err := f.Seek(at, unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			return nil
		}
		if err != nil {
			return err
		}
		if at, err = f.Seek(data, unix.SEEK_HOLE); err != nil {
			return err
		}
		for ; data < at; data += int64(len(block)) {
			n, err := f.ReadAt(block, data)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			if len(bytes.Trim(block[:n], "\x00")) > 0 { // what is zero may be a hole or not
				do(data, block[:n])
			}
		}
	}
}

// TestADiskThatHeldAFileIsNeverFormatted, though every byte of it is zero: its right was spent, wherever it is staged
// then.
func TestADiskThatHeldAFileIsNeverFormatted(t *testing.T) { //nolint:tparallel // the subtests share the machines
	t.Parallel()
	s := newScene(t, 2, digitalocean.VolumeOptions{})
	for _, fileSystem := range []string{"ext4", "xfs"} {
		t.Run(fileSystem, func(t *testing.T) {
			volume, capability := s.create("pvc-"+fileSystem, 1), mounted(fileSystem)
			first, second := s.droplets[0], s.droplets[1]
			published := s.attach(first, volume)
			s.must(s.stage(first, volume, published, capability))
			s.must(s.publish(first, volume, published, capability))
			s.must(os.WriteFile(filepath.Join(s.see(first, first.target(volume)), "file"), []byte("data"), 0o600))
			s.must(s.withdraw(first, volume))
			refused := func(m *machine, published map[string]string, words string) {
				t.Helper()
				s.wipe(volume)
				err := s.stage(m, volume, published, capability)
				if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), words) || !s.isBlank(volume) {
					t.Errorf("%v; want %q, and no byte written", err, words)
				}
			}
			refused(first, published, "this node has made one")
			first.process.Kill()
			s.start(first.program)
			refused(first, published, "this node has made one")
			s.detach(first, volume)
			for _, m := range []*machine{second, first} {
				published := s.attach(m, volume)
				refused(m, published, "was attached before")
				s.detach(m, volume)
			}
		})
	}
}

// TestAKilledMkfsIsFinished by the same right: a plugin killed before mkfs, at any time during it and after it. At
// another node what was left is refused.
func TestAKilledMkfsIsFinished(t *testing.T) { //nolint:tparallel // the subtests share the machines
	t.Parallel()
	tr := newTrouble(t)
	s := newSceneWith(t, 2, sceneOptions{programs: tr.folder, volumes: digitalocean.VolumeOptions{PerDroplet: 40}})
	m := s.droplets[0]
	points := []string{"before", "after"}
	for delay := range cases.Number(t, 2, 4, 16) { // mkfs takes some 40 ms here
		points = append(points, fmt.Sprintf("during 0.%03d", 4*delay))
	}
	for _, fileSystem := range []string{"ext4", "xfs"} {
		for i, point := range points {
			t.Run(fileSystem+" "+point, func(t *testing.T) {
				volume, capability := s.create(fmt.Sprintf("pvc-%s-%d", fileSystem, i), 1), mounted(fileSystem)
				published := s.attach(m, volume)
				at, after, _ := strings.Cut(point, " ")
				s.must(os.WriteFile(tr.point(at), []byte(after), 0o600))
				if err := s.stage(m, volume, published, capability); err == nil {
					t.Fatal("the plugin was not killed")
				}
				testkit.Eventually(t, "the end of the plugin", func() string {
					if !m.ended() {
						return "it runs"
					}
					return ""
				})
				<-time.After(100 * time.Millisecond) // mkfs is of its process group, and ends with it
				s.start(m.program)
				s.must(s.stage(m, volume, published, capability))
				s.must(s.publish(m, volume, published, capability))
				s.must(os.WriteFile(filepath.Join(s.see(m, m.target(volume)), "file"), []byte("data"), 0o600))
				s.must(s.withdraw(m, volume))
				s.heldWhileFormatted(tr, volume)
				if got, want := s.uuid(volume), (blockdevice.Volume{ID: volume}).UUID().String(); got != want {
					t.Errorf("its file system has the UUID %s, want %s", got, want)
				}
				s.detach(m, volume)
			})
		}
	}
	t.Run("at another node", func(t *testing.T) {
		volume := s.create("pvc-moved", 1)
		published := s.attach(m, volume)
		s.must(os.WriteFile(tr.point("during"), []byte("0.008"), 0o600))
		_ = s.stage(m, volume, published, mounted("ext4"))
		testkit.Eventually(t, "the end of the plugin", func() string {
			if !m.ended() {
				return "it runs"
			}
			return ""
		})
		s.start(m.program)
		s.detach(m, volume)
		other := s.droplets[1]
		before := s.ends(volume)
		err := s.stage(other, volume, s.attach(other, volume), mounted("xfs"))
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%v", err)
		}
		if !bytes.Equal(before, s.ends(volume)) {
			t.Error("the disk has changed")
		}
	})
}

// heldWhileFormatted checks that the plugin had the volume's device open whenever mkfs began: otherwise its name could
// have become another disk's since it was read.
func (s *scene) heldWhileFormatted(tr *trouble, volume string) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(tr.folder, "log"))
	s.must(err)
	begun := regexp.MustCompile(`(?m)^begin mkfs\.\w+ volume-`+volume+` (\d+)$`).FindAllStringSubmatch(string(text), -1)
	if len(begun) == 0 {
		s.t.Errorf("volume %s: no mkfs in %s", volume, text)
	}
	for _, one := range begun {
		if one[1] == "0" {
			s.t.Errorf("volume %s is not held: %s", volume, one[0])
		}
	}
}

// uuid asks blkid, which is no part of the driver, for the UUID of a volume's file system.
func (s *scene) uuid(volume string) string {
	s.t.Helper()
	args := []string{"-p", "-o", "value", "-s", "UUID", s.disks.File(volume)}
	out, err := exec.CommandContext(s.t.Context(), "blkid", args...).CombinedOutput() //nolint:gosec // ours
	if err != nil {
		s.t.Fatalf("blkid: %v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestVolumesThatHaveNoRight: what a person made, blank, is staged only if its PersistentVolume says so; what has a
// file system always is.
func TestVolumesThatHaveNoRight(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	byHand := func(name string) string {
		v, err := s.sim.Account("").CreateVolume(digitalocean.VolumeSpec{Name: name, Size: 1})
		s.must(err)
		return v.ID
	}
	attach := func(volume string, attributes map[string]string) map[string]string {
		answer, err := s.controller().ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{
			VolumeId: volume, NodeId: m.nodeID(), VolumeCapability: mounted("ext4"), VolumeContext: attributes,
		})
		s.must(err)
		return answer.GetPublishContext()
	}
	blank := byHand("data")
	err := s.stage(m, blank, attach(blank, nil), mounted("ext4"))
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), csi.FormatKey+": blank") ||
		!s.isBlank(blank) {
		t.Errorf("%v", err)
	}
	s.detach(m, blank)
	allowed := map[string]string{csi.FormatKey: "blank"}
	s.must(s.stage(m, blank, attach(blank, allowed), mounted("ext4")))
	s.must(s.withdraw(m, blank))
	s.detach(m, blank)
	s.must(s.stage(m, blank, attach(blank, nil), mounted("ext4"))) // it has one now
	s.must(s.withdraw(m, blank))
}

// TestALinkToAnotherVolumeOfItsSize is told by the file system where disks show nothing: neither volume is given to the
// other's pod.
func TestALinkToAnotherVolumeOfItsSize(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	s.disks.Show(0, 0)
	m := s.droplets[0]
	links := map[string]string{}
	var volumes []string
	for _, fileSystem := range []string{"ext4", "xfs"} {
		for _, name := range []string{"pvc-a-" + fileSystem, "pvc-b-" + fileSystem} {
			volume := s.create(name, 1)
			published := s.attach(m, volume)
			s.must(s.stage(m, volume, published, mounted(fileSystem)))
			s.must(s.withdraw(m, volume))
			links[volume], volumes = filepath.Join(s.disks.Links(m.id), assumed.DiskLink+name), append(volumes, volume)
		}
	}
	for i, fileSystem := range map[int]string{0: "ext4", 2: "xfs"} {
		a, b := volumes[i], volumes[i+1]
		s.must(os.Remove(links[b]))
		s.must(os.Remove(links[a]))
		s.must(os.Symlink(s.disks.Device(b), links[a]))
		published := s.attach(m, a)
		_, err := m.node().NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
			VolumeId: a, StagingTargetPath: m.staging(a), PublishContext: published, VolumeCapability: mounted(fileSystem),
			VolumeContext: made(),
		})
		if status.Code(err) != codes.FailedPrecondition ||
			!strings.Contains(err.Error(), "shows no name, and its file system has the UUID") {
			t.Errorf("%s: %v", fileSystem, err)
		}
	}
}
