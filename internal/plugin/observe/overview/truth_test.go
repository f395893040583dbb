// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package overview_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/overview"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/ui"
)

// clusterOf is a cluster as status and the page read it, with an environment that names no other side.
func clusterOf(t *testing.T, server *controlplane.Cluster) *observe.Cluster {
	t.Helper()
	for _, name := range []string{
		"DO_ACCESS_TOKEN", "DO_ACCESS_TOKEN_FILE", "DO_OVERRIDE_URL", "ETCD_ENDPOINTS", "DATASTORE_TYPE",
	} {
		t.Setenv(name, "")
	}
	c, err := dynamic.NewForConfig(server.Config)
	if err != nil {
		t.Fatal(err)
	}
	return &observe.Cluster{
		Name: "lab", Config: server.Config, Typed: server.Client, Dynamic: c,
		Namespaces: []string{"mooring-system", metav1.NamespaceSystem},
	}
}

// seen is what a page shows of a cluster.
func seen(t *testing.T, c *observe.Cluster) ui.Page {
	t.Helper()
	w, err := overview.NewReader(c, clock.RealClock{}, true).Read(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return ui.View(w, ui.Filter{}, "")
}

// shows checks a row of a list: whether it needs attention, and what is in it.
func shows(t *testing.T, p ui.Page, key, name string, ill bool, texts ...string) {
	t.Helper()
	list := p.Lists[slices.IndexFunc(p.Lists, func(l ui.List) bool { return l.Key == key })]
	at := slices.IndexFunc(list.Rows, func(r ui.Row) bool { return strings.HasPrefix(r.Cells[0].Text, name) })
	if at < 0 {
		t.Errorf("%s has no row %q: %+v", key, name, list)
		return
	}
	row := fmt.Sprint(list.Rows[at].Cells)
	if list.Rows[at].Ill != ill {
		t.Errorf("%s: needs attention: %t, want %t: %s", name, list.Rows[at].Ill, ill, row)
	}
	for _, text := range texts {
		if !strings.Contains(row, text) {
			t.Errorf("%s: %q is not in %s", name, text, row)
		}
	}
}

// balancer makes a Service that has an address, with a condition and an Event of the cloud component where there are
// any.
func balancer(t *testing.T, c *observe.Cluster, name string, condition metav1.Condition, events ...corev1.Event) {
	t.Helper()
	services := c.Typed.CoreV1().Services("default")
	s, err := services.Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{"kubernetes.digitalocean.com/load-balancer-id": name},
		},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.7"}}
	if condition.Type != "" {
		condition.LastTransitionTime = metav1.Now()
		s.Status.Conditions = []metav1.Condition{condition}
	}
	if _, err := services.UpdateStatus(t.Context(), s, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, e := range events {
		e.Name, e.Namespace = fmt.Sprintf("%s-%d", name, i), "default"
		e.InvolvedObject = corev1.ObjectReference{Kind: "Service", Namespace: "default", Name: name}
		if _, err := c.Typed.CoreV1().Events("default").Create(t.Context(), &e, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// target makes a Node that load balancers can have as a target.
func target(t *testing.T, c *observe.Cluster) {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w1"}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://1"}}
	n, err := c.Typed.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}, {Type: corev1.NodeExternalIP, Address: "198.51.100.1"}}
	if _, err := c.Typed.CoreV1().Nodes().UpdateStatus(t.Context(), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func event(source, kind, reason, text string, order int) corev1.Event {
	at := metav1.NewTime(time.Now().Add(time.Duration(order) * time.Second))
	return corev1.Event{
		Source: corev1.EventSource{Component: source}, Type: kind, Reason: reason, Message: text,
		FirstTimestamp: at, LastTimestamp: at,
		EventTime: metav1.MicroTime{}, Count: 1,
	}
}

// A Service with an address is not good when the cloud component or DigitalOcean says otherwise.
func TestLoadBalancersAreNotGoodByTheirAddressAlone(t *testing.T) {
	c := clusterOf(t, controlplane.New(t))
	const cloud, framework = "digitalocean-cloud-controller-manager", "service-controller"
	target(t, c)
	balancer(t, c, "healthy", metav1.Condition{})
	balancer(t, c, "foreign", metav1.Condition{
		Type: "cloud.mooring.dev/LoadBalancerOwned", Status: metav1.ConditionFalse, Reason: "LoadBalancerForeign", Message: "it is another's",
	})
	balancer(t, c, "others-condition", metav1.Condition{
		Type: "example.com/Pretty", Status: metav1.ConditionFalse, Reason: "Ugly", Message: "not ours",
	})
	balancer(t, c, "refused", metav1.Condition{},
		event(framework, "Normal", "EnsuredLoadBalancer", "Ensured load balancer", 0),
		event(cloud, "Warning", "LoadBalancerConfigError", "annotation x is wrong", 7))
	balancer(t, c, "mended", metav1.Condition{},
		event(framework, "Warning", "SyncLoadBalancerFailed", "DigitalOcean responded with 500", 0),
		event(framework, "Normal", "EnsuredLoadBalancer", "Ensured load balancer", 2))
	balancer(t, c, "retried", metav1.Condition{},
		event(framework, "Warning", "SyncLoadBalancerFailed", "DigitalOcean responded with 500", 2),
		event(framework, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer", 4))
	balancer(t, c, "others-event", metav1.Condition{}, event("some-mesh", "Warning", "SyncLoadBalancerFailed", "not ours", 1))
	p := seen(t, c)
	shows(t, p, "balancers", "default/healthy", false)
	shows(t, p, "balancers", "default/foreign", true, "LoadBalancerForeign: it is another's")
	shows(t, p, "balancers", "default/others-condition", false)
	shows(t, p, "balancers", "default/refused", true, "LoadBalancerConfigError 0s ago: annotation x is wrong")
	shows(t, p, "balancers", "default/mended", false)
	shows(t, p, "balancers", "default/retried", true, "DigitalOcean responded with 500")
	shows(t, p, "balancers", "default/others-event", false)

	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/v2/account":
			_, _ = w.Write([]byte(`{"account":{"uuid":"a"}}`))
		case "/v2/load_balancers":
			_, _ = w.Write([]byte(`{"load_balancers":[{"id":"healthy","name":"h","status":"active","ip":"203.0.113.7","droplet_ids":[1]},
				{"id":"mended","name":"m","status":"errored","ip":"203.0.113.7"}],"meta":{"total":2}}`))
		case "/v2/load_balancers/others-condition":
			http.Error(w, `{"id":"not_found","message":"no"}`, http.StatusNotFound)
		default:
			http.Error(w, `{"id":"forbidden","message":"no"}`, http.StatusForbidden)
		}
	}))
	defer api.Close()
	t.Setenv("DO_ACCESS_TOKEN", "token")
	t.Setenv("DO_OVERRIDE_URL", api.URL)
	p = seen(t, c)
	shows(t, p, "balancers", "default/healthy", false)
	shows(t, p, "balancers", "default/mended", true, `has the status "errored"`)
	shows(t, p, "balancers", "default/others-condition", true, "DigitalOcean has no load balancer others-condition")
	shows(t, p, "balancers", "default/others-event", false) // what could not be read proves nothing

	closed := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, `{"id":"forbidden","message":"no"}`, http.StatusForbidden)
	}))
	defer closed.Close()
	t.Setenv("DO_OVERRIDE_URL", closed.URL)
	for _, name := range []string{"foreign", "refused", "retried"} {
		if err := c.Typed.CoreV1().Services("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	p = seen(t, c)
	shows(t, p, "balancers", "default/healthy", false)
	if got := tile(p, "balancers"); got.State != ui.Unread || !strings.HasPrefix(got.Text, "DigitalOcean: ") {
		t.Errorf("DigitalOcean refuses the token: %+v", got)
	}
}

// workload is a Deployment, StatefulSet or DaemonSet with so many of its pods ready.
func workload(t *testing.T, c *observe.Cluster, kind, namespace, name, image string, wanted, ready int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	spec := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: image, Args: []string{"--leader-elect"}}}},
	}
	selector, meta := &metav1.LabelSelector{MatchLabels: labels}, metav1.ObjectMeta{Namespace: namespace, Name: name}
	apps := c.Typed.AppsV1()
	var err error
	switch kind {
	case "Deployment":
		d := &appsv1.Deployment{ObjectMeta: meta, Spec: appsv1.DeploymentSpec{Replicas: &wanted, Selector: selector, Template: spec}}
		if d, err = apps.Deployments(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err == nil {
			d.Status.Replicas, d.Status.ReadyReplicas = wanted, ready
			_, err = apps.Deployments(namespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		}
	case "StatefulSet":
		s := &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &wanted, Selector: selector, Template: spec}}
		if s, err = apps.StatefulSets(namespace).Create(t.Context(), s, metav1.CreateOptions{}); err == nil {
			s.Status.Replicas, s.Status.ReadyReplicas = wanted, ready
			_, err = apps.StatefulSets(namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
		}
	default:
		d := &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector, Template: spec}}
		if d, err = apps.DaemonSets(namespace).Create(t.Context(), d, metav1.CreateOptions{}); err == nil {
			d.Status.DesiredNumberScheduled, d.Status.NumberReady = wanted, ready
			_, err = apps.DaemonSets(namespace).UpdateStatus(t.Context(), d, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// lease is one that was renewed so long ago.
func lease(t *testing.T, c *observe.Cluster, namespace, name, holder string, age time.Duration, annotations map[string]string) {
	t.Helper()
	seconds, at := int32(15), metav1.NewMicroTime(time.Now().Add(-age))
	l := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       coordinationv1.LeaseSpec{LeaseDurationSeconds: &seconds, RenewTime: &at, HolderIdentity: &holder},
	}
	if _, err := c.Typed.CoordinationV1().Leases(namespace).Create(t.Context(), l, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// namespaces are made as somebody's and Mooring's.
func namespaces(t *testing.T, c *observe.Cluster, names ...string) {
	t.Helper()
	for _, name := range names {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.Typed.CoreV1().Namespaces().Create(t.Context(), n, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Components that do not work are shown as such, those that nobody runs among them, and nothing of other namespaces
// is believed.
func TestComponentsThatDoNotWork(t *testing.T) {
	c := clusterOf(t, controlplane.New(t))
	namespaces(t, c, "mooring-system", "lab")
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "dobs.csi.digitalocean.com"}}
	if _, err := c.Typed.StorageV1().CSIDrivers().Create(t.Context(), driver, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	shows(t, seen(t, c), "components", "digitalocean-csi-driver", true, "not found", "there is CSIDriver dobs.csi.digitalocean.com")

	const image = "example.com/mooring/"
	workload(t, c, "StatefulSet", "kube-system", "csi-do-controller", image+"digitalocean-csi-driver:v1", 2, 0)
	workload(t, c, "DaemonSet", "kube-system", "csi-do-node", image+"digitalocean-csi-driver:v1", 4, 0)
	workload(t, c, "Deployment", "mooring-system", "calico-node-sync", image+"calico-node-sync:v1", 2, 2)
	lease(t, c, "mooring-system", "calico-node-sync.nodes.mooring.dev", "a", 30*time.Second, nil)
	workload(t, c, "Deployment", "lab", "etcd-storage-operator", image+"etcd-storage-operator:v1", 1, 1)
	lease(t, c, "lab", "etcd-storage-operator.etcd.mooring.dev", "a", 0, nil)
	token := `{"type":"TokenHealthy","status":"False","reason":"Refused","message":"another one is needed","lastTransitionTime":"2026-01-02T03:04:05Z"}`
	lease(t, c, "kube-system", "cloud-controller-manager", "a", 0, nil)
	lease(t, c, "kube-system", "digitalocean-cloud-controller-manager-account", "", 0, map[string]string{
		"cloud.mooring.dev/account": "a", "cloud.mooring.dev/token-healthy": token,
	})
	p := seen(t, c)
	shows(t, p, "components", "digitalocean-csi-driver", true, "no pod of 2 pods is ready")
	shows(t, p, "components", "calico-node-sync", true, "its Lease is no longer renewed")
	shows(t, p, "components", "digitalocean-cloud-controller-manager", true, "Refused: another one is needed")
	whole, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range p.Lists {
		for _, r := range l.Rows {
			if text := fmt.Sprint(r.Cells); l.Key != "doctor" && strings.Contains(text, "lab/") {
				t.Errorf("what runs in another namespace is shown as ours: %s: %s", l.Key, text)
			}
			if l.Key == "doctor" && strings.Contains(r.Cells[3].Text+r.Cells[4].Text, "lab/") {
				t.Errorf("an advice names what runs in another namespace: %+v", r.Cells)
			}
		}
	}
	for _, text := range []string{"run driver dobs", "etcd-storage-operator.etcd.mooring.dev"} {
		if strings.Contains(string(whole), text) {
			t.Errorf("%q is in the page", text)
		}
	}
	const untrusted = "not trusted and not judged, outside Mooring's namespaces: Deployment lab/etcd-storage-operator"
	if !strings.Contains(string(whole), untrusted) {
		t.Errorf("%q is not in %s", untrusted, whole)
	}
}
