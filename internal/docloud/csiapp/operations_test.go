// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// operation is one thing that can happen to a disk.
type operation struct {
	name   string
	weight int
	can    func(c *campaign, d *disk) bool // nil if it needs none, and room for one more
	do     func(c *campaign, d *disk)
}

const mostVolumes = 6

func operations() []operation {
	free := func(_ *campaign, d *disk) bool { return d.at == nil }
	idle := func(_ *campaign, d *disk) bool { return d.at != nil && !d.bound }
	used := func(_ *campaign, d *disk) bool { return d.bound }
	attached := func(_ *campaign, d *disk) bool { return d.at != nil }
	room := func(c *campaign, d *disk) bool { return d.at == nil && d.made && len(c.volumes) < mostVolumes }
	return []operation{
		{"create", 8, nil, (*campaign).createDisk},
		{"copy by a snapshot", 4, room, (*campaign).copyDisk},
		{"clone", 4, room, (*campaign).cloneDisk},
		{"attach", 14, free, func(c *campaign, d *disk) { c.attachDisk(d, c.anyMachine()) }},
		{"stage and publish", 30, idle, func(c *campaign, d *disk) { c.useDisk(d) }},
		{"write", 24, used, (*campaign).write},
		{"read", 6, used, (*campaign).compare},
		{"move", 30, used, (*campaign).moveDisk},
		{"unpublish and unstage", 6, used, (*campaign).withdrawDisk},
		{"detach", 6, idle, (*campaign).detachDisk},
		{"delete", 3, free, (*campaign).deleteDisk},
		{"give up", 3, attached, (*campaign).giveUp},
		{"expand", 4, func(_ *campaign, d *disk) bool { return d.size < 3 && (!d.bound || d.fileSystem == "xfs") }, (*campaign).expandDisk},
		{"attach elsewhere", 4, attached, (*campaign).stealDisk},
		{"delete what is attached", 2, attached, (*campaign).deleteAttached},
		{"stage as something else", 4, func(_ *campaign, d *disk) bool { return d.at != nil && !d.bound && d.made }, (*campaign).stageWrong},
		{"stage on another machine", 1, attached, (*campaign).stageElsewhere},
		{"attach to two at once", 4, free, (*campaign).race},
		{"a machine dies", 2, attached, (*campaign).crash},
	}
}

func (c *campaign) anyMachine() *machine { return c.droplets[c.random.IntN(len(c.droplets))] }

// another machine than the one that has the disk.
func (c *campaign) another(d *disk) *machine {
	for {
		if m := c.anyMachine(); m != d.at {
			return m
		}
	}
}

func (d *disk) capability() *spec.VolumeCapability {
	if d.fileSystem != "" {
		return mounted(d.fileSystem)
	}
	return &spec.VolumeCapability{AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}, AccessMode: mounted("").GetAccessMode()}
}

func (c *campaign) newDisk(like *disk, source *spec.VolumeContentSource) {
	c.made++
	request := &spec.CreateVolumeRequest{
		Name: "pvc-" + strconv.Itoa(c.made), CapacityRange: gibibytes(like.size), VolumeCapabilities: []*spec.VolumeCapability{like.capability()},
		VolumeContentSource: source,
	}
	c.again("creating "+request.GetName(), func(ctx context.Context) error {
		answer, err := c.controller().CreateVolume(ctx, request)
		if err == nil {
			like.id, like.attributes = answer.GetVolume().GetVolumeId(), answer.GetVolume().GetVolumeContext()
		}
		return err
	})
	c.volumes = append(c.volumes, like)
}

func (c *campaign) createDisk(*disk) {
	d := &disk{fileSystem: []string{"ext4", "xfs", ""}[c.random.IntN(3)], size: 1 + c.random.Int64N(2), data: map[string][]byte{}}
	c.newDisk(d, nil)
}

// giveUp takes a volume from who has it, and deletes it.
func (c *campaign) giveUp(d *disk) {
	if d.bound {
		c.compare(d)
		c.withdrawDisk(d)
	}
	c.detachDisk(d)
	c.deleteDisk(d)
}

func (c *campaign) like(d *disk) *disk {
	return &disk{fileSystem: d.fileSystem, size: min(3, d.size+c.random.Int64N(2)), made: d.made, data: maps.Clone(d.data)}
}

func (c *campaign) copyDisk(d *disk) {
	var id string
	c.again("a snapshot", func(ctx context.Context) error {
		answer, err := c.controller().CreateSnapshot(ctx, &spec.CreateSnapshotRequest{Name: "snapshot-" + strconv.Itoa(c.made), SourceVolumeId: d.id})
		id = answer.GetSnapshot().GetSnapshotId()
		return err
	})
	c.newDisk(c.like(d), &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}})
	c.again("deleting a snapshot", func(ctx context.Context) error {
		_, err := c.controller().DeleteSnapshot(ctx, &spec.DeleteSnapshotRequest{SnapshotId: id})
		return err
	})
}

func (c *campaign) cloneDisk(d *disk) {
	c.newDisk(c.like(d), &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: d.id}}})
}

func (c *campaign) deleteDisk(d *disk) {
	c.again("deleting", func(ctx context.Context) error {
		_, err := c.controller().DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: d.id})
		return err
	})
	c.volumes = slices.DeleteFunc(c.volumes, func(other *disk) bool { return other == d })
}

func (c *campaign) publishTo(ctx context.Context, d *disk, m *machine) (map[string]string, error) {
	answer, err := c.controller().ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: d.id, NodeId: m.nodeID(), VolumeCapability: d.capability(), VolumeContext: d.attributes})
	return answer.GetPublishContext(), err
}

func (c *campaign) attachDisk(d *disk, m *machine) {
	c.again("attaching", func(ctx context.Context) error {
		published, err := c.publishTo(ctx, d, m)
		d.published = published
		return err
	})
	d.at = m
}

func (c *campaign) detachDisk(d *disk) {
	d.before = surely
	node := d.at.nodeID()
	if c.random.IntN(8) == 0 {
		node = "" // from all
	}
	c.again("detaching", func(ctx context.Context) error {
		_, err := c.controller().ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: d.id, NodeId: node})
		return err
	})
	d.at, d.published = nil, nil
}

// useDisk stages and publishes, and reports whether it could. A disk on which nobody has made a file system at its first
// attachment is refused at a later one: then it is deleted, as the refusal says.
func (c *campaign) useDisk(d *disk) bool {
	m := d.at
	if d.made && c.random.IntN(2) == 0 {
		c.stageWrong(d)
	}
	refused := false
	c.again("staging", func(ctx context.Context) error {
		_, err := m.node().NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: d.id, StagingTargetPath: m.staging(d.id), PublishContext: d.published, VolumeCapability: d.capability(), VolumeContext: d.attributes,
		})
		refused = status.Code(err) == codes.FailedPrecondition && d.fileSystem != "" && !d.made && d.before != never
		if refused {
			return nil
		}
		return err
	})
	if blank := d.fileSystem != "" && !d.made; blank && d.before == surely && !refused && !d.complete {
		c.t.Fatalf("volume %s was formatted at a later attachment than its first", d.id)
	}
	if refused {
		c.count["disks refused, since they were attached before"]++
		c.detachDisk(d)
		c.deleteDisk(d)
		return false
	}
	d.made = d.made || d.fileSystem != ""
	c.again("publishing", func(ctx context.Context) error {
		_, err := m.node().NodePublishVolume(ctx, &spec.NodePublishVolumeRequest{
			VolumeId: d.id, StagingTargetPath: m.staging(d.id), TargetPath: m.target(d.id), PublishContext: d.published, VolumeCapability: d.capability(),
		})
		return err
	})
	d.bound = true
	c.compare(d)
	return true
}

func (c *campaign) withdrawDisk(d *disk) {
	m := d.at
	c.again("unpublishing", func(ctx context.Context) error {
		_, err := m.node().NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: d.id, TargetPath: m.target(d.id)})
		return err
	})
	c.again("unstaging", func(ctx context.Context) error {
		_, err := m.node().NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: d.id, StagingTargetPath: m.staging(d.id)})
		return err
	})
	d.bound = false
}

func (c *campaign) moveDisk(d *disk) {
	to := c.another(d)
	if c.random.IntN(4) == 0 {
		c.stealDisk(d)
	}
	c.withdrawDisk(d)
	c.detachDisk(d)
	c.attachDisk(d, to)
	c.useDisk(d)
}

func (c *campaign) expandDisk(d *disk) {
	d.size++
	c.again("expanding", func(ctx context.Context) error {
		_, err := c.controller().ControllerExpandVolume(ctx, &spec.ControllerExpandVolumeRequest{
			VolumeId: d.id, CapacityRange: gibibytes(d.size), VolumeCapability: d.capability(),
		})
		return err
	})
	if !d.bound {
		return
	}
	c.again("growing", func(ctx context.Context) error {
		_, err := d.at.node().NodeExpandVolume(ctx, &spec.NodeExpandVolumeRequest{
			VolumeId: d.id, VolumePath: d.at.target(d.id), StagingTargetPath: d.at.staging(d.id), CapacityRange: gibibytes(d.size), VolumeCapability: d.capability(),
		})
		return err
	})
	c.compare(d)
}

func (c *campaign) stealDisk(d *disk) {
	to := c.another(d)
	c.refused("attaching what another machine has", func(ctx context.Context) error {
		_, err := c.publishTo(ctx, d, to)
		return err
	}, codes.FailedPrecondition)
}

func (c *campaign) deleteAttached(d *disk) {
	c.refused("deleting what is attached", func(ctx context.Context) error {
		_, err := c.controller().DeleteVolume(ctx, &spec.DeleteVolumeRequest{VolumeId: d.id})
		return err
	}, codes.FailedPrecondition)
}

func (c *campaign) stageWrong(d *disk) {
	other := map[string]string{"ext4": "xfs", "xfs": "ext4", "": "ext4"}[d.fileSystem]
	c.refused("staging as "+other, func(ctx context.Context) error {
		_, err := d.at.node().NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: d.id, StagingTargetPath: d.at.staging(d.id), PublishContext: d.published, VolumeCapability: mounted(other),
		})
		return err
	}, codes.FailedPrecondition)
}

func (c *campaign) stageElsewhere(d *disk) {
	m := c.another(d)
	c.refused("staging where it is not", func(ctx context.Context) error {
		_, err := m.node().NodeStageVolume(ctx, &spec.NodeStageVolumeRequest{
			VolumeId: d.id, StagingTargetPath: m.staging(d.id), PublishContext: d.published, VolumeCapability: d.capability(), VolumeContext: d.attributes,
		})
		return err
	}, codes.FailedPrecondition, codes.Unavailable)
}

// race asks both controllers for two machines at once: one of them has the disk then, or none.
func (c *campaign) race(d *disk) {
	a := c.anyMachine()
	b := c.another(&disk{at: a})
	var both sync.WaitGroup
	ctx, control := c.t.Context(), c.control
	for i, m := range []*machine{a, b} {
		client := spec.NewControllerClient(c.controls[i].conn)
		both.Go(func() {
			_, _ = client.ControllerPublishVolume(ctx, &spec.ControllerPublishVolumeRequest{VolumeId: d.id, NodeId: m.nodeID(), VolumeCapability: d.capability(), VolumeContext: d.attributes})
		})
	}
	both.Wait()
	d.before = max(d.before, perhaps)
	c.revive()
	c.check("a race")
	c.control = control
	d.at = a
	node := func(ctx context.Context) error {
		_, err := c.controller().ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: d.id})
		return err
	}
	// What a killed controller has begun may be applied after this: then it is attached again, which the attacher finds in the same way.
	testkit.Eventually(c.t, "a disk that nobody has", func() string {
		c.again("detaching from all", node)
		for _, v := range c.sim.Account("").Volumes() {
			if v.ID == d.id && len(v.DropletIDs) > 0 {
				return fmt.Sprintf("it is attached to %v", v.DropletIDs)
			}
		}
		return ""
	})
	d.at = nil
}

// crash ends a machine with all that is mounted there; it boots again.
func (c *campaign) crash(d *disk) {
	m := d.at
	m.process.Kill()
	m.holder.Kill()
	for _, d := range c.volumes {
		if d.at != m {
			continue
		}
		d.bound = false
		testkit.Eventually(c.t, "the end of a machine's mounts", func() string {
			f, err := os.OpenFile(c.disks.Device(d.id), os.O_RDONLY|unix.O_EXCL, 0)
			if err != nil {
				return err.Error()
			}
			_ = f.Close()
			return ""
		})
	}
	if err := os.RemoveAll(m.folder); err != nil && !errors.Is(err, unix.EBUSY) {
		c.t.Fatal(err)
	}
	c.boot(m)
}

// write puts bytes into a file, or at an offset of a raw block volume, and syncs them.
func (c *campaign) write(d *disk) {
	c.t.Helper()
	const unit = 4096
	data := make([]byte, unit*(1+c.random.IntN(32)))
	for i := range data {
		data[i] = byte(c.random.Uint32())
	}
	path, at, key := c.see(d.at, d.at.target(d.id)), int64(0), "file-"+strconv.Itoa(c.random.IntN(5))
	flags := os.O_RDWR
	if d.fileSystem == "" {
		if len(d.data) > 0 { // the first is at the beginning, as data of programs that use raw volumes are
			at = c.random.Int64N(16) * (1 << 20)
		}
		key = strconv.FormatInt(at, 10)
	} else {
		path, flags = filepath.Join(path, key), flags|os.O_CREATE|os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		c.t.Fatal(err)
	}
	_, err = f.WriteAt(data, at)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		c.t.Fatal(err)
	}
	if old := d.data[key]; d.fileSystem == "" && len(old) > len(data) {
		data = slices.Concat(data, old[len(data):])
	}
	d.data[key], d.made = data, true
	c.count["bytes written"] += len(data)
}

// compare reads everything back.
func (c *campaign) compare(d *disk) {
	c.t.Helper()
	path := c.see(d.at, d.at.target(d.id))
	if d.fileSystem != "" {
		entries, err := os.ReadDir(path)
		if err != nil {
			c.t.Fatal(err)
		}
		entries = slices.DeleteFunc(entries, func(e os.DirEntry) bool { return e.Name() == "lost+found" })
		if len(entries) != len(d.data) {
			c.t.Errorf("volume %s has %d files instead of %d: %v", d.id, len(entries), len(d.data), entries)
		}
	}
	for key, want := range d.data {
		file, at := filepath.Join(path, key), int64(0)
		if d.fileSystem == "" {
			file = path
			at, _ = strconv.ParseInt(key, 10, 64)
		}
		f, err := os.Open(file)
		if err != nil {
			c.t.Fatal(err)
		}
		got := make([]byte, len(want))
		_, err = io.ReadFull(io.NewSectionReader(f, at, int64(len(want))), got)
		_ = f.Close()
		if err != nil || !bytes.Equal(got, want) {
			c.t.Fatalf("volume %s, %s: %d bytes are not those that were written (%v)", d.id, key, len(want), err)
		}
		c.count["bytes read back equal"] += len(got)
	}
}
