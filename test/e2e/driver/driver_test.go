// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package driver

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/test/objects"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestLifeOfAVolume takes one volume from its claim to its end: it is bound, attached, grown, copied to a second volume
// by way of a snapshot, detached and deleted.
func TestLifeOfAVolume(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	s.checkUpdatePeriod()
	attached := fmt.Sprintf("on [%d]", s.droplet)

	data := s.apply("testdata/claim.yaml", "SIZE", "1Gi")[0]
	pv := s.awaitBound(data)
	s.await(pv, "map[nodeSelectorTerms:[map[matchExpressions:[map[key:region operator:In values:[nyc1]]]]]]",
		"spec", "nodeAffinity", "required")
	attachment := s.apply("testdata/attachment.yaml", "VOLUME", pv.GetName())[0]
	s.await(attachment, true, "status", "attached")
	s.checkCloud("1 GiB " + attached)

	s.apply("testdata/claim.yaml", "SIZE", "2Gi")
	s.await(pv, "2Gi", "spec", "capacity", "storage")
	// The file system is kubelet's to grow.
	s.await(data, "NodeResizePending", "status", "allocatedResourceStatuses", "storage")

	snapshot := s.apply("testdata/snapshot.yaml")[0]
	s.await(snapshot, true, "status", "readyToUse")
	restored := s.apply("testdata/restored.yaml")[0]
	copied := s.awaitBound(restored)
	s.checkCloud("2 GiB "+attached, "2 GiB on []")

	s.delete(attachment)
	s.checkCloud("2 GiB on []", "2 GiB on []")
	s.delete(data, restored, snapshot)
	s.awaitGone(pv, copied)
	s.checkCloud()
	if left, warnings := s.cloud.Snapshots(), s.Warnings(); len(left)+len(warnings) > 0 {
		t.Errorf("DigitalOcean has snapshots %v; the API server warns: %q", left, warnings)
	}
}

// site is a control plane without kubelets, the driver's controller with its sidecars, and a simulated DigitalOcean.
type site struct {
	*testing.T
	*objects.Server

	plane   *controlplane.Cluster
	cloud   *digitalocean.Account
	droplet int
	folder  string
}

// newSite applies the manifest and starts all programs; they are stopped at the end of the test.
func newSite(t *testing.T) *site {
	t.Helper()
	root := testkit.Root(t)
	if _, err := os.Stat(filepath.Join(root, "bin", "csi", ".built")); err != nil {
		const message = "it needs Kubernetes' sidecars in bin/csi: run `make bin/csi/.built`, which takes minutes"
		if testing.Short() { // of `make e2e`, which does not build them
			t.Skip(message)
		}
		testkit.Skip(t, message)
	}
	plane := controlplane.Shared(t)
	s := &site{T: t, plane: plane, Server: objects.ConnectTo(t, plane), folder: testkit.Folder(t, "driver-")}
	kinds, err := filepath.Glob(filepath.Join(root, "bin", "csi", "crds", "*.yaml"))
	s.must(err)
	for _, file := range kinds {
		plane.InstallCRDs(t, controlplane.KindIn(t, file))
	}
	shipped := s.apply(filepath.Join(root, "dist", "digitalocean-csi-driver.yaml"))
	// The controllers that belong to the cluster, not to the driver.
	s.start("lab", "kube-controller-manager", "--kubeconfig="+plane.Kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--controllers=persistentvolume-binder-controller,"+
			"persistentvolume-protection-controller,persistentvolumeclaim-protection-controller")
	s.start("csi/snapshot-controller", "--kubeconfig="+plane.Kubeconfig, "--feature-gates=CSIVolumeGroupSnapshot=false")
	s.startController(objects.OfKind[appsv1.StatefulSet](t, shipped, "StatefulSet")[0])
	return s
}

// startController starts DigitalOcean with one droplet, and the containers of the controller as processes, the sidecars
// with its service account's rights.
func (s *site) startController(controller *appsv1.StatefulSet) {
	s.Helper()
	simulator := digitalocean.New(digitalocean.Options{})
	api := httptest.NewServer(simulator.Handler())
	s.Cleanup(api.Close)
	s.cloud = simulator.Account("")
	droplet, err := s.cloud.CreateDroplet(digitalocean.DropletSpec{Name: "node-1"})
	s.must(err)
	s.droplet = droplet.ID
	s.apply("testdata/node.yaml", "DROPLET", strconv.Itoa(s.droplet))
	socket, token := filepath.Join(s.folder, "csi.sock"), filepath.Join(s.folder, "token")
	s.must(os.WriteFile(token, []byte(digitalocean.DefaultToken), 0o600))
	kubeconfig := s.impersonate("system:serviceaccount:kube-system:" + controller.Spec.Template.Spec.ServiceAccountName)
	// The last value of a flag counts. The driver, the last container, starts first and is stopped last.
	for _, c := range slices.Backward(controller.Spec.Template.Spec.Containers) {
		if c.Name == "csi-do-plugin" {
			s.start("digitalocean-csi-driver", slices.Concat(c.Args, []string{
				"--endpoint=unix://" + socket, "--token-file=" + token, "--debug-addr=", "--metrics-bind-address=",
				"--url=" + api.URL, "--region=nyc1", "--droplet-id=" + strconv.Itoa(s.droplet),
				"--action-poll-interval=20ms",
			})...)
			continue
		}
		s.start("csi/"+c.Name, slices.Concat(c.Args, []string{
			"--csi-address=" + socket, "--kubeconfig=" + kubeconfig, "--leader-election-namespace=kube-system",
		})...)
	}
}

// impersonate returns the path of a kubeconfig with a user's rights, when the API server has read the roles.
func (s *site) impersonate(user string) string {
	s.Helper()
	for _, right := range []authorizationv1.ResourceAttributes{
		{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents", Subresource: "status", Verb: "patch"},
		{Group: "coordination.k8s.io", Resource: "leases", Verb: "create", Namespace: "kube-system"},
	} {
		testkit.Eventually(s.T, "the right to "+right.Verb+" "+right.Resource, func() string {
			review := &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right},
			}
			if err := s.Client.Create(s.Context(), review); err != nil || !review.Status.Allowed {
				return fmt.Sprintf("%+v (%v)", review.Status, err)
			}
			return ""
		})
	}
	config, err := clientcmd.LoadFromFile(s.plane.Kubeconfig)
	s.must(err)
	for _, u := range config.AuthInfos {
		u.Impersonate = user
	}
	path := filepath.Join(s.folder, "kubeconfig")
	s.must(clientcmd.WriteToFile(*config, path))
	return path
}

// forbidden is a line of a log by which a right is missing. A warning is not one: csi-snapshotter looks for snapshots of
// groups, which the driver does not have, and does without them.
var forbidden = regexp.MustCompile(`(?m)^E.* is forbidden`)

// start starts a program of bin, and stops it at the end of the test. Nothing may be forbidden to it.
func (s *site) start(program string, args ...string) {
	s.Helper()
	log := filepath.Join(s.folder, filepath.Base(program)+".log")
	process := testkit.Start(s.T, log, nil, testkit.Binary(s.T, program), args...)
	s.Cleanup(func() {
		process.Stop()
		if output := process.Output(); s.Failed() || forbidden.MatchString(output) {
			s.Errorf("log of %s:\n%s", program, output[max(0, len(output)-10_000):])
		}
	})
}

// apply applies and returns the objects of a file, in which words are replaced.
func (s *site) apply(path string, words ...string) []*unstructured.Unstructured {
	s.Helper()
	content, err := os.ReadFile(path)
	s.must(err)
	all := objects.Parse(s.T, path, []byte(strings.NewReplacer(words...).Replace(string(content))))
	for _, o := range all {
		s.must(s.Apply(s.Context(), o))
	}
	return all
}

// await reads an object until a field has a value.
func (s *site) await(o *unstructured.Unstructured, want any, path ...string) {
	s.Helper()
	what := fmt.Sprintf("%s of %s %s to be %v", strings.Join(path, "."), o.GetKind(), o.GetName(), want)
	testkit.Eventually(s.T, what, func() string {
		err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o)
		got, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
		if err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Sprint(o.Object, err)
		}
		return ""
	})
}

// awaitBound waits until a claim is bound, and returns its PersistentVolume.
func (s *site) awaitBound(claim *unstructured.Unstructured) *unstructured.Unstructured {
	s.Helper()
	s.await(claim, "Bound", "status", "phase")
	pv := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "PersistentVolume"}}
	pv.SetName("pvc-" + string(claim.GetUID()))
	return pv
}

func (s *site) delete(all ...*unstructured.Unstructured) {
	s.Helper()
	for _, o := range all {
		s.must(s.Client.Delete(s.Context(), o))
	}
	s.awaitGone(all...)
}

func (s *site) awaitGone(all ...*unstructured.Unstructured) {
	s.Helper()
	for _, o := range all {
		testkit.Eventually(s.T, o.GetKind()+" "+o.GetName()+" to be deleted", func() string {
			if err := s.Client.Get(s.Context(), client.ObjectKeyFromObject(o), o); !apierrors.IsNotFound(err) {
				return fmt.Sprint(o.Object, err)
			}
			return ""
		})
	}
}

// checkCloud compares the volumes that DigitalOcean has: their sizes, and the droplets that they are attached to.
func (s *site) checkCloud(want ...string) {
	s.Helper()
	var got []string
	for _, v := range s.cloud.Volumes() {
		got = append(got, fmt.Sprintf("%d GiB on %v", v.SizeGigabytes, v.DropletIDs))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		s.Errorf("DigitalOcean has the volumes %q, want %q", got, want)
	}
}

// checkUpdatePeriod checks what docs/reference/kubernetes-versions.md states of nodeAllocatableUpdatePeriodSeconds: API
// servers older than 1.35 drop it.
func (s *site) checkUpdatePeriod() {
	s.Helper()
	is, err := s.plane.Client.Discovery().ServerVersion()
	s.must(err)
	var driver storagev1.CSIDriver
	s.must(s.Client.Get(s.Context(), client.ObjectKey{Name: csi.DriverName}, &driver))
	kept := driver.Spec.NodeAllocatableUpdatePeriodSeconds != nil
	if want := version.MustParseGeneric(is.GitVersion).AtLeast(version.MustParseGeneric("1.35")); kept != want {
		s.Errorf("Kubernetes %s keeps nodeAllocatableUpdatePeriodSeconds: %t, want %t", is.GitVersion, kept, want)
	}
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}
