// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Label is on the Nodes and Services of a World; its value is the World's name. The informers of a World see no others:
// on a real API server all tests of a package run side by side.
const Label = "mooring-test-world"

// World is a cluster, an account at DigitalOcean, and a program between them.
type World struct {
	T testing.TB
	// Sim is DigitalOcean, Account its first account.
	Sim     *digitalocean.Simulator
	Account *digitalocean.Account
	// Client is the administrator's client. It does not go through Kube.
	Client kubernetes.Interface
	// Name is unique on the API server: a namespace, the value of Label, and a prefix for names of Nodes.
	Name string
	// Kube and API are the program's connections to Kubernetes and to DigitalOcean.
	Kube, API *Wire
	// Token is what the program presents to DigitalOcean.
	Token *Token
	// Registry has the metrics of the newest run of the program.
	Registry *prometheus.Registry

	// Through, if it is set before NewProgram, returns what the program's requests to Kubernetes pass first.
	Through func(next http.RoundTripper) http.RoundTripper

	config *rest.Config
	real   bool // on a real API server
	ports  int32
	stop   func()
}

// Main runs the tests of a package. It removes what carries real time into a bubble: one of Kubernetes' global error
// handlers remembers when the last error was and sleeps until that is a millisecond ago, which in a bubble's year takes
// decades. It discards klog's lines. Many tests run at a time: those on a real API server wait far more than they
// compute. -parallel on the command line wins.
func Main(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	values := map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"}
	for name, value := range values {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(io.Discard)
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	testkit.Main(m)
}

// Simulated runs a test in simulated time on a simulated API server.
func Simulated(t *testing.T, options digitalocean.Options, body func(t *testing.T, w *World)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := cluster.New(t)
		config := rest.CopyConfig(api.Config)
		config.Wrap(func(base http.RoundTripper) http.RoundTripper { return &namer{base: base} })
		w := newWorld(t, options, config)
		defer Elapse(10 * time.Minute) // what the program had begun runs into its time limits
		defer w.Stop()
		body(t, w)
	})
}

// Both is Simulated, and runs the test on a real API server in real time as well.
func Both(t *testing.T, options digitalocean.Options, body func(t *testing.T, w *World)) {
	t.Helper()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		Simulated(t, options, body)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, options, controlplane.Shared(t).Config)
		w.real = true
		defer w.Stop()
		body(t, w)
	})
}

func newWorld(t *testing.T, options digitalocean.Options, config *rest.Config) *World {
	t.Helper()
	if options.RateLimits.Hour == 0 {
		options.RateLimits.Hour, options.RateLimits.Minute = -1, -1
	}
	options.Seed = max(options.Seed, 1)
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(t.Name()))
	w := &World{
		T: t, Sim: digitalocean.New(options), Name: fmt.Sprintf("w%08x", hash.Sum32()),
		Token:  &Token{value: digitalocean.DefaultToken},
		Client: kubernetes.NewForConfigOrDie(config), Kube: &Wire{}, ports: 30000, stop: func() {},
	}
	w.Account, w.API = w.Sim.Account(""), &Wire{}
	w.config = rest.CopyConfig(config)
	w.config.Wrap(w.Kube.over)
	w.config.Wrap(outputs.Guard)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.Name}}
	must.Get(w.Client.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})).Or(w.T)
	return w
}

// Elapse lets time pass, in a bubble without waiting for it.
func Elapse(d time.Duration) { <-time.After(d) }

// Program is what a test runs of the program.
type Program struct {
	// Client and Builder speak to the API server over the program's connection, DigitalOcean to DigitalOcean.
	Client       kubernetes.Interface
	Builder      Builder
	DigitalOcean *doapi.Client
	// Informers see what has the World's label. Start starts them.
	Informers informers.SharedInformerFactory
	// Stop is closed when the program ends.
	Stop <-chan struct{}

	w       *World
	ctx     context.Context //nolint:containedctx // of the whole program
	running sync.WaitGroup
}

// NewProgram returns a program that the World's Stop ends. token is what it presents to DigitalOcean, nil for the
// World's.
func (w *World) NewProgram(token doapi.TokenSource, options ...informers.SharedInformerOption) *Program {
	w.T.Helper()
	w.Registry = prometheus.NewRegistry()
	if token == nil {
		token = w.Token
	}
	api := must.Get(doapi.New(doapi.Options{
		URL: "http://api.example/", Token: token, UserAgent: "test", Transport: w.API.over(w.Sim.Transport()),
		Clock: clock.RealClock{}, Metrics: doapi.NewMetrics(w.Registry),
	})).Or(w.T)
	ctx, cancel := context.WithCancel(context.Background())
	config := rest.CopyConfig(w.config)
	if w.Through != nil {
		config.Wrap(w.Through)
	}
	client := kubernetes.NewForConfigOrDie(config)
	p := &Program{w: w, ctx: ctx, Client: client, Builder: Builder{client}, DigitalOcean: api, Stop: ctx.Done()}
	options = append(options, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = Label + "=" + w.Name
	}))
	p.Informers = informers.NewSharedInformerFactoryWithOptions(client, 0, options...)
	w.stop = sync.OnceFunc(func() {
		cancel()
		p.running.Wait()
		p.Informers.Shutdown()
	})
	return p
}

// Start starts the informers and waits until they have listed, and then starts controllers, which end with their
// context.
func (p *Program) Start(controllers ...func(context.Context, *controllersmetrics.ControllerManagerMetrics)) {
	p.Informers.Start(p.Stop)
	p.Informers.WaitForCacheSync(p.Stop)
	for _, run := range controllers {
		p.running.Go(func() { run(p.ctx, metrics()) })
	}
}

// Run starts a controller of the program's own, until the program ends.
func (p *Program) Run(start func(context.Context, kubernetes.Interface, record.EventRecorder)) {
	broadcaster := record.NewBroadcaster(record.WithContext(p.ctx))
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: p.Client.CoreV1().Events("")})
	context.AfterFunc(p.ctx, broadcaster.Shutdown)
	start(p.ctx, p.Client, broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "test"}))
}

// metrics of controllers exist once per process.
//
//nolint:gochecknoglobals // as they are
var metrics = sync.OnceValue(func() *controllersmetrics.ControllerManagerMetrics {
	return controllersmetrics.NewControllerManagerMetrics("test")
})

// Stop ends the program, if it runs, and waits until it has ended.
func (w *World) Stop() { w.stop() }

// Builder gives every controller the same client.
type Builder struct{ kubernetes.Interface }

// Config implements cloudprovider.ControllerClientBuilder. It is not used.
func (Builder) Config(string) (*rest.Config, error) { panic("not used") }

// ConfigOrDie implements cloudprovider.ControllerClientBuilder. It is not used.
func (Builder) ConfigOrDie(string) *rest.Config { panic("not used") }

// Client implements cloudprovider.ControllerClientBuilder.
func (b Builder) Client(string) (kubernetes.Interface, error) { return b.Interface, nil }

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (b Builder) ClientOrDie(string) kubernetes.Interface { return b.Interface }

// JSON is a value as JSON.
func (w *World) JSON(value any) []byte {
	w.T.Helper()
	text := must.Get(json.Marshal(value)).Or(w.T)
	return text
}

// TwoAccounts are options of a DigitalOcean with the account "ours", and the account "theirs" whose token is "theirs".
func TwoAccounts() digitalocean.Options {
	return digitalocean.Options{Accounts: []digitalocean.AccountOptions{
		{Name: "ours", Tokens: []digitalocean.Token{{Value: digitalocean.DefaultToken}}},
		{Name: "theirs", Tokens: []digitalocean.Token{{Value: "theirs"}}},
	}}
}
