// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/plugin/observe/overview"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/ui"
)

// A claim without a volume is fine only while its class waits for a Pod.
func TestClaimsThatWaitInVain(t *testing.T) {
	c := clusterOf(t, controlplane.New(t))
	now := clocktesting.NewFakePassiveClock(time.Now().Add(38 * time.Minute))
	for name, mode := range map[string]storagev1.VolumeBindingMode{
		"at-once": storagev1.VolumeBindingImmediate, "for-pod": storagev1.VolumeBindingWaitForFirstConsumer,
	} {
		class := &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: "dobs.csi.digitalocean.com", VolumeBindingMode: &mode,
		}
		if _, err := c.Typed.StorageV1().StorageClasses().Create(t.Context(), class, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		for suffix, annotations := range map[string]map[string]string{
			"": nil, "-chosen": {"volume.kubernetes.io/selected-node": "w1"},
		} {
			claim := &corev1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Name: name + suffix, Annotations: annotations},
				Spec: corev1.PersistentVolumeClaimSpec{
					StorageClassName: &name, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}
			claims := c.Typed.CoreV1().PersistentVolumeClaims("default")
			if _, err := claims.Create(t.Context(), claim, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	w, err := overview.NewReader(c, now, true).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := ui.View(w, ui.Filter{}, "")
	rows := map[string]bool{}
	for _, l := range p.Lists {
		for _, r := range l.Rows {
			if l.Key == "volumes" {
				rows[r.Cells[0].Text] = r.Ill
			}
			if l.Key == "volumes" && r.Cells[0].Text == "default/at-once" && strings.Contains(fmt.Sprint(r.Cells), "WaitForFirstConsumer") {
				t.Errorf("a class that makes volumes at once waits for a Pod: %+v", r.Cells)
			}
		}
	}
	want := map[string]bool{"default/at-once": true, "default/at-once-chosen": true, "default/for-pod": false, "default/for-pod-chosen": true}
	if diff := cmp.Diff(want, rows); diff != "" {
		t.Error(diff)
	}
}
