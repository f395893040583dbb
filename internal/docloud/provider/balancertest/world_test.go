// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/component-base/featuregate"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/loop"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// TestMain lets many tests run at a time: they wait far more than they compute. -parallel on the command line wins.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// own is the label by which a test's controllers see its own Nodes and Services only: all tests share one API server.
const own = "balancertest"

const (
	createRoute = "POST /v2/load_balancers"
	updateRoute = "PUT /v2/load_balancers"
)

// metricsOfControllers exist once per process.
var metricsOfControllers = sync.OnceValue(func() *controllersmetrics.ControllerManagerMetrics {
	return controllersmetrics.NewControllerManagerMetrics("balancertest")
})

// world is one cluster and one account.
type world struct {
	t       *testing.T
	sim     *digitalocean.Simulator
	account *digitalocean.Account
	client  kubernetes.Interface
	name    string // namespace, label and cluster ID
	cluster loadbalancer.Cluster
	timing  balancers.Timing
	wire    *wire
	token   token
	// view is locked to keep the controllers' informer from seeing changes of Services, as one does that lags.
	view sync.Mutex

	takeOver bool                 // --allow-load-balancer-take-over
	registry *prometheus.Registry // of the newest controller
	stop     func()               // of the newest controller
}

// token may be changed while a controller runs.
type token struct {
	mu    sync.Mutex
	value string
}

func (t *token) Token() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.value, nil
}

func (t *token) set(value string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.value = value
}

// wire is where a program may be cut off from the API, before or after a request is served.
type wire struct {
	base http.RoundTripper

	mu  sync.Mutex
	cut func(r *http.Request, served bool) error
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	cut := w.cut
	w.mu.Unlock()
	if cut == nil {
		return w.base.RoundTrip(r)
	}
	if err := cut(r, false); err != nil {
		return nil, err
	}
	response, err := w.base.RoundTrip(r)
	if cutOff := cut(r, true); cutOff != nil {
		return nil, cutOff
	}
	return response, err
}

func (w *wire) set(cut func(r *http.Request, served bool) error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = cut
}

// newWorld makes an account and a cluster of two machines. Times are short, but longer than an API server needs.
func newWorld(t *testing.T, change ...func(*digitalocean.Options)) *world {
	t.Helper()
	t.Parallel()
	cluster := controlplane.Shared(t)
	o := digitalocean.Options{Seed: 1, RateLimits: ratelimit.Limits{Hour: 1e6, Minute: 1e6}}
	for _, c := range change {
		c(&o)
	}
	config := rest.CopyConfig(cluster.Config)
	config.QPS = -1
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	name := fmt.Sprintf("w%08x", hash.Sum32())
	w := &world{
		t: t, sim: digitalocean.New(o), client: kubernetes.NewForConfigOrDie(config), name: name,
		cluster: loadbalancer.Cluster{ID: name, Region: "nyc1", DefaultType: annotation.TypeRegional},
		timing: balancers.Timing{
			Quiet: 200 * time.Millisecond, Most: 2 * time.Second, Resync: 500 * time.Millisecond, Pending: 300 * time.Millisecond,
			Poll: 300 * time.Millisecond, ListAge: 200 * time.Millisecond, CertificateAge: 200 * time.Millisecond, CertificateDoubt: 200 * time.Millisecond, Settle: 300 * time.Millisecond, Unanswered: 8 * time.Second,
			FirstRetry: 200 * time.Millisecond, LastRetry: 2 * time.Second,
		},
		token: token{value: digitalocean.DefaultToken},
	}
	w.account = w.sim.Account("")
	w.wire = &wire{base: w.sim.Transport()}
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	w.node("a")
	w.node("b")
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// run starts controllers and returns what stops them, which waits until they have.
func (w *world) run() {
	w.t.Helper()
	w.registry = prometheus.NewRegistry()
	api, err := doapi.New(doapi.Options{
		URL: "http://api.example/", Token: &w.token, UserAgent: "test", Transport: w.wire, Clock: clock.RealClock{}, Metrics: doapi.NewMetrics(w.registry),
	})
	w.must(err)
	config := machines.DefaultConfig()
	config.RecordName = w.name
	config.StatusAge, config.DoubtAge, config.PendingAge, config.PageAge = 300*time.Millisecond, 300*time.Millisecond, 300*time.Millisecond, 0
	instances := machines.New(api, machines.NewSnapshot(api, clock.RealClock{}), config, clock.RealClock{}, w.registry)
	gate := &loop.Gate{}
	keeper := balancers.New(balancers.Options{
		API: api, Fleet: instances, Gate: gate, TakeOverAny: w.takeOver, Cluster: w.cluster, Metrics: balancers.NewMetrics(w.registry), Clock: clock.RealClock{},
		Log: logr.Discard(), Timing: w.timing,
	})
	cloud := provider.New(gate, instances, keeper)
	ctx, cancel := context.WithCancel(w.t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = own + "=" + w.name
	}), informers.WithTransform(func(o any) (any, error) {
		if _, ok := o.(*corev1.Service); ok {
			w.view.Lock()
			defer w.view.Unlock()
		}
		return o, nil
	}))
	cloud.Initialize(builder{w.client}, ctx.Done())
	cloud.SetInformers(factory)
	controller, err := servicecontroller.New(cloud, w.client, factory.Core().V1().Services(), provider.QuietNodes(factory.Core().V1().Nodes()), "kubernetes", featuregate.NewFeatureGate())
	w.must(err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		controller.Run(ctx, 3, metricsOfControllers())
	}()
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	w.stop = func() {
		cancel()
		<-done
		factory.Shutdown()
	}
	w.t.Cleanup(cancel)
}

// builder gives everybody the administrator's client.
type builder struct{ client kubernetes.Interface }

func (b builder) Config(string) (*rest.Config, error)         { panic("not used") }
func (b builder) ConfigOrDie(string) *rest.Config             { panic("not used") }
func (b builder) Client(string) (kubernetes.Interface, error) { return b.client, nil }
func (b builder) ClientOrDie(string) kubernetes.Interface     { return b.client }

var _ cloudprovider.ControllerClientBuilder = builder{}

// node makes a droplet and its Node, with addresses.
func (w *world) node(name string) int {
	w.t.Helper()
	id := w.bareNode(name)
	w.address(name)
	return id
}

// bareNode makes a droplet and its Node, which has no addresses yet.
func (w *world) bareNode(name string) int {
	w.t.Helper()
	d, err := w.account.CreateDroplet(digitalocean.DropletSpec{Name: w.nodeName(name)})
	w.must(err)
	_, err = w.client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.nodeName(name), Labels: map[string]string{own: w.name}},
		Spec:       corev1.NodeSpec{ProviderID: providerid.Format(d.ID)},
	}, metav1.CreateOptions{})
	w.must(err)
	return d.ID
}

func (w *world) nodeName(name string) string { return w.name + "-" + name }

// address gives a Node the addresses of its droplet.
func (w *world) address(name string) {
	w.t.Helper()
	d, err := w.account.Droplet(w.nodeName(name))
	w.must(err)
	addresses := []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: d.Name}}
	for _, a := range d.Networks.V4 {
		kind := corev1.NodeInternalIP
		if a.Type == "public" {
			kind = corev1.NodeExternalIP
		}
		addresses = append(addresses, corev1.NodeAddress{Type: kind, Address: a.IPAddress})
	}
	body, err := json.Marshal(map[string]any{"status": map[string]any{"addresses": addresses}})
	w.must(err)
	_, err = w.client.CoreV1().Nodes().Patch(w.t.Context(), w.nodeName(name), types.MergePatchType, body, metav1.PatchOptions{}, "status")
	w.must(err)
}

func (w *world) removeNode(name string) {
	w.t.Helper()
	w.must(w.client.CoreV1().Nodes().Delete(w.t.Context(), w.nodeName(name), metav1.DeleteOptions{}))
}

// create makes a Service of type LoadBalancer with port 80; pairs are annotations, whose names get the prefix unless they have a slash.
func (w *world) create(name string, pairs ...string) *corev1.Service {
	w.t.Helper()
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.name, Labels: map[string]string{own: w.name}, Annotations: map[string]string{}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}
	maps.Copy(s.Annotations, annotations(pairs))
	made, err := w.client.CoreV1().Services(w.name).Create(w.t.Context(), s, metav1.CreateOptions{})
	w.must(err)
	return made
}

func annotations(pairs []string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i]
		if !strings.Contains(name, "/") {
			name = annotation.Prefix + name
		}
		out[name] = pairs[i+1]
	}
	return out
}

// annotate sets annotations of a Service.
func (w *world) annotate(name string, pairs ...string) {
	w.t.Helper()
	w.patch(name, map[string]any{"metadata": map[string]any{"annotations": annotations(pairs)}})
}

func (w *world) patch(name string, body map[string]any) {
	w.t.Helper()
	encoded, err := json.Marshal(body)
	w.must(err)
	_, err = w.client.CoreV1().Services(w.name).Patch(w.t.Context(), name, types.MergePatchType, encoded, metav1.PatchOptions{})
	w.must(err)
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	s, err := w.client.CoreV1().Services(w.name).Get(w.t.Context(), name, metav1.GetOptions{})
	w.must(err)
	return s
}

// published is the first address in a Service's status, empty for none.
func published(s *corev1.Service) string {
	for _, i := range s.Status.LoadBalancer.Ingress {
		return i.IP + i.Hostname
	}
	return ""
}

// balancer waits until a Service's status shows the address of the load balancer that its annotation names, and returns that.
func (w *world) balancer(name string) digitalocean.LoadBalancer {
	w.t.Helper()
	var lb digitalocean.LoadBalancer
	testkit.Eventually(w.t, "service "+name+" to have a load balancer", func() string {
		s := w.service(name)
		id := s.Annotations[annotation.LoadBalancerID]
		var err error
		if lb, err = w.account.LoadBalancer(id); err != nil {
			return fmt.Sprintf("annotation: %v; %s", err, w.story())
		}
		if published(s) != lb.IP || lb.IP == "" {
			return fmt.Sprintf("status is %q, the load balancer has %q; %s", published(s), lb.IP, w.story())
		}
		return ""
	})
	return lb
}

// eventually waits until a load balancer is as it must be.
func (w *world) eventually(what, id string, holds func(digitalocean.LoadBalancer) bool) {
	w.t.Helper()
	testkit.Eventually(w.t, what, func() string {
		lb, err := w.account.LoadBalancer(id)
		if err != nil {
			return err.Error()
		}
		if holds(lb) {
			return ""
		}
		return fmt.Sprintf("it is %+v; %s", lb, w.story())
	})
}

// story tells the last requests and all events, for failures.
func (w *world) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "writes %v", w.writes(0))
	requests := w.sim.Requests(journal.Filter{})
	for _, e := range requests[max(0, len(requests)-15):] {
		fmt.Fprintf(&b, "\n  %s %d %s", e.Route, e.Status, e.Fault)
	}
	for _, e := range w.events("") {
		fmt.Fprintf(&b, "\n  %s ×%d %s %s", e.InvolvedObject.Name, e.Count, e.Reason, e.Message)
	}
	return b.String()
}

// events returns the events about Services of the cluster that have a reason, or all.
func (w *world) events(reason string) []corev1.Event {
	list, err := w.client.CoreV1().Events(w.name).List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(list.Items, func(e corev1.Event) bool { return reason != "" && e.Reason != reason })
}

// told waits for an event whose message has all parts, and fails if there is more than one, or it was repeated.
func (w *world) told(service, reason string, parts ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, "event "+reason, func() string {
		found := 0
		for _, e := range w.events(reason) {
			if e.InvolvedObject.Name == service && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e.Message, p) }) {
				found += max(1, int(e.Count))
			}
		}
		switch found {
		case 0:
			return w.story()
		case 1:
		default:
			w.t.Fatalf("event %s with %q was sent %d times: %s", reason, parts, found, w.story())
		}
		return ""
	})
}

// writes returns the numbers of requests by method that change load balancers, since a mark.
func (w *world) writes(mark uint64) map[string]int {
	out := map[string]int{}
	for _, e := range w.sim.Requests(journal.Filter{After: mark}) {
		if e.Method != http.MethodGet {
			out[e.Route]++
		}
	}
	return out
}

// looked waits until every load balancer has been looked at again a few times.
func (w *world) looked() {
	w.t.Helper()
	const route = "GET /v2/load_balancers"
	lists := func() (n int) {
		for _, e := range w.sim.Requests(journal.Filter{Route: route}) {
			if e.Route == route {
				n++
			}
		}
		return n
	}
	before := lists()
	testkit.Eventually(w.t, "some resyncs", func() string {
		if n := lists(); n < before+4 {
			return strconv.Itoa(n-before) + " lists; " + w.story()
		}
		return ""
	})
}
