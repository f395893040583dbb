// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package manifests_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// cloudRun is the real program, as a process with the rights of a service account, between a real API server and a simulated DigitalOcean, each
// of which it reaches through something that notes what it asks for.
type cloudRun struct {
	*testkit.Process
	t       *testing.T
	cluster *controlplane.Cluster
	api     *recorder
	cloud   *sim.Simulator
	account *sim.Account
	address string // where it serves /healthz and /metrics
	// predecessors reports that it has the upstream project's rights and flags alone, unnamed that no variable names cluster and firewall.
	predecessors, unnamed bool
}

// The firewall of these tests, and the tag of the droplets that it covers.
const publicFirewall, workerTag = "k8s-public", "k8s:worker"

// cloudAccount is the service account of the program.
const cloudAccount = "cloud-controller-manager"

// ofUsers are variables that users of the program set.
func ofUsers() []string {
	return []string{"DO_CLUSTER_ID=c1", "PUBLIC_ACCESS_FIREWALL_NAME=" + publicFirewall, "PUBLIC_ACCESS_FIREWALL_TAGS=" + workerTag}
}

// startCloud starts the program as kube-system/cloud-controller-manager with the variables and arguments of a Deployment, in addition to
// where servers are and to what makes waiting short. The service account and its rights must be there.
func startCloud(t *testing.T, c *controlplane.Cluster, cloud *sim.Simulator, env, args []string) *cloudRun {
	t.Helper()
	r := &cloudRun{t: t, cluster: c, api: newRecorder(t, c), cloud: cloud, account: cloud.Account("a"), address: testkit.FreeAddress(t)}
	server := httptest.NewServer(cloud.Handler())
	t.Cleanup(server.Close)
	kubeconfig := r.kubeconfig(cloudAccount)
	_, port, err := net.SplitHostPort(r.address)
	must.Do(t, err)
	env = append(slices.Clone(env), asCloud+"=1", "DO_OVERRIDE_URL="+server.URL, "HOME="+t.TempDir())
	args = append(slices.Clone(args), "--kubeconfig="+kubeconfig, "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port="+port, "--controller-start-interval=0s", "--node-monitor-period=500ms",
		"--node-status-update-frequency=1s")
	r.Process = testkit.Start(t, filepath.Join(t.TempDir(), "log"), env, os.Args[0], args...)
	t.Cleanup(func() {
		// The upstream project's role may read neither Namespaces nor EndpointSlices: then nothing that is another's is taken over, and all Nodes
		// are targets. The Service is told why.
		mayNot := func(request string) bool {
			return r.predecessors && slices.Contains([]string{"GET /api/v1/namespaces/default", "GET /apis/discovery.k8s.io/v1/endpointslices"}, request)
		}
		if refused := slices.DeleteFunc(r.api.refusals(), mayNot); len(refused) > 0 {
			t.Errorf("the API server has forbidden %q", refused)
		}
		r.Stop()
		if strings.Contains(r.Output(), simulated) {
			t.Error("the token is in the log")
		}
		if t.Failed() {
			t.Log(r.Output())
		}
	})
	return r
}

// kubeconfig makes one for a service account of kube-system, through the recorder.
func (r *cloudRun) kubeconfig(account string) string {
	r.t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: r.api.url, CertificateAuthorityData: r.api.ca}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: r.token(account)}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	path := filepath.Join(r.t.TempDir(), "kubeconfig")
	must.Do(r.t, clientcmd.WriteToFile(*config, path))
	return path
}

func (r *cloudRun) token(account string) string {
	r.t.Helper()
	answer, err := r.cluster.Client.CoreV1().ServiceAccounts(metav1.NamespaceSystem).CreateToken(r.t.Context(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must.Do(r.t, err)
	return answer.Status.Token
}

// get asks the program's own port, with the token of a service account or with none.
func (r *cloudRun) get(path, token string) (int, string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it signs its certificate itself, as a probe's client knows
	}}
	defer client.CloseIdleConnections()
	q := must.Get(http.NewRequestWithContext(r.t.Context(), http.MethodGet, "https://"+r.address+path, nil)).Or(r.t)
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

// join makes droplets and their Nodes, as kubelets with --cloud-provider=external register them, and waits until the program has initialized them.
func (r *cloudRun) join(names ...string) []int {
	r.t.Helper()
	var ids []int
	for _, name := range names { // all droplets first, so that one list has them
		d := must.Get(r.account.CreateDroplet(sim.DropletSpec{Name: name, Tags: []string{workerTag}})).Or(r.t)
		ids = append(ids, d.ID)
	}
	for _, name := range names {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{
			Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule,
		}}}}
		must.Get(r.cluster.Client.CoreV1().Nodes().Create(r.t.Context(), node, metav1.CreateOptions{})).Or(r.t)
		r.ready(name, corev1.ConditionTrue)
	}
	for i, name := range names {
		testkit.Eventually(r.t, "Node "+name+" to be initialized", func() string {
			n, err := r.cluster.Client.CoreV1().Nodes().Get(r.t.Context(), name, metav1.GetOptions{})
			switch {
			case err != nil:
				return err.Error()
			case n.Spec.ProviderID != fmt.Sprintf("digitalocean://%d", ids[i]), len(n.Status.Addresses) == 0, n.Labels[corev1.LabelTopologyRegion] != "nyc1":
				return fmt.Sprintf("%q, %v, %v", n.Spec.ProviderID, n.Status.Addresses, n.Labels)
			case tainted(n, cloudproviderapi.TaintExternalCloudProvider):
				return "it has the taint"
			}
			return ""
		})
	}
	return ids
}

func tainted(n *corev1.Node, key string) bool {
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

// ready is what the kubelet, or for one that is silent kube-controller-manager, says of a Node.
func (r *cloudRun) ready(name string, status corev1.ConditionStatus) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"status":{"conditions":[{"type":"Ready","status":%q}]}}`, status)
	must.Get(r.cluster.Client.CoreV1().Nodes().PatchStatus(r.t.Context(), name, []byte(patch))).Or(r.t)
}

func (r *cloudRun) service(ctx context.Context) (*corev1.Service, error) {
	return r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, "web", metav1.GetOptions{})
}

// annotate changes an annotation of the Service.
func (r *cloudRun) annotate(name, value string) {
	r.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, name, value)
	_, err := r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Patch(r.t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Do(r.t, err)
}

// balancer waits until the Service has an address and DigitalOcean a load balancer that serves the droplets, and reports whether it is right.
func (r *cloudRun) balancer(what string, droplets []int, right func(sim.LoadBalancer) bool) sim.LoadBalancer {
	r.t.Helper()
	var found sim.LoadBalancer
	testkit.Eventually(r.t, what, func() string {
		all := r.account.LoadBalancers()
		service, err := r.service(r.t.Context())
		switch {
		case err != nil:
			return err.Error()
		case len(all) != 1:
			return fmt.Sprintf("%d load balancers", len(all))
		case len(service.Status.LoadBalancer.Ingress) == 0 || service.Status.LoadBalancer.Ingress[0].IP != all[0].IP:
			return fmt.Sprintf("status %+v, load balancer %s", service.Status.LoadBalancer, all[0].IP)
		case service.Annotations[annotation.LoadBalancerID] != all[0].ID:
			return "the annotation is " + service.Annotations[annotation.LoadBalancerID]
		case !sameSet(all[0].DropletIDs, droplets):
			return fmt.Sprintf("targets %v, want %v", all[0].DropletIDs, droplets)
		case !right(all[0]):
			return fmt.Sprintf("%+v", all[0])
		}
		found = all[0]
		return ""
	})
	return found
}

func sameSet(a, b []int) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// life is all that the program does for a cluster, once: machines come, are switched off and go; a load balancer is made, follows machines and
// annotations, is deleted by somebody else, is made again, and goes with its Service; a wrong annotation is told; a firewall is made and follows; a
// certificate is asked for.
func (r *cloudRun) life() {
	r.t.Helper()
	ctx, nodes := r.t.Context(), r.cluster.Client.CoreV1().Nodes()
	both := r.join("cloud-1", "cloud-2")
	_, err := r.account.CreateCertificate(sim.CertificateSpec{Name: "web", DNSNames: []string{"web.example"}})
	must.Do(r.t, err)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{
			annotation.Type: annotation.TypeRegional, annotation.TLSPorts: "443", annotation.CertificateName: "web",
		}},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	_, err = r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{})
	must.Do(r.t, err)
	first := r.balancer("a load balancer", both, func(sim.LoadBalancer) bool { return true })

	third := r.join("cloud-3")
	r.balancer("a new machine to be a target", slices.Concat(both, third), func(sim.LoadBalancer) bool { return true })
	must.Do(r.t, r.account.DeleteDroplet("cloud-3"))
	r.ready("cloud-3", corev1.ConditionUnknown)
	testkit.Eventually(r.t, "the Node of a droplet that is gone to go", func() string {
		if _, err := nodes.Get(ctx, "cloud-3", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprintf("it is there (%v)", err)
		}
		return ""
	})
	r.balancer("the targets that are left", both, func(sim.LoadBalancer) bool { return true })
	r.exclude("cloud-2", true)
	r.balancer("an excluded machine to be no target", both[:1], func(sim.LoadBalancer) bool { return true })
	r.exclude("cloud-2", false)
	r.balancer("it to be one again", both, func(sim.LoadBalancer) bool { return true })

	r.annotate(annotation.EnableProxyProtocol, "true")
	r.balancer("the PROXY protocol", both, func(lb sim.LoadBalancer) bool { return lb.EnableProxyProtocol })
	must.Do(r.t, r.account.DeleteLoadBalancer(first.ID))
	r.annotate(annotation.EnableBackendKeepalive, "true")
	r.balancer("another load balancer", both, func(lb sim.LoadBalancer) bool { return lb.ID != first.ID && lb.EnableBackendKeepalive })

	r.localTargets(both)
	r.switchOff("cloud-2")
	r.wrongAnnotation()
	if !r.unnamed {
		r.opens()
	}
	if !r.predecessors { // whose role cannot read of a namespace which domains it allows
		r.certificate()
	}
	r.foreign()
	must.Do(r.t, r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, "web", metav1.DeleteOptions{}))
	testkit.Eventually(r.t, "the load balancer to go with its Service", func() string {
		if _, err := r.service(ctx); !apierrors.IsNotFound(err) || len(r.account.LoadBalancers()) > 0 {
			return fmt.Sprintf("Service: %v, %d load balancers", err, len(r.account.LoadBalancers()))
		}
		return ""
	})
}

// localTargets asks for targets where pods of the Service are alone, and strong ciphers; and then for all.
func (r *cloudRun) localTargets(all []int) {
	r.t.Helper()
	ctx, client, node := r.t.Context(), r.cluster.Client, "cloud-1"
	_, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "web-1", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.1.0.1"}, NodeName: &node}},
	}, metav1.CreateOptions{})
	must.Do(r.t, err)
	change := func(policy corev1.ServiceExternalTrafficPolicy) {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:"true",%q:"STRONG"}},"spec":{"externalTrafficPolicy":%q}}`,
			annotation.LocalTargetsOnly, annotation.TLSCipherPolicy, policy)
		_, err = client.CoreV1().Services(metav1.NamespaceDefault).Patch(ctx, "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must.Do(r.t, err)
	}
	change(corev1.ServiceExternalTrafficPolicyLocal)
	targets := all[:1]
	if r.predecessors {
		targets = all
	}
	r.balancer("targets where pods are", targets, func(lb sim.LoadBalancer) bool { return lb.TLSCipherPolicy == annotation.CipherStrong })
	change(corev1.ServiceExternalTrafficPolicyCluster)
	r.balancer("all targets", all, func(sim.LoadBalancer) bool { return true })
}

// certificate asks for a certificate by its domains, and waits until DigitalOcean was asked for it.
func (r *cloudRun) certificate() {
	r.t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:"own.example"}}}`, annotation.CertificateName, annotation.CertificateDomains)
	_, err := r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Patch(r.t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Do(r.t, err)
	testkit.Eventually(r.t, "a certificate of the program's", func() string {
		all := r.account.Certificates()
		if !slices.ContainsFunc(all, func(c sim.Certificate) bool { return strings.HasPrefix(c.Name, "mooring-") }) {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
}

// foreign names a load balancer that is another cluster's, which is refused and left alone.
func (r *cloudRun) foreign() {
	r.t.Helper()
	ctx, services := r.t.Context(), r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault)
	theirs, err := r.account.CreateLoadBalancer(sim.LoadBalancer{Name: "theirs", Tags: []string{"k8s:another"}})
	must.Do(r.t, err)
	must.Get(services.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "foreign", Annotations: map[string]string{annotation.LoadBalancerID: theirs.ID}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 444}}},
	}, metav1.CreateOptions{})).Or(r.t)
	testkit.Eventually(r.t, "the Service to be told that it is another's", func() string {
		s := must.Get(services.Get(ctx, "foreign", metav1.GetOptions{})).Or(r.t)
		if c := meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionOwned); c == nil || c.Status != metav1.ConditionFalse {
			return fmt.Sprintf("%+v", s.Status)
		}
		return ""
	})
	must.Do(r.t, services.Delete(ctx, "foreign", metav1.DeleteOptions{}))
	testkit.Eventually(r.t, "the Service to go", func() string {
		if _, err := services.Get(ctx, "foreign", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	must.Do(r.t, r.account.DeleteLoadBalancer(theirs.ID))
}

// exclude sets or removes the label that keeps a Node out of load balancers.
func (r *cloudRun) exclude(name string, yes bool) {
	r.t.Helper()
	value := "null"
	if yes {
		value = `""`
	}
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, corev1.LabelNodeExcludeBalancers, value)
	_, err := r.cluster.Client.CoreV1().Nodes().Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Do(r.t, err)
}

// switchOff turns a droplet off, and waits for the Node's taint.
func (r *cloudRun) switchOff(name string) {
	r.t.Helper()
	must.Do(r.t, r.account.SetDropletStatus(name, "off"))
	r.ready(name, corev1.ConditionUnknown)
	testkit.Eventually(r.t, "the taint of a machine that is off", func() string {
		n, err := r.cluster.Client.CoreV1().Nodes().Get(r.t.Context(), name, metav1.GetOptions{})
		if err != nil || !tainted(n, cloudproviderapi.TaintNodeShutdown) {
			return fmt.Sprintf("%v (%v)", n.Spec.Taints, err)
		}
		return ""
	})
}

// wrongAnnotation waits for the event about a value that is wrong, and puts it right.
func (r *cloudRun) wrongAnnotation() {
	r.t.Helper()
	r.annotate(annotation.SizeUnit, "many")
	testkit.Eventually(r.t, "an event about the wrong value", func() string {
		list, err := r.cluster.Client.CoreV1().Events(metav1.NamespaceDefault).List(r.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web"})
		if err != nil {
			return err.Error()
		}
		for _, e := range list.Items {
			if e.Reason == "LoadBalancerConfigError" && strings.Contains(e.Message, annotation.SizeUnit) && strings.Contains(e.Message, `"many"`) {
				return ""
			}
		}
		return fmt.Sprintf("%d others", len(list.Items))
	})
	r.annotate(annotation.SizeUnit, "1")
}

// opens waits until the firewall opens the port of a new Service, and no more.
func (r *cloudRun) opens() {
	r.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "open"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	made, err := r.cluster.Client.CoreV1().Services(metav1.NamespaceDefault).Create(r.t.Context(), service, metav1.CreateOptions{})
	must.Do(r.t, err)
	testkit.Eventually(r.t, "the firewall to open a port", func() string {
		all := r.account.Firewalls()
		if len(all) != 1 || all[0].Name != publicFirewall || len(all[0].InboundRules) != 1 || all[0].InboundRules[0].Ports != fmt.Sprint(made.Spec.Ports[0].NodePort) {
			return fmt.Sprintf("%+v", all)
		}
		return ""
	})
}

// healthy waits for /healthz, which responds anybody, as it does the kubelet.
func (r *cloudRun) healthy() {
	r.t.Helper()
	began := time.Now()
	testkit.Eventually(r.t, "/healthz", func() string {
		if code, body := r.get("/healthz", ""); code != http.StatusOK {
			return fmt.Sprintf("%d %s", code, body)
		}
		return ""
	})
	r.t.Logf("healthy after %s", time.Since(began))
}
