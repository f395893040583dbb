// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewalls_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
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

const (
	// own is the label by which a test's controllers see its own Nodes and Services only: all tests share one API server.
	own = "firewalltest"
	// workers is the tag of the cluster's droplets.
	workers = "k8s:worker"

	postRoute = "POST /v2/firewalls"
	putRoute  = "PUT /v2/firewalls/{firewall_id}"
)

// world is one cluster of one machine, and one account.
type world struct {
	t       *testing.T
	sim     *digitalocean.Simulator
	account *digitalocean.Account
	client  kubernetes.Interface
	name    string // namespace, label and the firewall's name
	config  firewall.Config
	timing  firewalls.Timing
	wire    *wire
	token   token

	registry *prometheus.Registry // of the newest controller
	cloud    *provider.Provider   // likewise
	stop     func()               // likewise
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

// newWorld makes an account and a cluster of one machine. Times are short, but longer than an API server needs.
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
	name := fmt.Sprintf("f%08x", hash.Sum32())
	w := &world{
		t: t, sim: digitalocean.New(o), client: kubernetes.NewForConfigOrDie(config), name: name,
		config: firewall.Config{Name: name, Tags: []string{workers}},
		timing: firewalls.Timing{
			Gather: 50 * time.Millisecond, Resync: 400 * time.Millisecond, FirstRetry: 100 * time.Millisecond, LastRetry: time.Second,
		},
		token: token{value: digitalocean.DefaultToken},
	}
	w.account = w.sim.Account("")
	w.wire = &wire{base: w.sim.Transport()}
	_, err := w.client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.must(err)
	w.node()
	w.service("own", corev1.ServiceTypeClusterIP, nil, port(443)) // there is always one, that of the API server
	return w
}

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// node makes a droplet and its Node.
func (w *world) node() {
	w.t.Helper()
	d, err := w.account.CreateDroplet(digitalocean.DropletSpec{Name: w.name, Tags: []string{workers}})
	w.must(err)
	_, err = w.client.CoreV1().Nodes().Create(w.t.Context(), &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: w.name, Labels: map[string]string{own: w.name}}, Spec: corev1.NodeSpec{ProviderID: providerid.Format(d.ID)},
	}, metav1.CreateOptions{})
	w.must(err)
}

// run starts a controller, with the real machines and load balancers around it, but without the framework's controllers.
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
		API: api, Fleet: instances, Gate: gate, Metrics: balancers.NewMetrics(w.registry), Clock: clock.RealClock{}, Log: logr.Discard(),
		Cluster: loadbalancer.Cluster{ID: w.name, Region: "nyc1"}, Timing: balancers.Timing{Settle: 100 * time.Millisecond},
	})
	controller := firewalls.New(firewalls.Options{
		API: api, Surroundings: provider.Common{Instances: instances, Controller: keeper}, Gate: gate, Config: w.config, Metrics: firewalls.NewMetrics(w.registry),
		Clock: clock.RealClock{}, Log: logr.Discard(), Timing: w.timing, Namespace: w.name,
	})
	w.cloud = provider.New(gate, instances, keeper, controller)
	ctx, cancel := context.WithCancel(w.t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(w.client, 0, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = own + "=" + w.name
	}))
	w.cloud.Initialize(builder{w.client}, ctx.Done())
	w.cloud.SetInformers(factory)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	w.stop = func() {
		cancel()
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

func port(number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: fmt.Sprint("p", number), Protocol: corev1.ProtocolTCP, Port: number}
}

// service makes a Service.
func (w *world) service(name string, kind corev1.ServiceType, annotations map[string]string, ports ...corev1.ServicePort) *corev1.Service {
	w.t.Helper()
	made, err := w.client.CoreV1().Services(w.name).Create(w.t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: w.name, Labels: map[string]string{own: w.name}, Annotations: annotations},
		Spec:       corev1.ServiceSpec{Type: kind, Ports: ports},
	}, metav1.CreateOptions{})
	w.must(err)
	return made
}

// nodePort makes a Service of type NodePort and returns its node port, which the API server chooses.
func (w *world) nodePort(name string) string {
	w.t.Helper()
	s := w.service(name, corev1.ServiceTypeNodePort, nil, port(80))
	return fmt.Sprint(s.Spec.Ports[0].NodePort)
}

func (w *world) delete(name string) {
	w.t.Helper()
	w.must(w.client.CoreV1().Services(w.name).Delete(w.t.Context(), name, metav1.DeleteOptions{}))
}

// annotate sets an annotation of a Service; nil removes it.
func (w *world) annotate(name, annotation string, value any) {
	w.t.Helper()
	w.patch(name, map[string]any{"metadata": map[string]any{"annotations": map[string]any{annotation: value}}})
}

func (w *world) patch(name string, body map[string]any) {
	w.t.Helper()
	encoded, err := json.Marshal(body)
	w.must(err)
	_, err = w.client.CoreV1().Services(w.name).Patch(w.t.Context(), name, types.MergePatchType, encoded, metav1.PatchOptions{})
	w.must(err)
}

// balancer makes a load balancer at DigitalOcean and returns its ID.
func (w *world) balancer(name string) string {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, "http://api.example/v2/load_balancers", strings.NewReader(`{
		"name": "`+name+`", "region": "nyc1", "type": "REGIONAL_NETWORK",
		"forwarding_rules": [{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 80}]}`))
	w.must(err)
	request.Header.Set("Authorization", "Bearer "+digitalocean.DefaultToken)
	request.Header.Set("Content-Type", "application/json")
	response, err := w.sim.Transport().RoundTrip(request)
	w.must(err)
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		LoadBalancer digitalocean.LoadBalancer `json:"load_balancer"`
	}
	w.must(json.NewDecoder(response.Body).Decode(&answer))
	if answer.LoadBalancer.ID == "" {
		w.t.Fatalf("no load balancer: %d", response.StatusCode)
	}
	return answer.LoadBalancer.ID
}

// opened says what a firewall lets in, one line per rule, sorted.
func opened(f digitalocean.Firewall) []string {
	var out []string
	for _, r := range f.InboundRules {
		out = append(out, fmt.Sprintf("%s %s %s", r.Protocol, r.Ports, strings.Join(slices.Concat(r.Sources.Addresses, r.Sources.LoadBalancerUIDs), ",")))
	}
	slices.Sort(out)
	return out
}

// everybody is how rules for everybody are shown by opened.
const everybody = " 0.0.0.0/0,::/0"

// becomes waits until there is exactly one firewall, and it lets in exactly this, and covers the cluster's droplets.
func (w *world) becomes(want ...string) digitalocean.Firewall {
	w.t.Helper()
	slices.Sort(want)
	var found digitalocean.Firewall
	testkit.Eventually(w.t, "the firewall", func() string {
		all := w.account.Firewalls()
		if len(all) != 1 {
			return fmt.Sprintf("%d firewalls; %s", len(all), w.story())
		}
		found = all[0]
		if got := opened(found); !slices.Equal(got, want) || len(found.OutboundRules) != 3 || found.Name != w.name || !slices.Equal(*found.Tags, w.config.Tags) {
			return fmt.Sprintf("it lets in %q, want %q, and is %+v; %s", got, want, found, w.story())
		}
		return ""
	})
	return found
}

// story tells the last requests and all events, for failures.
func (w *world) story() string {
	var b strings.Builder
	requests := w.sim.Requests(journal.Filter{})
	fmt.Fprintf(&b, "%d requests, the last of them:", len(requests)) // never nothing: testkit.Eventually takes that for success
	for _, e := range requests[max(0, len(requests)-15):] {
		fmt.Fprintf(&b, "\n  %s %d %s", e.Route, e.Status, e.Fault)
	}
	for _, e := range w.events() {
		fmt.Fprintf(&b, "\n  %s ×%d %s %s", e.InvolvedObject.Name, e.Count, e.Reason, e.Message)
	}
	return b.String()
}

// events returns the events about the test's Services and its firewall.
func (w *world) events() []corev1.Event {
	var out []corev1.Event
	for _, namespace := range []string{w.name, metav1.NamespaceSystem} {
		list, err := w.client.CoreV1().Events(namespace).List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
		if err != nil {
			return nil
		}
		for _, e := range list.Items {
			if namespace == w.name || strings.Contains(e.Message, w.name) {
				out = append(out, e)
			}
		}
	}
	return out
}

// told waits for an event whose message has all parts, and fails if there is more than one, or it was repeated.
func (w *world) told(on, reason string, parts ...string) {
	w.t.Helper()
	testkit.Eventually(w.t, "event "+reason, func() string {
		found := 0
		for _, e := range w.events() {
			if e.InvolvedObject.Name == on && e.Reason == reason && !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(e.Message, p) }) {
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

// lease is what events about the firewall are on.
const lease = "digitalocean-cloud-controller-manager-account"

// writes counts the requests by route that write anything, since a mark.
func (w *world) writes(mark uint64) map[string]int {
	out := map[string]int{}
	for _, e := range w.sim.Requests(journal.Filter{After: mark}) {
		if e.Method != http.MethodGet {
			out[e.Route]++
		}
	}
	return out
}

// mark is the number of the last request that arrived; it may not have been answered, and so not be in the journal.
func (w *world) mark() uint64 { return w.sim.Mark() }

// looked waits until the firewall has been read again a few times.
func (w *world) looked() {
	w.t.Helper()
	reads := func() (n int) {
		for _, e := range w.sim.Requests(journal.Filter{}) {
			if e.Method == http.MethodGet && strings.HasPrefix(e.Route, "GET /v2/firewalls") {
				n++
			}
		}
		return n
	}
	before := reads()
	testkit.Eventually(w.t, "some resyncs", func() string {
		if n := reads(); n < before+3 {
			return fmt.Sprintf("%d readings; %s", n-before, w.story())
		}
		return ""
	})
}
