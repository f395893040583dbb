// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"maps"
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// bad is a request that is refused.
type bad struct {
	name  string
	send  func(ctx context.Context) error
	code  codes.Code
	words string // of the sentence
}

// input makes requests out of a good one.
type input struct {
	*served

	control         spec.ControllerClient
	nodes           spec.NodeClient
	free, attached  string // volumes
	snapshot, elses string // a snapshot, and one in another region
	published       map[string]string
}

func newInput(t *testing.T) *input {
	t.Helper()
	s := serve(t, digitalocean.VolumeOptions{})
	i := &input{served: s, control: spec.NewControllerClient(s.conn), nodes: spec.NewNodeClient(s.conn)}
	put := func(name, region string) string {
		v, err := s.sim.Account("").CreateVolume(digitalocean.VolumeSpec{Name: name, Size: 4, Region: region})
		if err != nil {
			t.Fatal(err)
		}
		return v.ID
	}
	i.free, i.attached = put("pvc-free", ""), put("pvc-attached", "")
	answer, err := i.control.ControllerPublishVolume(t.Context(), attachment(i.attached, s.node, volume.FormatFirst))
	if err != nil {
		t.Fatal(err)
	}
	i.published = answer.GetPublishContext()
	snapshot, err := i.control.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: i.free})
	if err != nil {
		t.Fatal(err)
	}
	i.snapshot = snapshot.GetSnapshot().GetSnapshotId()
	if snapshot, err = i.control.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "abroad", SourceVolumeId: put("abroad", "fra1")}); err != nil {
		t.Fatal(err)
	}
	i.elses = snapshot.GetSnapshot().GetSnapshotId()
	return i
}

// call makes a request of a good one and a change to it.
func call[Q proto.Message, A any](method func(context.Context, Q, ...grpc.CallOption) (A, error), good Q, change func(Q)) func(ctx context.Context) error {
	request := proto.Clone(good).(Q) //nolint:forcetypeassert // it is a clone of one
	change(request)
	return func(ctx context.Context) error {
		_, err := method(ctx, request)
		return err
	}
}

func withMode(mode spec.VolumeCapability_AccessMode_Mode) *spec.VolumeCapability {
	c := writer()
	c.AccessMode.Mode = mode
	return c
}

func withFileSystem(name string) *spec.VolumeCapability {
	c := writer()
	c.GetMount().FsType = name
	return c
}

func blockWithNothing() *spec.VolumeCapability {
	return &spec.VolumeCapability{AccessMode: writer().GetAccessMode()}
}

func (i *input) toCreate() []bad {
	type q = *spec.CreateVolumeRequest
	good := &spec.CreateVolumeRequest{Name: "pvc-1", VolumeCapabilities: []*spec.VolumeCapability{writer()}}
	create := func(name string, code codes.Code, words string, change func(q)) bad {
		return bad{"create: " + name, call(i.control.CreateVolume, good, change), code, words}
	}
	only := func(c *spec.VolumeCapability) []*spec.VolumeCapability { return []*spec.VolumeCapability{c} }
	return []bad{
		create("no name", codes.InvalidArgument, "no name", func(r q) { r.Name = "" }),
		create("a long name", codes.InvalidArgument, "at most 128", func(r q) { r.Name = strings.Repeat("a", 129) }),
		create("no capabilities", codes.InvalidArgument, "no volume capabilities", func(r q) { r.VolumeCapabilities = nil }),
		create("neither block nor mount", codes.InvalidArgument, "neither", func(r q) { r.VolumeCapabilities = only(blockWithNothing()) }),
		create("no access mode", codes.InvalidArgument, "access mode", func(r q) { r.VolumeCapabilities[0].AccessMode = nil }),
		create("an unknown mode", codes.InvalidArgument, "access mode", func(r q) { r.VolumeCapabilities = only(withMode(77)) }),
		create("ReadOnlyMany", codes.InvalidArgument, "one droplet", func(r q) {
			r.VolumeCapabilities = only(withMode(spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY))
		}),
		create("ReadWriteMany", codes.InvalidArgument, "one droplet", func(r q) {
			r.VolumeCapabilities = only(withMode(spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER))
		}),
		create("one of two modes", codes.InvalidArgument, "one droplet", func(r q) {
			r.VolumeCapabilities = append(r.VolumeCapabilities, withMode(spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER))
		}),
		create("ntfs", codes.InvalidArgument, "use ext4 or xfs", func(r q) { r.VolumeCapabilities = only(withFileSystem("ntfs")) }),
		create("LUKS", codes.InvalidArgument, "LUKS", func(r q) { r.Parameters = map[string]string{"luks-encrypted": "true"} }),
		create("a modification that is none", codes.InvalidArgument, "can change only", func(r q) { r.MutableParameters = map[string]string{"iops": "1"} }),
		create("a bad tag", codes.InvalidArgument, "not possible", func(r q) { r.MutableParameters = map[string]string{"tags": "a b"} }),
		create("a negative size", codes.OutOfRange, "negative", func(r q) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: -1} }),
		create("a negative limit", codes.OutOfRange, "negative", func(r q) { r.CapacityRange = &spec.CapacityRange{LimitBytes: -1} }),
		create("too large", codes.OutOfRange, "invalid size", func(r q) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: 17 << 40} }),
		create("the largest number", codes.OutOfRange, "no number of GiB", func(r q) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: 1<<63 - 1} }),
		create("a limit below the smallest", codes.OutOfRange, "limit", func(r q) { r.CapacityRange = &spec.CapacityRange{LimitBytes: 1 << 20} }),
		create("a limit below what is required", codes.OutOfRange, "limit", func(r q) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: 3 << 30, LimitBytes: 2 << 30} }),
		create("between two GiB", codes.OutOfRange, "GiB", func(r q) { r.CapacityRange = &spec.CapacityRange{RequiredBytes: 1<<30 + 1, LimitBytes: 2<<30 - 1} }),
		create("a name that is taken", codes.AlreadyExists, "4 GiB", func(r q) { r.Name, r.CapacityRange = "pvc-free", &spec.CapacityRange{RequiredBytes: 9 << 30} }),
		create("another region", codes.ResourceExhausted, "outside region", func(r q) {
			r.AccessibilityRequirements = &spec.TopologyRequirement{Requisite: []*spec.Topology{{Segments: map[string]string{RegionKey: "fra1"}}}}
		}),
		create("an empty source", codes.InvalidArgument, "neither a snapshot nor a volume", func(r q) { r.VolumeContentSource = &spec.VolumeContentSource{} }),
		create("a snapshot without ID", codes.InvalidArgument, "no snapshot ID", func(r q) { r.VolumeContentSource = ofSnapshot("") }),
		create("a clone of nothing", codes.InvalidArgument, "no volume ID", func(r q) { r.VolumeContentSource = ofVolume("") }),
		create("a snapshot that is gone", codes.NotFound, "snapshot", func(r q) { r.VolumeContentSource = ofSnapshot("6a4dd1cc-0d6d-4a0a-9d5c-7f0f1c1f0000") }),
		create("a volume that is gone", codes.NotFound, "volume", func(r q) { r.VolumeContentSource = ofVolume("6a4dd1cc-0d6d-4a0a-9d5c-7f0f1c1f0000") }),
		create("an ID that is an address", codes.NotFound, "not the ID", func(r q) { r.VolumeContentSource = ofVolume("../droplets/1") }),
		create("a snapshot of another region", codes.FailedPrecondition, "not in region nyc1", func(r q) { r.VolumeContentSource = ofSnapshot(i.elses) }),
		create("smaller than its snapshot", codes.OutOfRange, "has 4 GiB", func(r q) {
			r.VolumeContentSource, r.CapacityRange = ofSnapshot(i.snapshot), &spec.CapacityRange{LimitBytes: 2 << 30}
		}),
	}
}

func (i *input) toControl() []bad {
	type (
		attach = *spec.ControllerPublishVolumeRequest
		expand = *spec.ControllerExpandVolumeRequest
		modify = *spec.ControllerModifyVolumeRequest
		copies = *spec.CreateSnapshotRequest
		shots  = *spec.ListSnapshotsRequest
		lists  = *spec.ListVolumesRequest
		checks = *spec.ValidateVolumeCapabilitiesRequest
	)
	const gone = "6a4dd1cc-0d6d-4a0a-9d5c-7f0f1c1f0000"
	a := &spec.ControllerPublishVolumeRequest{VolumeId: i.free, NodeId: i.node, VolumeCapability: writer()}
	e := &spec.ControllerExpandVolumeRequest{VolumeId: i.free, CapacityRange: &spec.CapacityRange{RequiredBytes: 5 << 30}}
	m := &spec.ControllerModifyVolumeRequest{VolumeId: i.free, MutableParameters: map[string]string{"tags": "a"}}
	s := &spec.CreateSnapshotRequest{Name: "two", SourceVolumeId: i.free}
	v := &spec.ValidateVolumeCapabilitiesRequest{VolumeId: i.free, VolumeCapabilities: []*spec.VolumeCapability{writer()}}
	c := i.control
	return []bad{
		{"attach: no volume", call(c.ControllerPublishVolume, a, func(r attach) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"attach: no node", call(c.ControllerPublishVolume, a, func(r attach) { r.NodeId = "" }), codes.InvalidArgument, "no node ID"},
		{"attach: read-only", call(c.ControllerPublishVolume, a, func(r attach) { r.Readonly = true }), codes.InvalidArgument, "read-only"},
		{"attach: no capability", call(c.ControllerPublishVolume, a, func(r attach) { r.VolumeCapability = nil }), codes.InvalidArgument, "no volume capability"},
		{"attach: a node that is not a number", call(c.ControllerPublishVolume, a, func(r attach) { r.NodeId = "node-1" }), codes.NotFound, "a number"},
		{"attach: a negative node", call(c.ControllerPublishVolume, a, func(r attach) { r.NodeId = "-1" }), codes.NotFound, "a number"},
		{"attach: a droplet that is gone", call(c.ControllerPublishVolume, a, func(r attach) { r.NodeId = "17" }), codes.NotFound, "no droplet 17"},
		{"attach: a volume that is gone", call(c.ControllerPublishVolume, a, func(r attach) { r.VolumeId = gone }), codes.NotFound, gone},
		{"attach: an address", call(c.ControllerPublishVolume, a, func(r attach) { r.VolumeId = "a/../b" }), codes.NotFound, "not the ID"},
		{"attach: elsewhere", call(c.ControllerPublishVolume, a, func(r attach) { r.VolumeId, r.NodeId = i.attached, "18" }), codes.FailedPrecondition, "another droplet"},
		{"detach: no volume", call(c.ControllerUnpublishVolume, &spec.ControllerUnpublishVolumeRequest{}, none), codes.InvalidArgument, "no volume ID"},
		{"delete: no volume", call(c.DeleteVolume, &spec.DeleteVolumeRequest{}, none), codes.InvalidArgument, "no volume ID"},
		{"delete: attached", call(c.DeleteVolume, &spec.DeleteVolumeRequest{VolumeId: i.attached}, none), codes.FailedPrecondition, "attached"},
		{"expand: no volume", call(c.ControllerExpandVolume, e, func(r expand) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"expand: no size", call(c.ControllerExpandVolume, e, func(r expand) { r.CapacityRange = nil }), codes.InvalidArgument, "no capacity range"},
		{"expand: an empty size", call(c.ControllerExpandVolume, e, func(r expand) { r.CapacityRange.RequiredBytes = 0 }), codes.OutOfRange, "no size"},
		{"expand: too large", call(c.ControllerExpandVolume, e, func(r expand) { r.CapacityRange.RequiredBytes = 1 << 60 }), codes.OutOfRange, "invalid size"},
		{"expand: smaller", call(c.ControllerExpandVolume, e, func(r expand) { r.CapacityRange = &spec.CapacityRange{LimitBytes: 1 << 30} }), codes.OutOfRange, "never shrinks"},
		{"expand: gone", call(c.ControllerExpandVolume, e, func(r expand) { r.VolumeId = gone }), codes.NotFound, gone},
		{"modify: no volume", call(c.ControllerModifyVolume, m, func(r modify) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"modify: what cannot be", call(c.ControllerModifyVolume, m, func(r modify) { r.MutableParameters = map[string]string{"type": "ssd"} }), codes.InvalidArgument, "can change only"},
		{"modify: gone", call(c.ControllerModifyVolume, m, func(r modify) { r.VolumeId = gone }), codes.NotFound, gone},
		{"get: no volume", call(c.ControllerGetVolume, &spec.ControllerGetVolumeRequest{}, none), codes.InvalidArgument, "no volume ID"},
		{"get: gone", call(c.ControllerGetVolume, &spec.ControllerGetVolumeRequest{VolumeId: gone}, none), codes.NotFound, gone},
		{"validate: no volume", call(c.ValidateVolumeCapabilities, v, func(r checks) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"validate: nothing", call(c.ValidateVolumeCapabilities, v, func(r checks) { r.VolumeCapabilities = nil }), codes.InvalidArgument, "no volume capabilities"},
		{"list: a negative page", call(c.ListVolumes, &spec.ListVolumesRequest{MaxEntries: -1}, none[lists]), codes.InvalidArgument, "negative"},
		{"list: a foreign token", call(c.ListVolumes, &spec.ListVolumesRequest{StartingToken: "17"}, none[lists]), codes.Aborted, "begin the list again"},
		{"snapshot: no name", call(c.CreateSnapshot, s, func(r copies) { r.Name = "" }), codes.InvalidArgument, "no name"},
		{"snapshot: no volume", call(c.CreateSnapshot, s, func(r copies) { r.SourceVolumeId = "" }), codes.InvalidArgument, "no source volume ID"},
		{"snapshot: too soon", call(c.CreateSnapshot, s, func(copies) {}), codes.ResourceExhausted, "UTC"},
		{"snapshot: of another volume", call(c.CreateSnapshot, s, func(r copies) { r.Name, r.SourceVolumeId = "one", i.attached }), codes.AlreadyExists, "is of volume"},
		{"snapshot: of nothing", call(c.CreateSnapshot, s, func(r copies) { r.SourceVolumeId = gone }), codes.NotFound, "two"},
		{"snapshots: a foreign token", call(c.ListSnapshots, &spec.ListSnapshotsRequest{StartingToken: "x"}, none[shots]), codes.Aborted, "begin the list again"},
		{"delete snapshot: no ID", call(c.DeleteSnapshot, &spec.DeleteSnapshotRequest{}, none), codes.InvalidArgument, "no snapshot ID"},
		{"get snapshot: gone", call(c.GetSnapshot, &spec.GetSnapshotRequest{SnapshotId: gone}, none), codes.NotFound, gone},
		{"capacity", call(c.GetCapacity, &spec.GetCapacityRequest{}, none), codes.Unimplemented, "does not report"},
	}
}

func none[Q any](Q) {}

func (i *input) toNode() []bad {
	type (
		stage   = *spec.NodeStageVolumeRequest
		publish = *spec.NodePublishVolumeRequest
		expand  = *spec.NodeExpandVolumeRequest
	)
	at := func(name string) string { return filepath.Join(i.folder, name) }
	s := &spec.NodeStageVolumeRequest{VolumeId: i.attached, StagingTargetPath: at("staging"), PublishContext: i.published, VolumeCapability: writer()}
	p := &spec.NodePublishVolumeRequest{VolumeId: i.attached, StagingTargetPath: at("staging"), TargetPath: at("pod"), PublishContext: i.published, VolumeCapability: writer()}
	e := &spec.NodeExpandVolumeRequest{VolumeId: i.attached, VolumePath: at("nowhere")}
	n := i.nodes
	foreign := func(kind blockdevice.Kind, name string) func(ctx context.Context) error {
		send := call(n.NodeStageVolume, s, none[stage])
		return func(ctx context.Context) error {
			i.host.mu.Lock()
			i.host.content["/dev/pvc-attached"] = blockdevice.Content{Kind: kind, Name: name}
			i.host.mu.Unlock()
			defer func() {
				i.host.mu.Lock()
				defer i.host.mu.Unlock()
				maps.DeleteFunc(i.host.content, func(string, blockdevice.Content) bool { return true })
			}()
			return send(ctx)
		}
	}
	return []bad{
		{"stage: no volume", call(n.NodeStageVolume, s, func(r stage) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"stage: no path", call(n.NodeStageVolume, s, func(r stage) { r.StagingTargetPath = "" }), codes.InvalidArgument, "no staging target path"},
		{"stage: a relative path", call(n.NodeStageVolume, s, func(r stage) { r.StagingTargetPath = "a" }), codes.InvalidArgument, "not absolute"},
		{"stage: no capability", call(n.NodeStageVolume, s, func(r stage) { r.VolumeCapability = nil }), codes.InvalidArgument, "no volume capability"},
		{"stage: btrfs", call(n.NodeStageVolume, s, func(r stage) { r.VolumeCapability = withFileSystem("btrfs") }), codes.InvalidArgument, "use ext4 or xfs"},
		{"stage: not attached", call(n.NodeStageVolume, s, func(r stage) { r.PublishContext = nil }), codes.InvalidArgument, "must be attached first"},
		{"stage: a path as a name", call(n.NodeStageVolume, s, func(r stage) { r.PublishContext[VolumeNameKey] = "../../sda" }), codes.InvalidArgument, "cannot be a volume's name"},
		{"stage: a size that is none", call(n.NodeStageVolume, s, func(r stage) { r.PublishContext[VolumeSizeKey] = "1G" }), codes.InvalidArgument, "not a number of bytes"},
		{"stage: no device", call(n.NodeStageVolume, s, func(r stage) { r.PublishContext[VolumeNameKey] = "pvc-9" }), codes.Unavailable, "not attached"},
		{"stage: never format", call(n.NodeStageVolume, s, func(r stage) { r.VolumeContext = map[string]string{noFormatKeys()[0]: ""} }), codes.FailedPrecondition, "keeps it from"},
		{"stage: LUKS", foreign(blockdevice.Foreign, "an encrypted volume (LUKS)"), codes.FailedPrecondition, "LUKS"},
		{"stage: unknown data", foreign(blockdevice.Unknown, "data that is not known"), codes.FailedPrecondition, "neither formatted nor mounted"},
		{"publish: no volume", call(n.NodePublishVolume, p, func(r publish) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"publish: no staging path", call(n.NodePublishVolume, p, func(r publish) { r.StagingTargetPath = "" }), codes.InvalidArgument, "no staging target path"},
		{"publish: no path", call(n.NodePublishVolume, p, func(r publish) { r.TargetPath = "" }), codes.InvalidArgument, "no target path"},
		{"publish: a relative path", call(n.NodePublishVolume, p, func(r publish) { r.TargetPath = "./a" }), codes.InvalidArgument, "not absolute"},
		{"publish: not staged", call(n.NodePublishVolume, p, func(r publish) { r.StagingTargetPath = at("elsewhere") }), codes.FailedPrecondition, "not staged"},
		{"unstage: no volume", call(n.NodeUnstageVolume, &spec.NodeUnstageVolumeRequest{StagingTargetPath: "/a"}, none), codes.InvalidArgument, "no volume ID"},
		{"unstage: no path", call(n.NodeUnstageVolume, &spec.NodeUnstageVolumeRequest{VolumeId: "a"}, none), codes.InvalidArgument, "no staging target path"},
		{"unpublish: no volume", call(n.NodeUnpublishVolume, &spec.NodeUnpublishVolumeRequest{TargetPath: "/a"}, none), codes.InvalidArgument, "no volume ID"},
		{"unpublish: no path", call(n.NodeUnpublishVolume, &spec.NodeUnpublishVolumeRequest{VolumeId: "a"}, none), codes.InvalidArgument, "no target path"},
		{"grow: no volume", call(n.NodeExpandVolume, e, func(r expand) { r.VolumeId = "" }), codes.InvalidArgument, "no volume ID"},
		{"grow: no path", call(n.NodeExpandVolume, e, func(r expand) { r.VolumePath = "" }), codes.InvalidArgument, "no volume path"},
		{"grow: nothing there", call(n.NodeExpandVolume, e, none[expand]), codes.NotFound, "is not at"},
		{"statistics: no path", call(n.NodeGetVolumeStats, &spec.NodeGetVolumeStatsRequest{VolumeId: "a"}, none), codes.InvalidArgument, "no volume path"},
		{"statistics: nothing there", call(n.NodeGetVolumeStats, &spec.NodeGetVolumeStatsRequest{VolumeId: "a", VolumePath: at("nowhere")}, none), codes.NotFound, "does not exist"},
	}
}

// TestBadInputIsRefused over a socket: each request by the right code and with a sentence, and nothing is made, moved or formatted by any of them.
func TestBadInputIsRefused(t *testing.T) {
	t.Parallel()
	i := newInput(t)
	all := append(append(i.toCreate(), i.toControl()...), i.toNode()...)
	before := len(i.sim.Account("").Volumes())
	for _, b := range all {
		err := b.send(t.Context())
		s := status.Convert(err)
		if s.Code() != b.code || !strings.Contains(s.Message(), b.words) {
			t.Errorf("%s: %v; want %s and %q", b.name, err, b.code, b.words)
		}
		if words := len(strings.Fields(s.Message())); words < 5 {
			t.Errorf("%s: %q is not a sentence", b.name, s.Message())
		}
	}
	const least = 60
	if len(all) < least {
		t.Errorf("%d requests, want at least %d", len(all), least)
	}
	t.Logf("%d requests were refused", len(all))
	if after := len(i.sim.Account("").Volumes()); after != before || len(i.host.content) != 0 || len(i.host.mounts) != 0 {
		t.Errorf("%d volumes instead of %d; formatted: %v; mounted: %v", after, before, i.host.content, i.host.mounts)
	}
}
