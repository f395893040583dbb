// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/sim/calicostatus"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/test/objects"
)

// reflectorsFile is what is installed.
const reflectorsFile = "dist/calico-route-reflector-operator-kubernetes.yaml"

// calicoCRDs and calicoNative are the groups in which Calico's kinds may be served.
func calicoCRDs() schema.GroupVersion {
	return schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}
}

func calicoNative() schema.GroupVersion {
	return schema.GroupVersion{Group: apiv3.Group, Version: apiv3.VersionCurrent}
}

// reflectorsRun is the real program, as a process with the rights of the shipped service account, between a real API server, which it reaches through
// something that notes what it asks for, and nodes whose calico-node is simulated.
type reflectorsRun struct {
	*testkit.Process
	t       *testing.T
	cluster *controlplane.Cluster
	admin   client.Client
	api     *recorder
	group   schema.GroupVersion
	address string // where it serves /metrics
}

// installReflectors applies what is shipped but the Deployment, and returns a client of the administrator's.
func installReflectors(t *testing.T, c *controlplane.Cluster) client.Client {
	t.Helper()
	server := objects.ConnectTo(t, c)
	for _, u := range files(t)[reflectorsFile] {
		if u.GetKind() != "Deployment" {
			must.Do(t, server.Apply(t.Context(), u))
		}
	}
	scheme := runtime.NewScheme()
	must.Do(t, corev1.AddToScheme(scheme))
	must.Do(t, v1alpha1.AddToScheme(scheme))
	admin := must.Get(client.New(c.Config, client.Options{Scheme: scheme})).Or(t)
	return admin
}

// makeReflectorNodes makes Nodes as kubelets and calico-node do, in three zones, Ready for an hour.
func makeReflectorNodes(t *testing.T, admin client.Client, count int) {
	t.Helper()
	for i := range count {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("node-%d", i),
			Labels:      map[string]string{corev1.LabelTopologyZone: fmt.Sprintf("zone-%d", i%3), corev1.LabelHostname: fmt.Sprintf("node-%d", i)},
			Annotations: map[string]string{routereflector.IPv4Annotation: fmt.Sprintf("192.0.2.%d/24", i+1)},
		}}
		must.Do(t, admin.Create(t.Context(), node))
		node.Status.Conditions = []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(time.Now().Add(-time.Hour)),
		}}
		must.Do(t, admin.Status().Update(t.Context(), node))
	}
}

// openDatastore reports that Calico's datastore may be written to, as Calico's installation does.
func openDatastore(t *testing.T, admin client.Client, group schema.GroupVersion) {
	t.Helper()
	info := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"datastoreReady": true}}}
	info.SetGroupVersionKind(group.WithKind(apiv3.KindClusterInformation))
	info.SetName("default")
	testkit.Eventually(t, "ClusterInformation to be served in "+group.String(), func() string {
		if err := admin.Create(t.Context(), info); err != nil && !apierrors.IsAlreadyExists(err) {
			return err.Error()
		}
		return ""
	})
}

// startReflectors runs the program with the arguments of the Deployment and settings that make waiting short, and calico-node on every node.
func startReflectors(t *testing.T, c *controlplane.Cluster, admin client.Client, group schema.GroupVersion, env ...string) *reflectorsRun {
	t.Helper()
	r := &reflectorsRun{t: t, cluster: c, admin: admin, api: newRecorder(t, c), group: group, address: testkit.FreeAddress(t)}
	ctx, cancel := context.WithCancel(t.Context())
	sim, err := calicostatus.Start(ctx, calicostatus.Options{Config: c.Config, Group: group, Up: 200 * time.Millisecond, Answer: 50 * time.Millisecond})
	must.Do(t, err)
	t.Cleanup(func() { cancel(); sim.Wait() })
	deployment := objects.OfKind[appsv1.Deployment](t, files(t)[reflectorsFile], "Deployment")[0]
	args := append(slices.Clone(deployment.Spec.Template.Spec.Containers[0].Args),
		"--kubeconfig="+r.kubeconfig(), "--leader-election-namespace="+namespace, "--metrics-bind-address="+r.address, "--health-probe-bind-address="+testkit.FreeAddress(t),
		"--settle-period=1s", "--coalesce-period=50ms")
	// The binary itself: linked with the other components, this one has others' metrics of leader election.
	r.Process = testkit.Start(t, filepath.Join(t.TempDir(), "log"), append([]string{"HOME=" + t.TempDir()}, env...), testkit.Binary(t, reflectorsName), args...)
	t.Cleanup(func() {
		r.Stop()
		if t.Failed() {
			t.Log(r.Output())
		}
	})
	return r
}

// kubeconfig makes one for the shipped service account, through the recorder.
func (r *reflectorsRun) kubeconfig() string {
	r.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: r.api.url, CertificateAuthorityData: r.api.ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: r.token(reflectorsName)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	must.Do(r.t, clientcmd.WriteToFile(*config, path))
	return path
}

func (r *reflectorsRun) token(account string) string {
	r.t.Helper()
	answer, err := r.cluster.Client.CoreV1().ServiceAccounts(namespace).CreateToken(r.t.Context(), account, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.Do(r.t, err)
	return answer.Status.Token
}

// metrics asks for /metrics with the token of a service account, or with none.
func (r *reflectorsRun) metrics(token string) (int, string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it signs its certificate itself
	}}
	defer client.CloseIdleConnections()
	q := must.Get(http.NewRequestWithContext(r.t.Context(), http.MethodGet, "https://"+r.address+"/metrics", nil)).Or(r.t)
	if token != "" {
		q.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(q)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = response.Body.Close() }()
	body := must.Get(io.ReadAll(response.Body)).Or(r.t)
	return response.StatusCode, string(body)
}

// topology reads the topology main.
func topologyMain(t *testing.T, admin client.Client) (*v1alpha1.RouteReflectorTopology, error) {
	t.Helper()
	topology := &v1alpha1.RouteReflectorTopology{}
	err := admin.Get(t.Context(), client.ObjectKey{Name: "main"}, topology)
	return topology, err
}

// awaitReady waits until the topology main is Ready with just the wanted reflectors, and returns them.
func awaitReady(t *testing.T, admin client.Client, right func(reflectors []string) bool) []string {
	t.Helper()
	var names []string
	testkit.Eventually(t, "the topology to be Ready", func() string {
		topology, err := topologyMain(t, admin)
		if err != nil {
			return err.Error()
		}
		names = reflectorsOf(t, admin)
		if s := topology.Status; s.Phase == v1alpha1.PhaseReady && s.ObservedGeneration == topology.Generation && s.Mesh == v1alpha1.MeshOff && right(names) {
			return ""
		}
		text, _ := yaml.Marshal(topology.Status)
		return fmt.Sprintf("reflectors %v\n%s", names, text)
	})
	return names
}

// reflectorsOf are the nodes with the label.
func reflectorsOf(t *testing.T, admin client.Client) []string {
	t.Helper()
	var nodes corev1.NodeList
	must.Do(t, admin.List(t.Context(), &nodes, client.HasLabels{v1alpha1.ReflectorLabel}))
	var names []string
	for _, n := range nodes.Items {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return names
}

func (r *reflectorsRun) patch(patch string) {
	r.t.Helper()
	topology := &v1alpha1.RouteReflectorTopology{ObjectMeta: metav1.ObjectMeta{Name: "main"}}
	must.Do(r.t, r.admin.Patch(r.t.Context(), topology, client.RawPatch(types.MergePatchType, []byte(patch))))
}
