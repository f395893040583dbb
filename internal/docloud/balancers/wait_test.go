// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// refusing is an API without load balancers that answers the first POST as it is told, and later ones with a load balancer.
type refusing struct {
	status int
	header http.Header
	body   string

	mu    sync.Mutex // guards all below
	began time.Time
	reads []time.Duration // when load balancers were listed
	posts []time.Duration
}

func (r *refusing) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answer := func(status int, header http.Header, body string) (*http.Response, error) {
		if header == nil {
			header = http.Header{}
		}
		return &http.Response{StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
	switch {
	case request.Method == http.MethodPost && len(r.posts) == 0:
		r.posts = append(r.posts, time.Since(r.began))
		return answer(r.status, r.header, r.body)
	case request.Method == http.MethodPost:
		r.posts = append(r.posts, time.Since(r.began))
		return answer(202, nil, `{"load_balancer":{"id":"lb-1","name":"n","status":"new","type":"REGIONAL"}}`)
	}
	r.reads = append(r.reads, time.Since(r.began))
	return answer(200, nil, `{"load_balancers":[],"meta":{"total":0}}`)
}

// sureFleet is a fleet that is always trusted.
type sureFleet struct{}

func (sureFleet) Droplets(context.Context) ([]instance.Droplet, error) { return nil, nil }
func (sureFleet) Trusted(context.Context) error                        { return nil }
func (sureFleet) TrustedNow(context.Context) error                     { return nil }
func (sureFleet) Since() time.Time                                     { return time.Time{} }

// waitingBalancers is a Controller with one Node and two Services, web and other, that ask the API.
func waitingBalancers(t *testing.T, transport http.RoundTripper) *Controller {
	t.Helper()
	client, err := doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Transport: transport, Clock: clock.RealClock{}})
	must.Do(t, err)
	b := New(Options{
		API: client, Fleet: sureFleet{}, Cluster: loadbalancer.Cluster{ID: "c", Region: "nyc1", DefaultType: "REGIONAL"},
		Metrics: NewMetrics(prometheus.NewRegistry()), Clock: clock.RealClock{}, Log: logr.Discard(), Timing: Timing{Resync: 24 * time.Hour},
	})
	nodes, services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	objects := []*corev1.Service{waitingService("web"), waitingService("other")}
	for _, s := range objects {
		must.Do(t, services.Add(s))
	}
	must.Do(t, nodes.Add(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n"}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://7"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}}},
	}))
	b.nodes, b.services = corelisters.NewNodeLister(nodes), corelisters.NewServiceLister(services)
	b.client = fake.NewClientset(objects[0], objects[1])
	b.loop.Follow()
	return b
}

func waitingService(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: types.UID("uid-" + name), Finalizers: []string{servicehelpers.LoadBalancerCleanupFinalizer}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80, NodePort: 30080, Protocol: corev1.ProtocolTCP}}},
	}
}

// toldToWait are answers that ask to wait for a minute.
func toldToWait() map[string]*refusing {
	minute := http.Header{"Retry-After": {"60"}}
	return map[string]*refusing{
		"429": {status: 429, header: minute, body: `{"id":"too_many_requests","message":"slow down"}`},
		"503": {status: 503, header: minute},
		"403": {status: 403, header: minute, body: `{"id":"forbidden","message":"Load Balancer can't be updated while it processes previous actions"}`},
	}
}

// Nothing is sent to DigitalOcean in a round over a Service that the controller has not declared.
func TestUndeclaredWritesAreNotSent(t *testing.T) {
	t.Parallel()
	transport := &refusing{status: 201}
	b := waitingBalancers(t, transport)
	ended, end := context.WithCancel(t.Context())
	defer b.loop.Run(ended)
	defer end()
	api, _ := b.o.API.(*doapi.Client)
	done, err := b.loop.Call(t.Context(), "d/web", func(ctx context.Context, _ string) (*scene, error) {
		return nil, api.TagLoadBalancers(ctx, "mine", []string{"lb"})
	})
	if err != nil || !errors.Is(done.Err, outputs.ErrUndeclared) || len(transport.posts) > 0 {
		t.Errorf("%v, %v, POSTs after %v; want that the write is refused", err, done.Err, transport.posts)
	}
}

// However often the queue is told to look, nothing is asked before the time is over that DigitalOcean rate limit requires a wait, and then not exactly at its end.
func TestQueueWaitsAsLongAsItIsAskedTo(t *testing.T) {
	t.Parallel()
	for name, transport := range toldToWait() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := waitingBalancers(t, transport)
				transport.began = time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				go b.loop.Run(ctx)
				for range 40 {
					b.loop.Add("d/web")
					<-time.After(2 * time.Second)
				}
				cancel()
				synctest.Wait()
				for _, at := range transport.reads {
					if at > 0 && at < time.Minute {
						t.Errorf("asked after %s", at)
					}
				}
				if p := transport.posts; len(p) != 2 || p[1] < time.Minute || p[1] > 75*time.Second {
					t.Errorf("POSTs after %v, want one at once and one after a minute and a little", p)
				}
			})
		})
	}
}

// The framework leaves to the loop what has to wait, and one event says why; a limit on calls holds for all Services, everything else for one.
func TestWhatHasToWaitIsToldOnce(t *testing.T) {
	t.Parallel()
	for name, transport := range toldToWait() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := waitingBalancers(t, transport)
				events := record.NewFakeRecorder(10)
				b.loop.Events = events
				transport.began = time.Now()
				for i := range 3 {
					if _, err := b.EnsureLoadBalancer(t.Context(), "", waitingService("web"), nil); !errors.Is(err, cloudprovider.ImplementedElsewhere) {
						t.Errorf("attempt %d: %v", i, err)
					}
					<-time.After(10 * time.Second)
				}
				told := map[string]int{}
				for len(events.Events) > 0 {
					told[<-events.Events]++
				}
				if len(told) == 0 || len(told) > 2 { // the second that nothing is asked meanwhile
					t.Errorf("events: %v", told)
				}
				for text, n := range told {
					if n != 1 || !strings.Contains(text, "Warning SyncLoadBalancerFailed Error syncing load balancer: failed to ensure load balancer: ") {
						t.Errorf("%d × %s", n, text)
					}
				}
				if err := b.EnsureLoadBalancerDeleted(t.Context(), "", waitingService("web")); err == nil {
					t.Error("the Service may be deleted although nobody was asked")
				}
				if len(transport.posts) != 1 {
					t.Errorf("POSTs after %v", transport.posts)
				}
				_, _ = b.EnsureLoadBalancer(t.Context(), "", waitingService("other"), nil)
				if alone := name != "429"; alone != (len(transport.posts) == 2) {
					t.Errorf("another Service: POSTs after %v", transport.posts)
				}
				ended, end := context.WithCancel(t.Context())
				end()
				b.loop.Run(ended)
			})
		})
	}
}
