// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package driver

import (
	"cmp"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	csipb "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/upstream"
	"github.com/mooring-dev/mooring/test/objects"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// TestLifeOfAVolume is one with the manifest.
func TestLifeOfAVolume(t *testing.T) {
	t.Parallel()
	path := filepath.Join(testkit.Root(t), "dist", "digitalocean-csi-driver.yaml")
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t, objects.Parse(t, path, content), nil)
	s.checkUpdatePeriod()
	s.life()
}

// TestLifeOfAVolumeWithOnlyTheImageChanged is one with csi-digitalocean's manifest: with exactly its arguments, variables
// and rights. The node plugin, too, serves with those of its DaemonSet. Two rights are missing that a volume does not need:
// csi-resizer reads VolumeAttributesClasses, since this driver, unlike csi-digitalocean, can modify volumes; and
// csi-provisioner of this test is newer than that of the manifest, and watches VolumeSnapshots.
func TestLifeOfAVolumeWithOnlyTheImageChanged(t *testing.T) {
	t.Parallel()
	all := upstream.VolumeDriver()
	s := newSite(t, all, []string{`cannot list resource \"volumeattributesclasses\"`, `cannot watch resource \"volumesnapshots\"`})
	s.life()
	s.checkNode(objects.OfKind[appsv1.DaemonSet](t, all, "DaemonSet")[0])
}

// life takes one volume from its claim to its end: it is bound, attached, grown, copied to a second volume by way of a
// snapshot, detached and deleted.
func (s *site) life() {
	s.Helper()
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
		s.Errorf("DigitalOcean has snapshots %v; the API server warns: %q", left, warnings)
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
	// where has what stands in the manifest for a place, and the place here.
	where *strings.Replacer
	// metadata is the URL of the droplet's metadata service.
	metadata string
	// refused are parts of lines of logs by which a right may be missing.
	refused []string
}

// newSite applies a manifest and starts all programs; they are stopped at the end of the test. Only what is named may be
// refused to them.
func newSite(t *testing.T, manifest []*unstructured.Unstructured, refused []string) *site {
	t.Helper()
	root := testkit.Root(t)
	if _, err := os.Stat(filepath.Join(root, "bin", "csi", ".built")); err != nil {
		const message = "it needs Kubernetes' sidecars in bin/csi: run `make bin/csi/.built`, which takes minutes"
		if testing.Short() { // of `make e2e`, which does not build them
			t.Skip(message)
		}
		testkit.Skip(t, message)
	}
	plane := controlplane.New(t) // the names of both manifests are the same
	s := &site{T: t, plane: plane, Server: objects.ConnectTo(t, plane), folder: testkit.Folder(t, "driver-"), refused: refused}
	kinds, err := filepath.Glob(filepath.Join(root, "bin", "csi", "crds", "*.yaml"))
	s.must(err)
	for _, file := range kinds {
		plane.InstallCRDs(t, controlplane.KindIn(t, file))
	}
	for _, o := range manifest {
		s.must(s.Apply(t.Context(), o))
	}
	// The controllers that belong to the cluster, not to the driver.
	s.start("lab", "kube-controller-manager", "--kubeconfig="+plane.Kubeconfig, "--leader-elect=false",
		"--secure-port=0", "--controllers=persistentvolume-binder-controller,"+
			"persistentvolume-protection-controller,persistentvolumeclaim-protection-controller")
	s.start("csi/snapshot-controller", "--kubeconfig="+plane.Kubeconfig, "--feature-gates=CSIVolumeGroupSnapshot=false")
	s.startController(objects.OfKind[appsv1.StatefulSet](t, manifest, "StatefulSet")[0])
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
	metadata := httptest.NewServer(simulator.Metadata(func(*http.Request) (string, string, bool) {
		return "", strconv.Itoa(s.droplet), true
	}))
	s.Cleanup(metadata.Close)
	s.metadata = metadata.URL
	token := filepath.Join(s.folder, "token")
	s.must(os.WriteFile(token, []byte(digitalocean.DefaultToken), 0o600))
	s.where = strings.NewReplacer("/var/lib/csi/sockets/pluginproxy/csi.sock", filepath.Join(s.folder, "csi.sock"),
		"/csi/csi.sock", filepath.Join(s.folder, "node.sock"), "/var/run/secrets/digitalocean/access-token", token,
		"https://api.digitalocean.com/", api.URL, ":9910", testkit.FreeAddress(s.T))
	pod := controller.Spec.Template.Spec
	rights := cmp.Or(pod.ServiceAccountName, pod.DeprecatedServiceAccount)
	kubeconfig := s.impersonate("system:serviceaccount:kube-system:" + rights)
	// The driver, the last container, starts first and is stopped last.
	for _, c := range slices.Backward(pod.Containers) {
		switch {
		case c.Name != upstream.PluginName:
			more := []string{"--kubeconfig=" + kubeconfig}
			if slices.Contains(c.Args, "--leader-election") {
				more = append(more, "--leader-election-namespace=kube-system")
			}
			s.start("csi/"+c.Name, slices.Concat(s.arguments(c), more)...)
		case slices.ContainsFunc(c.Args, func(arg string) bool { return strings.HasPrefix(arg, "--url=") }):
			s.startDriver(c, "--action-poll-interval=20ms")
		default:
			s.startDriver(c, "--action-poll-interval=20ms", "--url="+api.URL)
		}
	}
}

// startDriver starts the driver as a container says, on a droplet.
func (s *site) startDriver(c corev1.Container, more ...string) {
	s.Helper()
	s.start("digitalocean-csi-driver", slices.Concat(s.arguments(c), []string{"--metadata-url=" + s.metadata}, more)...)
}

// references are how the arguments of containers name variables.
var references = regexp.MustCompile(`\$\((\w+)\)`)

// arguments are those of a container, as kubelet expands them, with the places of this test.
func (s *site) arguments(c corev1.Container) []string {
	s.Helper()
	values := map[string]string{}
	for _, e := range c.Env {
		values[e.Name] = e.Value
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			values[e.Name] = digitalocean.DefaultToken
		}
	}
	var out []string
	for _, arg := range c.Args {
		out = append(out, s.where.Replace(os.Expand(references.ReplaceAllString(arg, "$${$1}"), func(name string) string { return values[name] })))
	}
	return out
}

// checkNode starts the node plugin of a DaemonSet, and asks it what kubelet and node-driver-registrar ask for.
func (s *site) checkNode(set *appsv1.DaemonSet) {
	s.Helper()
	plugin := slices.IndexFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return c.Name == upstream.PluginName
	})
	s.startDriver(set.Spec.Template.Spec.Containers[plugin])
	socket := filepath.Join(s.folder, "node.sock")
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	s.Cleanup(func() { _ = conn.Close() })
	var info *csipb.NodeGetInfoResponse
	testkit.Eventually(s.T, "the node plugin to serve", func() string {
		info, err = csipb.NewNodeClient(conn).NodeGetInfo(s.Context(), &csipb.NodeGetInfoRequest{})
		if err != nil {
			return err.Error()
		}
		return ""
	})
	if info.GetNodeId() != strconv.Itoa(s.droplet) || info.GetMaxVolumesPerNode() != assumed.VolumesPerDroplet ||
		info.GetAccessibleTopology().GetSegments()["region"] != "nyc1" {
		s.Errorf("the node plugin says %v", info)
	}
	name, err := csipb.NewIdentityClient(conn).GetPluginInfo(s.Context(), &csipb.GetPluginInfoRequest{})
	if err != nil || name.GetName() != csi.DriverName {
		s.Errorf("the node plugin says %v (%v)", name, err)
	}
}

// impersonate returns the path of a kubeconfig with a user's rights, when the API server has read the roles.
func (s *site) impersonate(user string) string {
	s.Helper()
	for _, right := range []authorizationv1.ResourceAttributes{
		{Group: "snapshot.storage.k8s.io", Resource: "volumesnapshotcontents", Subresource: "status", Verb: "patch"},
		{Resource: "persistentvolumeclaims", Subresource: "status", Verb: "patch"},
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
var forbidden = regexp.MustCompile(`(?m)^E.* is forbidden.*$`)

// start starts a program of bin, and stops it at the end of the test. Nothing else than is expected may be forbidden to it.
func (s *site) start(program string, args ...string) {
	s.Helper()
	log := filepath.Join(s.folder, filepath.Base(program)+".log")
	process := testkit.Start(s.T, log, nil, testkit.Binary(s.T, program), args...)
	s.Cleanup(func() {
		process.Stop()
		output := process.Output()
		unexpected := slices.DeleteFunc(forbidden.FindAllString(output, -1), func(line string) bool {
			return slices.ContainsFunc(s.refused, func(part string) bool { return strings.Contains(line, part) })
		})
		if s.Failed() || len(unexpected) > 0 {
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
