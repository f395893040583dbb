// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// Host is the machine's disks and mounts; [blockdevice.Host] has it. Its errors are sentences; those of blockdevice.ErrUnsafe are for a person to cure.
type Host interface {
	// Find returns the device of a volume when it is there and is that volume's: size is in bytes, 0 if it is not known.
	Find(ctx context.Context, name string, size int64) (blockdevice.Device, error)
	// Inspect says what a device holds. It is an error if that cannot be read.
	Inspect(ctx context.Context, d blockdevice.Device) (blockdevice.Content, error)
	// Format makes a file system on a device that is proven right before to be blank, or to hold what an earlier Format of
	// this machine left unfinished. Progress is how far it has come with a volume's, by its ID; Made keeps that it is done.
	Format(ctx context.Context, d blockdevice.Device, v blockdevice.Volume, fileSystem string) error
	Progress(id string) (blockdevice.Progress, error)
	Made(v blockdevice.Volume) error
	// Repair checks a file system that is not mounted.
	Repair(ctx context.Context, d blockdevice.Device, fileSystem string) error
	// Mount mounts a file system. Bind makes a folder or a device appear at a second place. Both make the target.
	Mount(ctx context.Context, d blockdevice.Device, target, fileSystem string, options blockdevice.Options) error
	Bind(ctx context.Context, source, target string, device, readOnly bool) error
	// Unmount unmounts what is at a path, if there is something, and removes the path.
	Unmount(ctx context.Context, path string) error
	// At returns the device that is mounted, or bound, at a path; false if there is none.
	At(path string) (blockdevice.Device, bool, error)
	// Mounts returns the paths where a device is mounted or bound.
	Mounts(d blockdevice.Device) ([]string, error)
	// Remember keeps the name of the volume that is staged at a path until Forget. Staged returns it, "" if it is
	// not known, which it is not of volumes that csi-digitalocean staged.
	Remember(path, name string) error
	Staged(path string) (string, error)
	Forget(path string) error
	// Unused reports by an error that something still has the device of a volume: a mount in whatever mount namespace, or a
	// program. A device that is not there is unused.
	Unused(name string) error
	// Rescan makes the kernel see a new size, and returns it in bytes.
	Rescan(ctx context.Context, d blockdevice.Device) (int64, error)
	// Grow grows the file system of a device to the device's size, if it is smaller and can be grown as it is: mounted at path, or not at all if path is empty.
	Grow(ctx context.Context, d blockdevice.Device, path string) error
	// Statistics are those of the file system or device at a path; blockdevice.ErrNoPath if there is none.
	Statistics(path string) (blockdevice.Statistics, error)
	// Foreign counts volumes that are attached to this droplet and whose names Kubernetes did not make.
	Foreign() int
}

// NodeOptions are what a Node needs.
type NodeOptions struct {
	Host Host
	// Droplet is the ID of the droplet, Region where it is.
	Droplet, Region string
	// VolumeLimit is how many volumes the droplet can have, those included that were attached by hand.
	VolumeLimit int
	Log         logr.Logger
}

// Node is the service that makes volumes usable on this machine. It holds no token and asks nobody but the kernel.
type Node struct {
	spec.UnsafeNodeServer

	o    NodeOptions
	mu   sync.Mutex // guards busy
	busy map[string]bool
}

// NewNode makes a Node.
func NewNode(o NodeOptions) *Node { return &Node{o: o, busy: map[string]bool{}} }

// claim keeps a volume for one request.
func (n *Node) claim(id string) (release func(), err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.busy[id] {
		return nil, status.Errorf(codes.Aborted, "another request for volume %s is under way on this node", id)
	}
	n.busy[id] = true
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.busy, id)
	}, nil
}

// failNode makes the error of a request.
func failNode(err error) error {
	if err == nil {
		return nil
	}
	if said := (interface {
		error
		GRPCStatus() *status.Status
	})(nil); errors.As(err, &said) { // what it is wrapped in stays, without gRPC's own words
		s := said.GRPCStatus()
		return status.Error(s.Code(), strings.Replace(err.Error(), said.Error(), s.Message(), 1))
	}
	code := codes.Internal
	switch {
	case errors.Is(err, blockdevice.ErrUnsafe), errors.Is(err, blockdevice.ErrBusy):
		code = codes.FailedPrecondition
	case errors.Is(err, blockdevice.ErrNoPath):
		code = codes.NotFound
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, blockdevice.ErrNoDevice):
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// NodeGetCapabilities returns what the node can do.
func (n *Node) NodeGetCapabilities(context.Context, *spec.NodeGetCapabilitiesRequest) (*spec.NodeGetCapabilitiesResponse, error) {
	r := &spec.NodeGetCapabilitiesResponse{}
	for _, kind := range []spec.NodeServiceCapability_RPC_Type{
		spec.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME, spec.NodeServiceCapability_RPC_EXPAND_VOLUME,
		spec.NodeServiceCapability_RPC_GET_VOLUME_STATS, spec.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		r.Capabilities = append(r.Capabilities, &spec.NodeServiceCapability{
			Type: &spec.NodeServiceCapability_Rpc{Rpc: &spec.NodeServiceCapability_RPC{Type: kind}},
		})
	}
	return r, nil
}

// NodeGetInfo names the node. What is attached by hand takes room from Kubernetes' volumes.
func (n *Node) NodeGetInfo(context.Context, *spec.NodeGetInfoRequest) (*spec.NodeGetInfoResponse, error) {
	return &spec.NodeGetInfoResponse{
		NodeId: n.o.Droplet, MaxVolumesPerNode: int64(max(1, n.o.VolumeLimit-n.o.Host.Foreign())),
		AccessibleTopology: &spec.Topology{Segments: map[string]string{RegionKey: n.o.Region}},
	}, nil
}

// NodeStageVolume finds the device, formats it if it is blank and allowed to be, and mounts it. A raw block volume is only looked at.
func (n *Node) NodeStageVolume(ctx context.Context, r *spec.NodeStageVolumeRequest) (*spec.NodeStageVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetStagingTargetPath() == "":
		return nil, invalid("the request has no staging target path")
	case !filepath.IsAbs(r.GetStagingTargetPath()):
		return nil, invalid("the staging target path %q is not absolute", r.GetStagingTargetPath())
	}
	if err := checkCapabilities(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	name, size, err := published(r.GetPublishContext())
	if err != nil {
		return nil, err
	}
	options, err := mountOptions(r.GetVolumeCapability())
	if err != nil {
		return nil, err
	}
	release, err := n.claim(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := n.o.Host.Remember(r.GetStagingTargetPath(), name); err != nil {
		return nil, failNode(fmt.Errorf("staging volume %s: %w", name, err))
	}
	d, err := n.find(ctx, name, size)
	if err != nil {
		return nil, failNode(fmt.Errorf("staging volume %s: %w", name, err))
	}
	if r.GetVolumeCapability().GetBlock() == nil {
		if err := n.stage(ctx, d, r, options); err != nil {
			return nil, failNode(fmt.Errorf("staging volume %s: %w", name, err))
		}
	}
	return &spec.NodeStageVolumeResponse{}, nil
}

// published reads the publish context. Attachments that csi-digitalocean made have no size.
func published(publish map[string]string) (name string, size int64, err error) {
	name = publish[VolumeNameKey]
	if name == "" {
		return "", 0, invalid("the publish context has no %s: the volume must be attached first", VolumeNameKey)
	}
	if filepath.Base(name) != name || name == "." || name == ".." {
		return "", 0, invalid("the publish context names volume %q, which cannot be a volume's name", name)
	}
	if text := publish[VolumeSizeKey]; text != "" {
		if size, err = strconv.ParseInt(text, 10, 64); err != nil || size <= 0 {
			return "", 0, invalid("the publish context says %s is %q, which is not a number of bytes", VolumeSizeKey, text)
		}
	}
	return name, size, nil
}

// stage makes the file system of a device appear at the staging path. Read-only, nothing is written: no file system is made,
// repaired or grown, and no journal is replayed.
func (n *Node) stage(
	ctx context.Context, d blockdevice.Device, r *spec.NodeStageVolumeRequest, options blockdevice.Options,
) error {
	path, v := r.GetStagingTargetPath(), volumeOf(r)
	at, mounted, err := n.o.Host.At(path)
	switch {
	case err != nil:
		return err
	case mounted && at.Number != d.Number:
		return status.Errorf(codes.Internal, "%s has another device mounted, %s instead of %s: unmount it", path, at.Path, d.Path)
	case mounted && options.ReadOnly:
		return nil
	case mounted:
		return errors.Join(n.o.Host.Grow(ctx, d, path), n.spend(v))
	}
	has, unproven, err := n.fileSystem(ctx, d, r, options.ReadOnly)
	if err != nil {
		return err
	}
	if options.ReadOnly {
		return n.o.Host.Mount(ctx, d, path, has, options)
	}
	err = n.mount(ctx, d, path, has, options)
	if err != nil && unproven {
		n.o.Log.Info("What mkfs left cannot be mounted", "volume", v.ID, "device", d.Path, "error", err.Error())
		if err = n.format(ctx, d, r, has); err == nil {
			err = n.mount(ctx, d, path, has, options)
		}
	}
	if err != nil {
		return err
	}
	return n.spend(v)
}

func volumeOf(r *spec.NodeStageVolumeRequest) blockdevice.Volume {
	return blockdevice.Volume{ID: r.GetVolumeId(), Name: r.GetPublishContext()[VolumeNameKey]}
}

// spend keeps that the file system of a volume is made, before anybody can write to it.
func (n *Node) spend(v blockdevice.Volume) error {
	progress, err := n.o.Host.Progress(v.ID)
	if err != nil || progress != blockdevice.Begun {
		return err
	}
	return n.o.Host.Made(v)
}

// mount repairs, grows and mounts a file system.
func (n *Node) mount(
	ctx context.Context, d blockdevice.Device, path, fileSystem string, options blockdevice.Options,
) error {
	if err := n.o.Host.Repair(ctx, d, fileSystem); err != nil {
		return err
	}
	if err := n.o.Host.Grow(ctx, d, ""); err != nil {
		return err
	}
	if err := n.o.Host.Mount(ctx, d, path, fileSystem, options); err != nil {
		return err
	}
	return n.o.Host.Grow(ctx, d, path)
}

// fileSystem returns the file system of a device, which it makes if there is none and the volume may have one. unproven
// is one of which mkfs was not seen to end, and that was not mounted since.
func (n *Node) fileSystem(
	ctx context.Context, d blockdevice.Device, r *spec.NodeStageVolumeRequest, readOnly bool,
) (has string, unproven bool, err error) {
	content, err := n.o.Host.Inspect(ctx, d)
	if err != nil {
		return "", false, err
	}
	v := volumeOf(r)
	progress, err := n.o.Host.Progress(v.ID)
	if err != nil {
		return "", false, err
	}
	if has, err = decide(content, progress, readOnly, r); err != nil {
		return "", false, err
	}
	if err := witness(d, content, v, r.GetVolumeContext()); err != nil {
		return "", false, err
	}
	if has == "" && !readOnly {
		has = fileSystemOr(r.GetVolumeCapability().GetMount().GetFsType())
		return has, false, n.format(ctx, d, r, has)
	}
	unproven = progress == blockdevice.Begun && content.UUID == v.UUID() &&
		volume.Right(r.GetPublishContext()[FormatKey]) == volume.RightFirst
	return has, unproven, nil
}

func (n *Node) format(ctx context.Context, d blockdevice.Device, r *spec.NodeStageVolumeRequest, fileSystem string) error {
	v := volumeOf(r)
	n.o.Log.Info("Making a file system", "volume", v.ID, "device", d.Path, "bytes", d.Size, "fileSystem", fileSystem,
		"right", r.GetPublishContext()[FormatKey])
	return n.o.Host.Format(ctx, d, v, fileSystem)
}

// decide returns the file system that a device has, "" if one is to be made.
func decide(
	content blockdevice.Content, progress blockdevice.Progress, readOnly bool, r *spec.NodeStageVolumeRequest,
) (string, error) {
	right := volume.Right(r.GetPublishContext()[FormatKey])
	// Nothing was mounted since mkfs began, while the volume is at this machine for the first time.
	unfinished := content.Kind == blockdevice.Unknown && progress == blockdevice.Begun && right == volume.RightFirst
	switch want := r.GetVolumeCapability().GetMount().GetFsType(); {
	case content.Kind == blockdevice.FileSystem && want != "" && want != content.Name:
		return "", status.Errorf(codes.FailedPrecondition, "the volume has the file system %s and %s is asked for: it is not formatted again; "+
			"ask for %s, or make a new volume", content.Name, want, content.Name)
	case content.Kind == blockdevice.FileSystem:
		return content.Name, nil
	case content.Kind != blockdevice.Blank && !unfinished:
		return "", status.Errorf(codes.FailedPrecondition, "the volume holds %s, so that it is neither formatted nor mounted. "+
			"Use it as raw block to look at it, or make another volume", content.Name)
	case readOnly:
		return "", status.Errorf(codes.FailedPrecondition, "the volume has no file system, and none is made on a volume that is only read: "+
			"use it for writing once, or name the volume or snapshot that has the data")
	case progress == blockdevice.Done && right == volume.RightFirst:
		return "", status.Errorf(codes.FailedPrecondition, "the volume has no file system any more: this node has made one, "+
			"and what removed it is not known. Restore the volume's snapshot, or delete the claim and make another")
	default:
		return "", mayFormat(r.GetPublishContext(), r.GetVolumeContext())
	}
}

// witness compares the file system's UUID with the volume's, where the disk shows nothing of its name and the driver has made
// the file system. That of other volumes is whatever their makers chose, or their source's.
func witness(d blockdevice.Device, content blockdevice.Content, v blockdevice.Volume, attributes map[string]string) error {
	if !d.Nameless || content.Kind != blockdevice.FileSystem || attributes[FormatKey] != string(volume.FormatFirst) ||
		content.UUID == v.UUID() {
		return nil
	}
	return status.Errorf(codes.FailedPrecondition, "%s shows no name, and its file system has the UUID %s instead of volume %s's, %s: "+
		"the link may be left from another volume. Detach the volume and attach it again; if the file system was made by hand, "+
		"give it that UUID (tune2fs -U, xfs_admin -U)", d.Path, content.UUID, v.Name, v.UUID())
}

// mountOptions reads how a file system is to be mounted.
func mountOptions(c *spec.VolumeCapability) (blockdevice.Options, error) {
	options, err := blockdevice.ParseOptions(c.GetMount().GetMountFlags())
	if err != nil {
		return options, invalid("%v", err)
	}
	if c.GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY {
		options.ReadOnly = true
	}
	return options, nil
}

func fileSystemOr(want string) string {
	if want == "" {
		return volume.DefaultFileSystem
	}
	return want
}

// NodeUnstageVolume unmounts. It refuses while the device is still mounted elsewhere on this machine, since it is detached next.
func (n *Node) NodeUnstageVolume(ctx context.Context, r *spec.NodeUnstageVolumeRequest) (*spec.NodeUnstageVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetStagingTargetPath() == "":
		return nil, invalid("the request has no staging target path")
	}
	release, err := n.claim(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := n.unstage(ctx, r.GetStagingTargetPath()); err != nil {
		return nil, failNode(fmt.Errorf("unstaging volume %s: %w", r.GetVolumeId(), err))
	}
	return &spec.NodeUnstageVolumeResponse{}, nil
}

// unstage unmounts a staging path. The device must be nobody's then, since it is detached next: a program that had it would lose what
// it writes.
func (n *Node) unstage(ctx context.Context, path string) error {
	d, mounted, err := n.o.Host.At(path)
	if err != nil {
		return err
	}
	if mounted {
		where, err := n.o.Host.Mounts(d)
		if err != nil {
			return err
		}
		for _, other := range where {
			if other != path {
				return status.Errorf(codes.FailedPrecondition, "it is still mounted at %s: it must not be detached before that is unmounted", other)
			}
		}
	}
	name, err := n.o.Host.Staged(path)
	if err != nil {
		return err
	}
	if err := n.o.Host.Unmount(ctx, path); err != nil {
		return err
	}
	if name != "" {
		if err := n.o.Host.Unused(name); err != nil {
			return fmt.Errorf("it must not be detached yet: %w", err)
		}
	}
	return n.o.Host.Forget(path)
}

// NodePublishVolume makes the volume appear where a pod finds it.
func (n *Node) NodePublishVolume(ctx context.Context, r *spec.NodePublishVolumeRequest) (*spec.NodePublishVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetStagingTargetPath() == "":
		return nil, invalid("the request has no staging target path")
	case r.GetTargetPath() == "":
		return nil, invalid("the request has no target path")
	case !filepath.IsAbs(r.GetTargetPath()):
		return nil, invalid("the target path %q is not absolute", r.GetTargetPath())
	}
	if err := checkCapabilities(r.GetVolumeCapability()); err != nil {
		return nil, err
	}
	release, err := n.claim(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	readOnly := r.GetReadonly() || r.GetVolumeCapability().GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
	block := r.GetVolumeCapability().GetBlock() != nil
	source, d, err := n.source(ctx, r)
	if err == nil && r.GetVolumeCapability().GetAccessMode().GetMode() == spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER {
		err = n.alone(d, r)
	}
	if err == nil {
		err = n.o.Host.Bind(ctx, source, r.GetTargetPath(), block, readOnly)
	}
	if err != nil {
		return nil, failNode(fmt.Errorf("publishing volume %s: %w", r.GetVolumeId(), err))
	}
	return &spec.NodePublishVolumeResponse{}, nil
}

// source is what is bound for a pod: the staged file system, which must be that of the volume, or the device itself.
func (n *Node) source(ctx context.Context, r *spec.NodePublishVolumeRequest) (string, blockdevice.Device, error) {
	name, size, err := published(r.GetPublishContext())
	if err != nil {
		return "", blockdevice.Device{}, err
	}
	if r.GetVolumeCapability().GetBlock() != nil {
		d, err := n.find(ctx, name, size)
		return d.Path, d, err
	}
	staged, mounted, err := n.o.Host.At(r.GetStagingTargetPath())
	if err != nil {
		return "", staged, err
	}
	if !mounted {
		return "", staged, status.Errorf(codes.FailedPrecondition, "it is not staged at %s", r.GetStagingTargetPath())
	}
	d, err := n.find(ctx, name, size)
	if err == nil && d.Number != staged.Number {
		err = status.Errorf(codes.FailedPrecondition, "%s is staged at %s, and volume %s is %s: it is not given to the pod",
			staged.Path, r.GetStagingTargetPath(), name, d.Path)
	}
	return r.GetStagingTargetPath(), d, err
}

// find finds the device of a volume, and logs by what it is known to be that volume's.
func (n *Node) find(ctx context.Context, name string, size int64) (blockdevice.Device, error) {
	d, err := n.o.Host.Find(ctx, name, size)
	if err == nil {
		n.o.Log.Info("Found the device of a volume", "volume", name, "device", d.Path, "proof", d.Proof)
	}
	return d, err
}

// alone refuses a second pod where one alone may write.
func (n *Node) alone(d blockdevice.Device, r *spec.NodePublishVolumeRequest) error {
	paths, err := n.o.Host.Mounts(d)
	if err != nil {
		return err
	}
	for _, path := range paths {
		if path != r.GetStagingTargetPath() && path != r.GetTargetPath() {
			return status.Errorf(codes.FailedPrecondition, "volume %s is for one pod alone (ReadWriteOncePod) and another one has it at %s", r.GetVolumeId(), path)
		}
	}
	return nil
}

// NodeUnpublishVolume takes the volume away from a pod.
func (n *Node) NodeUnpublishVolume(ctx context.Context, r *spec.NodeUnpublishVolumeRequest) (*spec.NodeUnpublishVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetTargetPath() == "":
		return nil, invalid("the request has no target path")
	}
	release, err := n.claim(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	if err := n.o.Host.Unmount(ctx, r.GetTargetPath()); err != nil {
		return nil, failNode(fmt.Errorf("unpublishing volume %s: %w", r.GetVolumeId(), err))
	}
	return &spec.NodeUnpublishVolumeResponse{}, nil
}

// NodeExpandVolume makes the kernel see the new size and grows the file system.
func (n *Node) NodeExpandVolume(ctx context.Context, r *spec.NodeExpandVolumeRequest) (*spec.NodeExpandVolumeResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetVolumePath() == "":
		return nil, invalid("the request has no volume path")
	}
	if r.GetVolumeCapability() != nil {
		if err := checkCapabilities(r.GetVolumeCapability()); err != nil {
			return nil, err
		}
	}
	release, err := n.claim(r.GetVolumeId())
	if err != nil {
		return nil, err
	}
	defer release()
	d, mounted, err := n.o.Host.At(r.GetVolumePath())
	if err == nil && !mounted {
		err = status.Errorf(codes.NotFound, "volume %s is not at %s", r.GetVolumeId(), r.GetVolumePath())
	}
	if err != nil {
		return nil, failNode(err)
	}
	size, err := n.o.Host.Rescan(ctx, d)
	if err != nil {
		return nil, failNode(fmt.Errorf("growing volume %s: %w", r.GetVolumeId(), err))
	}
	if want := r.GetCapacityRange().GetRequiredBytes(); size < want {
		return nil, status.Errorf(codes.Unavailable, "device %s has %d bytes yet and volume %s was grown to %d: it is tried again", d.Path, size, r.GetVolumeId(), want)
	}
	if r.GetVolumeCapability().GetBlock() == nil && !d.Bound {
		if err := n.o.Host.Grow(ctx, d, r.GetVolumePath()); err != nil {
			return nil, failNode(fmt.Errorf("growing volume %s: %w", r.GetVolumeId(), err))
		}
	}
	return &spec.NodeExpandVolumeResponse{CapacityBytes: size}, nil
}

// NodeGetVolumeStats returns how much of a volume is used.
func (n *Node) NodeGetVolumeStats(_ context.Context, r *spec.NodeGetVolumeStatsRequest) (*spec.NodeGetVolumeStatsResponse, error) {
	switch {
	case r.GetVolumeId() == "":
		return nil, invalid("the request has no volume ID")
	case r.GetVolumePath() == "":
		return nil, invalid("the request has no volume path")
	}
	s, err := n.o.Host.Statistics(r.GetVolumePath())
	if err != nil {
		return nil, failNode(err)
	}
	out := &spec.NodeGetVolumeStatsResponse{Usage: []*spec.VolumeUsage{
		{Unit: spec.VolumeUsage_BYTES, Total: s.Bytes.Total, Used: s.Bytes.Used, Available: s.Bytes.Available},
	}}
	if !s.Block {
		out.Usage = append(out.Usage, &spec.VolumeUsage{
			Unit: spec.VolumeUsage_INODES, Total: s.Inodes.Total, Used: s.Inodes.Used, Available: s.Inodes.Available,
		})
	}
	return out, nil
}

// NodeGetVolumeHealth is not offered: kubelet calls it only behind the alpha gate CSIVolumeHealth, off by default.
func (n *Node) NodeGetVolumeHealth(
	context.Context, *spec.NodeGetVolumeHealthRequest,
) (*spec.NodeGetVolumeHealthResponse, error) {
	return nil, status.Error(codes.Unimplemented, "the node reports no health of volumes: the controller does")
}

// NodeGetStorageHealth is not offered: a node knows nothing of DigitalOcean's block storage beyond its own volumes.
func (n *Node) NodeGetStorageHealth(
	context.Context, *spec.NodeGetStorageHealthRequest,
) (*spec.NodeGetStorageHealthResponse, error) {
	return nil, status.Error(codes.Unimplemented, "the node reports no health of the storage")
}
