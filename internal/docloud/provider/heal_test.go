// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// outage is an API that does not serve for a while.
type outage struct {
	over   time.Time
	calls  atomic.Int32
	served atomic.Bool
}

func (o *outage) Failing() bool { return !o.served.Load() }

func (o *outage) Account(context.Context) (instance.Account, error) {
	o.calls.Add(1)
	if time.Now().Before(o.over) {
		return instance.Account{}, errors.New("no")
	}
	o.served.Store(true)
	return instance.Account{}, nil
}

// sleeper is an extra that says when it was woken.
type sleeper struct{ woken []time.Time }

func (*sleeper) Follow(informers.SharedInformerFactory)                            {}
func (*sleeper) Start(context.Context, kubernetes.Interface, record.EventRecorder) {}
func (s *sleeper) Wake()                                                           { s.woken = append(s.woken, time.Now()) }

// As soon as DigitalOcean serves again, what waits after a failure is woken, once; while it serves, nothing is asked.
func TestWhatWaitsIsWokenWhenDigitalOceanServesAgain(t *testing.T) {
	t.Parallel()
	api := must.Get(doapi.New(doapi.Options{Token: doapi.StaticToken("t"), Clock: clock.RealClock{}})).Or(t)
	gate := &reconcile.Gate{}
	keeper := balancers.New(balancers.Options{
		API: api, Metrics: balancers.NewMetrics(prometheus.NewRegistry()), Clock: clock.RealClock{}, Log: logr.Discard(), Gate: gate,
	})
	fleet := machines.New(api, machines.NewSnapshot(api, clock.RealClock{}), machines.DefaultConfig(), clock.RealClock{}, prometheus.NewRegistry())
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		extra, cloud := &sleeper{}, &outage{over: began.Add(90 * time.Second)}
		p := New(gate, fleet, keeper, extra).Probing(cloud)
		ctx, cancel := context.WithCancel(t.Context())
		go p.heal(ctx)
		<-time.After(time.Hour)
		cancel()
		synctest.Wait()
		if n := len(extra.woken); n != 1 || extra.woken[0].Sub(began) > 95*time.Second {
			t.Errorf("woken %v, want once and within 5 s after %s", extra.woken, cloud.over)
		}
		if n := cloud.calls.Load(); n > 19 {
			t.Errorf("%d calls for an outage of 90 s and an hour without", n)
		}
	})
}
