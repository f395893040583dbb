// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package guides

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/pages"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
)

// volumesSite is a cluster with csi-digitalocean.
type volumesSite struct {
	*testing.T
	cluster *controlplane.Cluster
	pages   *pages.Reader
}

// The page about csi-digitalocean, by its commands: only the image, all of it, and back. The objects stay the same ones.
func TestMigrationFromCSIDigitalOcean(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	s := &volumesSite{t, cluster, newReader(t, "migration/digitalocean-csi-driver.md", cluster.Kubeconfig)}
	crd, old := filepath.Join(testkit.Root(t), "test/guides/testdata/volumesnapshotclasses.yaml"), filepath.Join(t.TempDir(), "driver.yaml")
	manifest, err := upstream.File(upstream.VolumeDriver())
	if err == nil {
		err = os.WriteFile(old, manifest, 0o600)
	}
	must.Do(t, err)
	s.pages.Run("kubectl apply -f " + crd + "\nkubectl wait --for=condition=Established crd/volumesnapshotclasses.snapshot.storage.k8s.io --timeout=120s\n")
	s.pages.Run("kubectl apply -f " + old + "\n") // as people did it
	before, node := s.controller(), s.node()
	s.scheduled()
	if out := s.pages.Run(s.pages.Blocks("## Preview")[0]); !strings.Contains(out, "ok       volume-drivers: one controller and one node plugin run driver") ||
		!strings.Contains(out, "DaemonSet kube-system/csi-do-node removes the udev rule") {
		t.Errorf("%s", out)
	}

	image := "export IMAGE=example.com/mooring/digitalocean-csi-driver:v0.1.0\n"
	s.pages.Run(image + s.pages.Blocks("## Change only the image")[0])
	if got := s.images(); !slices.Equal(got, []string{"example.com/mooring/digitalocean-csi-driver:v0.1.0", "example.com/mooring/digitalocean-csi-driver:v0.1.0"}) {
		t.Errorf("%q", got)
	}

	all := s.pages.Blocks("## All of it")
	s.pages.Run("export MANIFEST=" + filepath.Join(testkit.Root(t), "dist/digitalocean-csi-driver.yaml") + "\n" + all[0])
	s.pages.Run(all[2])
	s.scheduled()
	now := s.controller()
	if now.UID != before.UID || *now.Spec.Replicas != 2 || s.node().UID != node.UID || slices.Contains(names(s.node().Spec.Template.Spec.Containers), "csi-node-driver-registrar") {
		t.Errorf("%+v", now.Spec)
	}
	if out := s.pages.Run("kubectl mooring doctor volumes\n"); !strings.Contains(out, "0 problems, 0 warnings, ") {
		t.Errorf("%s", out)
	}

	s.pages.Run("export OLD=" + old + "\n" + s.pages.Blocks("## Rollback")[0])
	back := s.controller()
	if diff := cmp.Diff(before.Spec, back.Spec); diff != "" || back.UID != before.UID {
		t.Errorf("the controller is another one (-before +back): %s", diff)
	}
	if diff := cmp.Diff(node.Spec, s.node().Spec); diff != "" {
		t.Errorf("the node plugin is another one (-before +back): %s", diff)
	}
	roles, err := cluster.Client.RbacV1().Roles("kube-system").List(t.Context(), metav1.ListOptions{})
	if err != nil || slices.ContainsFunc(roles.Items, func(r rbacv1.Role) bool { return r.Name == "csi-do-leader-election" }) {
		t.Errorf("a Role is left: %v", err)
	}
}

func (s *volumesSite) controller() *appsv1.StatefulSet {
	s.Helper()
	set, err := s.cluster.Client.AppsV1().StatefulSets("kube-system").Get(s.Context(), "csi-do-controller", metav1.GetOptions{})
	must.Do(s, err)
	return set
}

func (s *volumesSite) node() *appsv1.DaemonSet {
	s.Helper()
	set, err := s.cluster.Client.AppsV1().DaemonSets("kube-system").Get(s.Context(), "csi-do-node", metav1.GetOptions{})
	must.Do(s, err)
	return set
}

// scheduled writes what the controllers of both workloads would, which do not run here.
func (s *volumesSite) scheduled() {
	s.Helper()
	controller := s.controller()
	controller.Status.Replicas, controller.Status.ReadyReplicas = *controller.Spec.Replicas, *controller.Spec.Replicas
	if _, err := s.cluster.Client.AppsV1().StatefulSets("kube-system").UpdateStatus(s.Context(), controller, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
	set := s.node()
	set.Status.DesiredNumberScheduled, set.Status.NumberReady = 1, 1
	if _, err := s.cluster.Client.AppsV1().DaemonSets("kube-system").UpdateStatus(s.Context(), set, metav1.UpdateOptions{}); err != nil {
		s.Fatal(err)
	}
}

// images are those of both workloads' drivers.
func (s *volumesSite) images() (out []string) {
	for _, c := range append(s.controller().Spec.Template.Spec.Containers, s.node().Spec.Template.Spec.Containers...) {
		if c.Name == "csi-do-plugin" {
			out = append(out, c.Image)
		}
	}
	return out
}

func names(containers []corev1.Container) (out []string) {
	for _, c := range containers {
		out = append(out, c.Name)
	}
	return out
}
