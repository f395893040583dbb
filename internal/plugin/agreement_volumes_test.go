// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"strings"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/volumes"
)

// counted is what kubectl mooring agreement has of the volumes of the stage's machine.
func (s *volumesStage) counted(droplet int) {
	s.Helper()
	ctx, client := s.Context(), s.cluster.Client
	const machine = "volumes-1"
	check := func(what, count string) {
		s.Helper()
		code := 0
		if strings.HasPrefix(what, "disagree") {
			code = 2
		}
		if r := agreements(s.T, s.cluster, code)[machine]; said(r) != what || r.Volumes != count {
			s.Errorf("%q with %q, want %q with %q", said(r), r.Volumes, what, count)
		}
	}
	check("agree", "") // no machine has the driver
	limit := int32(15)
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: machine}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
		Name: volumes.Driver, NodeID: "1", TopologyKeys: []string{"region"}, Allocatable: &storagev1.VolumeNodeResources{Count: &limit},
	}}}}
	_, err := client.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		_ = client.StorageV1().CSINodes().Delete(context.Background(), machine, metav1.DeleteOptions{})
	})
	check("settling; volumes are being attached or detached: pvc-late, pvc-used", "2 of 15")
	for _, name := range []string{"volumes-used", "volumes-late"} {
		a, err := client.StorageV1().VolumeAttachments().Get(ctx, name, metav1.GetOptions{})
		s.must(err)
		a.Status.Attached = true
		_, err = client.StorageV1().VolumeAttachments().UpdateStatus(ctx, a, metav1.UpdateOptions{})
		s.must(err)
	}
	check("agree", "2 of 15")
	s.must(client.StorageV1().VolumeAttachments().Delete(ctx, "volumes-late", metav1.DeleteOptions{}))
	check("disagree; DigitalOcean has volumes attached to it that Kubernetes has not (no VolumeAttachment): pvc-late", "2 of 15")
	s.attach("volumes-late", "pvc-late", machine)
	s.must(s.account.AttachVolume(s.volume("by-hand"), droplet))
	check("disagree; 1 volume that no PersistentVolume has, so that there is room for 14 of Kubernetes', and its CSINode says 15; volumes are being attached or detached: pvc-late", "3 of 15")
}
