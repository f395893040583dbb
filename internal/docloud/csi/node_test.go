// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

func refused(t *testing.T, err error, code codes.Code, words string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), words) || strings.Contains(status.Convert(err).Message(), "rpc error") {
		t.Errorf("%v; want %v, %q and no words of gRPC within", err, code, words)
	}
}

// TestReadOnlyMakesNoFileSystem, be it asked for by the access mode or by a mount option.
func TestReadOnlyMakesNoFileSystem(t *testing.T) {
	t.Parallel()
	i := newInput(t)
	flagged := writer()
	flagged.GetMount().MountFlags = []string{"noatime,ro"}
	for name, c := range map[string]*spec.VolumeCapability{
		"by access mode": withMode(spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY), "by option": flagged,
	} {
		request := &spec.NodeStageVolumeRequest{
			VolumeId: i.attached, StagingTargetPath: filepath.Join(i.folder, "staging"), PublishContext: i.published, VolumeCapability: c,
		}
		_, err := i.nodes.NodeStageVolume(t.Context(), request)
		refused(t, err, codes.FailedPrecondition, "none is made on a volume that is only read")
		if len(i.host.content) != 0 {
			t.Errorf("%s: the disk has %v", name, i.host.content)
		}
	}
}

// TestOptionsAreReadFirst: what cannot be done is refused by name before a file system is made.
func TestOptionsAreReadFirst(t *testing.T) {
	t.Parallel()
	i := newInput(t)
	c := writer()
	c.GetMount().MountFlags = []string{"noatime", "nofail,bind"}
	_, err := i.nodes.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: i.attached, StagingTargetPath: filepath.Join(i.folder, "staging"), PublishContext: i.published, VolumeCapability: c,
	})
	refused(t, err, codes.InvalidArgument, `the mount option "bind" is not possible for a volume`)
	if len(i.host.content) != 0 {
		t.Errorf("the disk has %v", i.host.content)
	}
}

// TestAPodGetsItsOwnVolume: what is staged at a path is given to a pod only if it is the volume that is asked for.
func TestAPodGetsItsOwnVolume(t *testing.T) {
	t.Parallel()
	i := newInput(t)
	other, err := i.control.ControllerPublishVolume(t.Context(), attachment(i.free, i.served.node, volume.FormatFirst))
	if err != nil {
		t.Fatal(err)
	}
	staging := filepath.Join(i.folder, "staging")
	if _, err := i.nodes.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: i.attached, StagingTargetPath: staging, PublishContext: i.published, VolumeCapability: writer(),
	}); err != nil {
		t.Fatal(err)
	}
	request := &spec.NodePublishVolumeRequest{
		VolumeId: i.free, StagingTargetPath: staging, TargetPath: filepath.Join(i.folder, "pod"), PublishContext: other.GetPublishContext(), VolumeCapability: writer(),
	}
	_, err = i.nodes.NodePublishVolume(t.Context(), request)
	refused(t, err, codes.FailedPrecondition, "/dev/pvc-attached is staged at "+staging+", and volume pvc-free is /dev/pvc-free: it is not given to the pod")
	request.VolumeId, request.PublishContext = i.attached, i.published
	if _, err := i.nodes.NodePublishVolume(t.Context(), request); err != nil {
		t.Error(err)
	}
}

// TestADeviceThatIsUsedIsNotUnstaged, also when nothing is mounted at the staging path: of a raw block volume nothing ever is.
func TestADeviceThatIsUsedIsNotUnstaged(t *testing.T) {
	t.Parallel()
	block := &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}, AccessMode: writer().GetAccessMode(),
	}
	for name, c := range map[string]*spec.VolumeCapability{"file system": writer(), "raw block": block} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInput(t)
			staging := filepath.Join(i.folder, "staging")
			if _, err := i.nodes.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
				VolumeId: i.attached, StagingTargetPath: staging, PublishContext: i.published, VolumeCapability: c,
			}); err != nil {
				t.Fatal(err)
			}
			use := func(user string) {
				i.host.mu.Lock()
				defer i.host.mu.Unlock()
				i.host.used["pvc-attached"] = user
			}
			unstage := &spec.NodeUnstageVolumeRequest{VolumeId: i.attached, StagingTargetPath: staging}
			use("a pod")
			for range 2 {
				_, err := i.nodes.NodeUnstageVolume(t.Context(), unstage)
				refused(t, err, codes.FailedPrecondition, "it must not be detached yet: "+blockdevice.ErrBusy.Error()+": a pod has it")
			}
			use("")
			for range 2 { // and again, as a kubelet does that did not hear the first answer
				if _, err := i.nodes.NodeUnstageVolume(t.Context(), unstage); err != nil {
					t.Error(err)
				}
			}
			if left, _ := i.host.Staged(staging); left != "" {
				t.Errorf("%s is still remembered", left)
			}
		})
	}
}
