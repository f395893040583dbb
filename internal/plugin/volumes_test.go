// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiresource "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// volumesStage is a cluster with volumes, and their DigitalOcean.
type volumesStage struct {
	*testing.T
	cluster *controlplane.Cluster
	account *sim.Account
}

func (s *volumesStage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// volume makes a volume at DigitalOcean.
func (s *volumesStage) volume(name string, tags ...string) string {
	s.Helper()
	v, err := s.account.CreateVolume(sim.VolumeSpec{Name: name, Size: 5, Description: volumes.Description, Tags: tags})
	s.must(err)
	return v.ID
}

// claim makes a PersistentVolume of a volume, and its claim in namespace default.
func (s *volumesStage) claim(name, id string) {
	s.Helper()
	ctx, client := s.Context(), s.cluster.Client
	size, class := corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("5Gi")}, ""
	modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
	claim, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeClaimSpec{StorageClassName: &class, VolumeName: "pvc-" + name, AccessModes: modes, Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: volumes.Driver, VolumeHandle: id}},
			ClaimRef:               &corev1.ObjectReference{Namespace: "default", Name: name, UID: claim.UID},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		ctx := context.Background()
		for _, err := range []error{
			client.CoreV1().PersistentVolumes().Delete(ctx, "pvc-"+name, metav1.DeleteOptions{}),
			client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, name, metav1.DeleteOptions{}),
		} {
			if err != nil {
				s.Error(err)
			}
		}
		// Nothing but these is there to take the finalizers off.
		none := []byte(`{"metadata":{"finalizers":null}}`)
		_, _ = client.CoreV1().PersistentVolumes().Patch(ctx, "pvc-"+name, types.MergePatchType, none, metav1.PatchOptions{})
		_, _ = client.CoreV1().PersistentVolumeClaims("default").Patch(ctx, name, types.MergePatchType, none, metav1.PatchOptions{})
	})
}

// report runs the command in JSON.
func (s *volumesStage) report(code int) volumes.Report {
	s.Helper()
	got, out, errs := run(s.T, []string{"volumes", "--kubeconfig", s.cluster.Kubeconfig, "-o", "json"})
	var r volumes.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil || got != code || errs != "" {
		s.Fatalf("exit code %d, want %d; %v: %s%s", got, code, err, out, errs)
	}
	return r
}

func (s *volumesStage) row(r volumes.Report, name string) volumes.Row {
	s.Helper()
	for _, v := range r.Volumes {
		if v.Volume == name {
			return v
		}
	}
	s.Fatalf("there is no volume %s in %+v", name, r)
	return volumes.Row{}
}

// The command reads a real API server and DigitalOcean; each side alone is never called fine.
func TestVolumes(t *testing.T) {
	clearEnvironment(t)
	s := &volumesStage{T: t, cluster: controlplane.Lend(t)}
	cloud := sim.New(sim.Options{Seed: 1})
	s.account = cloud.Account("")
	droplet, err := s.account.CreateDroplet(sim.DropletSpec{Name: "volumes-1"})
	s.must(err)
	makeNode(t, s.cluster, "volumes-1", providerid.Format(droplet.ID), "10.0.0.9/24", nil)
	used := s.volume("pvc-used", "k8s:ours")
	s.must(s.account.AttachVolume(used, droplet.ID))
	s.claim("used", used)
	lost := s.volume("pvc-lost")
	s.claim("lost", lost)
	s.must(s.account.DeleteVolume(lost))
	s.volume("pvc-orphan", "k8s:ours")
	s.volume("pvc-theirs", "k8s:theirs")
	s.attach("volumes-used", "pvc-used", "volumes-1")
	late := s.volume("pvc-late", "k8s:ours")
	s.must(s.account.AttachVolume(late, droplet.ID))
	s.claim("late", late)
	t.Cleanup(func() {
		_ = s.cluster.Client.CoreV1().Nodes().Delete(context.Background(), "volumes-1", metav1.DeleteOptions{})
	})

	r := s.report(2)
	if v := s.row(r, "pvc-used"); len(r.Volumes) != 3 || v.Verdict != finding.OneSide || len(r.NotRead) != 1 || r.NotRead[0] != "DigitalOcean: there is no token in DO_ACCESS_TOKEN" {
		t.Errorf("without a token: %+v", r)
	}
	var attaching sync.Once
	handler := cloud.Handler()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v2/volumes" {
			attaching.Do(func() { s.attach("volumes-late", "pvc-late", "volumes-1") }) // after Kubernetes was read, and before DigitalOcean answers
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	t.Setenv("DO_OVERRIDE_URL", server.URL)
	t.Setenv("DO_ACCESS_TOKEN", "wrong")
	if r := s.report(2); len(r.NotRead) != 1 || !strings.HasPrefix(r.NotRead[0], "DigitalOcean: asking for the account: ") {
		t.Errorf("with a wrong token: %+v", r)
	}
	t.Setenv("DO_ACCESS_TOKEN", sim.DefaultToken)
	r = s.report(2)
	if v := s.row(r, "pvc-lost"); v.State != volumes.Gone || v.Verdict != finding.Disagree {
		t.Errorf("%+v", v)
	}
	if v := s.row(r, "pvc-used"); v.Droplet != droplet.ID || v.Machine != "volumes-1" || v.State != volumes.Attached || len(v.Findings) == 0 {
		t.Errorf("%+v", v)
	}
	if v := s.row(r, "pvc-late"); v.Verdict != finding.Settling || len(v.Findings) != 1 || v.Findings[0].What != "it has just been attached to volumes-1" {
		t.Errorf("attached in between: %+v", v)
	}
	s.row(r, "pvc-orphan")
	if r.Totals != (volumes.Totals{Claimed: 15, Unclaimed: 5, Others: 1}) || len(r.NotRead) > 0 {
		t.Errorf("%+v, %v", r.Totals, r.NotRead)
	}
	expect(t, 2, "", []string{"volumes", "--kubeconfig", s.cluster.Kubeconfig}, "CLAIM", "default/lost", "  ! its volume is gone: DigitalOcean responds with 404 for its ID\n",
		"4 volumes: ", "15 GiB are claimed, 5 GiB are not")
	expect(t, 2, "", []string{"volumes", "--kubeconfig", s.cluster.Kubeconfig, "-o", "wide"}, "WHAT\n", lost)
	expect(t, 1, "", []string{"volumes", "--kubeconfig", s.cluster.Kubeconfig, "x"}, "error: ")
	explainAs := func(args ...string) []string {
		return append([]string{"explain", "--kubeconfig", s.cluster.Kubeconfig, "-n", "default"}, args...)
	}
	expect(t, 2, "", explainAs("pvc", "lost"), "PersistentVolumeClaim default/lost: needs attention\n", "its volume is gone: DigitalOcean responds with 404 for its ID\n")
	expect(t, 1, "", explainAs("pvc/nope"), `error: there is no PersistentVolumeClaim "nope" in namespace default; -n names another namespace`)
	s.lost()
	s.inUse()
	s.shown()
	s.counted(droplet.ID)
	expect(t, 0, "", explainAs("pvc", "used"), "PersistentVolumeClaim default/used: nothing needs attention\n", "Kubernetes and DigitalOcean agree\n", "default/volumes\n")
}

// lost is a claim of the driver whose PersistentVolume is gone.
func (s *volumesStage) lost() {
	s.Helper()
	ctx, client := s.Context(), s.cluster.Client
	class := "volumes-lost"
	_, err := client.StorageV1().StorageClasses().Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: class}, Provisioner: volumes.Driver}, metav1.CreateOptions{})
	s.must(err)
	claim, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "orphaned"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: &class, VolumeName: "pvc-is-gone", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: apiresource.MustParse("5Gi")}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		_ = client.StorageV1().StorageClasses().Delete(context.Background(), class, metav1.DeleteOptions{})
		_ = client.CoreV1().PersistentVolumeClaims("default").Delete(context.Background(), "orphaned", metav1.DeleteOptions{})
		_, _ = client.CoreV1().PersistentVolumeClaims("default").Patch(context.Background(), "orphaned", types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	claim.Status.Phase = corev1.ClaimLost
	_, err = client.CoreV1().PersistentVolumeClaims("default").UpdateStatus(ctx, claim, metav1.UpdateOptions{})
	s.must(err)
	expect(s.T, 2, "", []string{"volumes", "--kubeconfig", s.cluster.Kubeconfig}, "default/orphaned", "  ! its PersistentVolume pvc-is-gone is gone\n")
	expect(s.T, 2, "", []string{"explain", "--kubeconfig", s.cluster.Kubeconfig, "-n", "default", "pvc", "orphaned"},
		"PersistentVolumeClaim default/orphaned: needs attention\n", "its PersistentVolume pvc-is-gone is gone\n", "restore it from a snapshot or a backup\n")
}

// attach makes a VolumeAttachment.
func (s *volumesStage) attach(name, volume, node string) {
	s.Helper()
	_, err := s.cluster.Client.StorageV1().VolumeAttachments().Create(s.Context(), &storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       storagev1.VolumeAttachmentSpec{Attacher: volumes.Driver, NodeName: node, Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume}},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		_ = s.cluster.Client.StorageV1().VolumeAttachments().Delete(context.Background(), name, metav1.DeleteOptions{})
	})
}

// inUse gives the volume that is attached its Pod, and finds that both sides agree of it.
func (s *volumesStage) inUse() {
	s.Helper()
	mustKubectl(s.T, s.cluster, "", "-n", "default", "create", "serviceaccount", "volumes")
	s.Cleanup(func() {
		_ = s.cluster.Client.CoreV1().ServiceAccounts("default").Delete(context.Background(), "volumes", metav1.DeleteOptions{})
	})
	zero := int64(0)
	_, err := s.cluster.Client.CoreV1().Pods("default").Create(s.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "volumes"},
		Spec: corev1.PodSpec{
			ServiceAccountName: "volumes", NodeName: "volumes-1", TerminationGracePeriodSeconds: &zero, Containers: []corev1.Container{{Name: "c", Image: "c"}},
			Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "used"}}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	s.Cleanup(func() {
		_ = s.cluster.Client.CoreV1().Pods("default").Delete(context.Background(), "volumes", metav1.DeleteOptions{GracePeriodSeconds: &zero})
	})
	r := s.report(2)
	if v := s.row(r, "pvc-used"); v.Verdict != finding.Agree || v.State != volumes.InUse || len(v.Pods) != 1 {
		s.Errorf("%+v", v)
	}
}
