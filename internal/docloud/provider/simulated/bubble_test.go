// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	cloudproviderapi "k8s.io/cloud-provider/api"
	cloudnode "k8s.io/cloud-provider/controllers/node"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// bubble is a cluster in simulated time: Kubernetes' own controllers with their own periods, the provider, and the simulator all live in one
// testing/synctest bubble, where an hour takes as long as what happens in it. Only the API server is client-go's fake: it holds objects and
// sends watches, and has neither admission nor preconditions.
type bubble struct {
	t       testing.TB
	cloud   *sim.Simulator
	tracker clienttesting.ObjectTracker
	store   *fake.Clientset
	// forbidden is the resource that processes may not read, empty for none.
	forbidden string
	sent      atomic.Int64 // events
	watch     func(*http.Request)
	process   *process
	// extras are controllers that work alongside the provider's own, such as that of the firewall.
	extras func(*doapi.Client, provider.Common) []provider.Extra
	// labels are the labels of Nodes that are made of tags.
	labels instance.TagLabels
}

// process is one run of the program.
type process struct {
	client    *fake.Clientset
	balancers *balancers.Controller
	machines  *machines.Instances
	registry  *prometheus.Registry
	plan      death
	writes    atomic.Int64
	dead      chan struct{} // closed when nothing the process does may have an effect any more
	kill      func()
	ended     func()
}

// death is before or after which of its writes a process is killed: those to DigitalOcean, and those to Kubernetes but for events and
// leases. 0 is none.
type death struct {
	at    int64
	after bool
}

// wire carries a process's calls to the simulator.
type wire struct {
	process *process
	base    http.RoundTripper
	// watch sees each request before it is sent.
	watch func(*http.Request)
}

// RoundTrip implements http.RoundTripper.
func (w wire) RoundTrip(r *http.Request) (*http.Response, error) {
	if w.process.isDead() {
		return nil, errDead
	}
	if w.watch != nil {
		w.watch(r)
	}
	if r.Method == http.MethodGet {
		return w.base.RoundTrip(r)
	}
	var response *http.Response
	err := w.process.write(func() (err error) {
		response, err = w.base.RoundTrip(r) //nolint:bodyclose // anyone who gets it closes it, and what nobody gets is closed below
		return err
	})
	if err != nil && response != nil {
		_ = response.Body.Close()
		response = nil
	}
	return response, err
}

func newBubble(tb testing.TB, options sim.Options) *bubble {
	tb.Helper()
	options.Clock = clock.RealClock{}
	b := &bubble{t: tb, cloud: sim.New(options), tracker: clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder())}
	b.store = b.clientOf(&process{dead: make(chan struct{})})
	return b
}

// errDead is what a process gets that is dead.
var errDead = errors.New("the process is dead")

// write makes a change of the process's, and kills the process before or after it if that is planned. A dead process changes nothing, and learns of
// nothing that it changed last.
func (p *process) write(do func() error) error {
	if p.isDead() {
		return errDead
	}
	n := p.writes.Add(1)
	if n == p.plan.at && !p.plan.after {
		p.kill()
		return errDead
	}
	err := do()
	if n == p.plan.at {
		p.kill()
	}
	if p.isDead() {
		return errDead
	}
	return err
}

func (p *process) isDead() bool {
	select {
	case <-p.dead:
		return true
	default:
		return false
	}
}

// clientOf returns a client of its own on the shared objects.
func (b *bubble) clientOf(p *process) *fake.Clientset {
	client := &fake.Clientset{}
	client.AddReactor("*", "*", func(action clienttesting.Action) (handled bool, object runtime.Object, err error) {
		if create, ok := action.(clienttesting.CreateAction); ok {
			if event, ok := create.GetObject().(*corev1.Event); ok {
				event.Name += fmt.Sprintf("-%d", b.sent.Add(1)) // they are named by the time, which stands still here
			}
		}
		if p.registry != nil { // else it is a person who writes
			b.expectDeclared(p, action)
		}
		do := func() error {
			handled, object, err = clienttesting.ObjectReaction(b.tracker)(action)
			return err
		}
		switch {
		case p.isDead():
			return true, nil, errDead
		case b.forbidden != "" && action.GetResource().Resource == b.forbidden:
			return true, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", nil)
		case slices.Contains([]string{"get", "list"}, action.GetVerb()), slices.Contains([]string{"events", "leases"}, action.GetResource().Resource):
			err = do()
		default:
			err = p.write(do)
		}
		b.collect(object)
		return true, object, err
	})
	client.AddWatchReactor("*", func(action clienttesting.Action) (bool, watch.Interface, error) {
		if p.isDead() {
			return true, nil, errDead
		}
		w, err := b.tracker.Watch(action.GetResource(), action.GetNamespace())
		return true, w, err
	})
	return client
}

// expectDeclared holds each patch, and each deletion of a Node, to what the program declares: fake clients send none
// through its transport.
func (b *bubble) expectDeclared(p *process, action clienttesting.Action) {
	var method, name, kind string
	var body []byte
	switch a := action.(type) {
	case clienttesting.PatchAction:
		method, name, kind, body = http.MethodPatch, a.GetName(), string(a.GetPatchType()), a.GetPatch()
	case clienttesting.DeleteAction:
		method, name = http.MethodDelete, a.GetName()
	default:
		return
	}
	path := "/api/v1/namespaces/" + action.GetNamespace() + "/"
	if action.GetNamespace() == "" {
		path = "/api/v1/"
	}
	path += action.GetResource().Resource + "/" + name
	if part := action.GetSubresource(); part != "" {
		path += "/" + part
	}
	declared := slices.Concat(provider.OutsideRounds(), balancers.Writes(), firewalls.Writes())
	transport := p.machines.Deletions(outputs.Enforce.Transport(declared, nil)(answerer{}))
	request := must.Get(http.NewRequestWithContext(b.t.Context(), method, "https://kubernetes.example"+path,
		bytes.NewReader(body))).Or(b.t)
	request.Header.Set("Content-Type", kind)
	response, err := transport.RoundTrip(request)
	if err != nil {
		b.t.Errorf("%s %s %s: %v", method, path, body, err)
		return
	}
	_ = response.Body.Close()
}

// answerer answers each request with nothing.
type answerer struct{}

// RoundTrip implements http.RoundTripper.
func (answerer) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// collect removes an object that is being deleted and has no finalizer left, as the API server does.
func (b *bubble) collect(object runtime.Object) {
	if s, ok := object.(*corev1.Service); ok && s.DeletionTimestamp != nil && len(s.Finalizers) == 0 {
		_ = b.tracker.Delete(corev1.SchemeGroupVersion.WithResource("services"), s.Namespace, s.Name) // it may be gone already
	}
}

// builder gives the controllers the client.
type builder struct{ client kubernetes.Interface }

func (b builder) Config(string) (*rest.Config, error)         { return &rest.Config{}, nil }
func (b builder) ConfigOrDie(string) *rest.Config             { return &rest.Config{} }
func (b builder) Client(string) (kubernetes.Interface, error) { return b.client, nil }
func (b builder) ClientOrDie(string) kubernetes.Interface     { return b.client }

// start runs the program: the framework's three controllers with the defaults of their flags, and the provider.
func (b *bubble) start(plan death) {
	b.t.Helper()
	p := &process{dead: make(chan struct{}), registry: prometheus.NewRegistry(), plan: plan}
	p.client = b.clientOf(p)
	ctx, cancel := context.WithCancel(context.Background())
	p.kill = sync.OnceFunc(func() {
		close(p.dead)
		cancel()
	})
	api, err := doapi.New(doapi.Options{
		URL: "https://api.digitalocean.com", Token: doapi.StaticToken(sim.DefaultToken), Clock: clock.RealClock{}, Metrics: doapi.NewMetrics(p.registry),
		Transport: wire{process: p, base: b.cloud.Transport(), watch: b.watch},
	})
	must.Do(b.t, err)
	gate, config := &reconcile.Gate{}, machines.DefaultConfig()
	config.Labels = b.labels
	p.machines = machines.New(api, machines.NewSnapshot(api, clock.RealClock{}), config, clock.RealClock{}, p.registry)
	p.balancers = balancers.New(balancers.Options{
		API: api, Fleet: p.machines, Gate: gate, Metrics: balancers.NewMetrics(p.registry), Clock: clock.RealClock{}, Log: logr.Discard(),
		Cluster: loadbalancer.Cluster{ID: clusterID, Region: "nyc1", DefaultType: "REGIONAL_NETWORK"}, Domains: []string{"*"},
		Identities: p.machines.Identities,
	})
	var extras []provider.Extra
	if b.extras != nil {
		extras = b.extras(api, provider.Common{Instances: p.machines, Controller: p.balancers})
	}
	cloud := provider.New(gate, p.machines, p.balancers, extras...).Probing(api)
	factory := informers.NewSharedInformerFactory(p.client, 0)
	cloud.Initialize(builder{p.client}, ctx.Done())
	cloud.SetInformers(factory)
	nodes, services := factory.Core().V1().Nodes(), factory.Core().V1().Services()
	initializer, err := cloudnode.NewCloudNodeController(provider.WakingNodes(nodes, cloud), p.client, cloud, 5*time.Minute, 1, 1)
	must.Do(b.t, err)
	monitor := must.Get(nodelifecycle.NewCloudNodeLifecycleController(nodes, p.client, cloud, 5*time.Second, 1)).Or(b.t)
	keeper, err := servicecontroller.New(cloud, p.client, services, provider.QuietNodes(nodes), "kubernetes", utilfeature.DefaultFeatureGate)
	must.Do(b.t, err)
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	synctest.Wait() // until the watches are open: what changes between a list and its watch, the fake API server tells nobody
	metrics := controllersmetrics.NewControllerManagerMetrics("bubble")
	var running sync.WaitGroup
	running.Go(func() { initializer.RunWithContext(ctx, metrics) })
	running.Go(func() { monitor.Run(ctx, metrics) })
	running.Go(func() { keeper.Run(ctx, 1, metrics) })
	p.ended = func() {
		running.Wait()
		factory.Shutdown()
	}
	b.process = p
}

// stop ends the program, and waits until what it had begun has run into its time limits.
func (b *bubble) stop() {
	b.process.kill()
	b.process.ended()
	elapse(10 * time.Minute)
}

// boot makes a droplet. Its kubelet takes a while to register its Node.
func (b *bubble) boot(name string) {
	b.t.Helper()
	must.Get(b.cloud.Account("").CreateDroplet(sim.DropletSpec{Name: name, Tags: []string{workerTag}})).Or(b.t)
}

// join registers the Node of a droplet, ready, as its kubelet does.
func (b *bubble) join(name string, change ...func(*corev1.Node)) *corev1.Node {
	b.t.Helper()
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.Now()},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: corev1.TaintEffectNoSchedule}}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
	for _, c := range change {
		c(node)
	}
	b.add(node)
	return node
}

// serve makes a Service that asks for a load balancer.
func (b *bubble) serve(name string, port int32, edit ...func(*corev1.Service)) {
	b.t.Helper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{
			{Name: "web", Port: port, NodePort: 30000 + port, Protocol: corev1.ProtocolTCP},
		}},
	}
	for _, e := range edit {
		e(service)
	}
	b.add(service)
}

// add adds an object and lets who watches see it: a fake watch holds a hundred changes and no more.
func (b *bubble) add(object runtime.Object) {
	b.t.Helper()
	must.Do(b.t, b.tracker.Add(object))
	synctest.Wait()
}

// elapse lets time pass.
func elapse(d time.Duration) { <-time.After(d) }

// member is join for a Node that was initialized long ago.
func (b *bubble) member(name string) *corev1.Node {
	b.t.Helper()
	d := must.Get(b.cloud.Account("").CreateDroplet(sim.DropletSpec{Name: name, Tags: []string{workerTag}})).Or(b.t)
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{
			corev1.LabelInstanceTypeStable: d.SizeSlug, corev1.LabelInstanceType: d.SizeSlug,
			corev1.LabelTopologyRegion: d.Region.Slug, corev1.LabelFailureDomainBetaRegion: d.Region.Slug,
		}},
		Spec: corev1.NodeSpec{ProviderID: fmt.Sprintf("digitalocean://%d", d.ID)},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Addresses:  []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}},
		},
	}
	for _, kind := range []string{"private", "public"} {
		for _, n := range d.Networks.V4 {
			if n.Type == kind {
				t := map[string]corev1.NodeAddressType{"private": corev1.NodeInternalIP, "public": corev1.NodeExternalIP}[kind]
				node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: t, Address: n.IPAddress})
			}
		}
	}
	b.add(node)
	return node
}

// unready makes a Node not ready, as the node lifecycle controller of Kubernetes does when its kubelet is silent.
func (b *bubble) unready(name string) {
	b.t.Helper()
	node := must.Get(b.store.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})).Or(b.t)
	node.Status.Conditions[0].Status, node.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.Now()
	must.Get(b.store.CoreV1().Nodes().UpdateStatus(b.t.Context(), node, metav1.UpdateOptions{})).Or(b.t)
}

// leave deletes a Node and its droplet, as an autoscaler does.
func (b *bubble) leave(name string) {
	b.t.Helper()
	must.Do(b.t, b.store.CoreV1().Nodes().Delete(b.t.Context(), name, metav1.DeleteOptions{}))
	must.Do(b.t, b.cloud.Account("").DeleteDroplet(name))
}

// nodes is how many Nodes there are.
func (b *bubble) nodes() int {
	b.t.Helper()
	list := must.Get(b.store.CoreV1().Nodes().List(b.t.Context(), metav1.ListOptions{})).Or(b.t)
	return len(list.Items)
}

// addresses are those of all Services, by name, empty for none.
func (b *bubble) addresses() map[string]string {
	b.t.Helper()
	list := must.Get(b.store.CoreV1().Services("").List(b.t.Context(), metav1.ListOptions{})).Or(b.t)
	out := map[string]string{}
	for _, s := range list.Items {
		out[s.Name] = ""
		for _, in := range s.Status.LoadBalancer.Ingress {
			out[s.Name] = in.IP
		}
	}
	return out
}

// events are all that were sent.
func (b *bubble) events() []corev1.Event {
	b.t.Helper()
	list := must.Get(b.store.CoreV1().Events("").List(b.t.Context(), metav1.ListOptions{})).Or(b.t)
	return list.Items
}

// inBubble runs part of a benchmark in a bubble, which only a test can make.
func inBubble(b *testing.B, deed func(tb testing.TB)) {
	b.Helper()
	for b.Loop() {
		ok := testing.RunTests(func(string, string) (bool, error) { return true, nil }, []testing.InternalTest{{
			Name: b.Name(), F: func(t *testing.T) { synctest.Test(t, func(t *testing.T) { deed(t) }) },
		}})
		if !ok {
			b.Fatal("it failed, see above")
		}
	}
}

// service returns a Service.
func (b *bubble) service(name string) *corev1.Service {
	b.t.Helper()
	s := must.Get(b.store.CoreV1().Services("default").Get(b.t.Context(), name, metav1.GetOptions{})).Or(b.t)
	return s
}

// change changes a Service as its owner does.
func (b *bubble) change(name string, edit func(*corev1.Service)) {
	b.t.Helper()
	s := b.service(name)
	edit(s)
	must.Get(b.store.CoreV1().Services("default").Update(b.t.Context(), s, metav1.UpdateOptions{})).Or(b.t)
}

// node returns a Node.
func (b *bubble) node(name string) *corev1.Node {
	b.t.Helper()
	n := must.Get(b.store.CoreV1().Nodes().Get(b.t.Context(), name, metav1.GetOptions{})).Or(b.t)
	return n
}

// has reports whether a Node is there.
func (b *bubble) has(node string) bool {
	_, err := b.store.CoreV1().Nodes().Get(b.t.Context(), node, metav1.GetOptions{})
	return err == nil
}
