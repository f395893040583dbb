// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	// mostIdle is how many machines beside those of the load a storm may have.
	mostIdle = 1000
	// stormEnd begins the keys with which the history ends when it is read.
	stormEnd = "/e2e/storm-end-"
	// answered begins the names of counters of answers.
	answered = "requests answered "
)

// load is what happens in a storm.
type load struct {
	// comers are machines that come and go, stays those that stay.
	comers, stays int
	// low and high bound the time between two disturbances. What removes leftovers must live for some time to do so.
	low, high time.Duration
	// churn is what happens to the pods of a machine that stays.
	churn func(*slot)
	// wrong is what a naive controller does wrong in either datastore: words of violations.
	wrong map[apiconfig.DatastoreType][]string
}

// loads are those of storms, by name: machines that depart, and pods that leave something on machines that stay.
func loads() map[string]load {
	const running = "of a pod that lives"
	return map[string]load{
		"machines": {
			comers: 8, stays: 3, low: 500 * time.Millisecond, high: 4 * time.Second, churn: (*slot).churn,
			wrong: map[apiconfig.DatastoreType][]string{apiconfig.EtcdV3: {nodePrefix, ipamPrefix}, apiconfig.Kubernetes: {customPrefix + "ipamblocks/"}},
		},
		"leftovers": {
			comers: 2, stays: 8, low: 5 * time.Second, high: time.Minute, churn: (*slot).churnSandboxes,
			wrong: map[apiconfig.DatastoreType][]string{apiconfig.EtcdV3: {running}, apiconfig.Kubernetes: {running}},
		},
	}
}

// eachStorm runs a test with either datastore under each load.
func eachStorm(t *testing.T, test func(t *testing.T, kind apiconfig.DatastoreType, load load)) { //nolint:paralleltest // its servers freeze, and it needs the machine for itself
	t.Helper()
	if testing.Short() {
		t.Skip("it takes minutes; make e2e runs it")
	}
	for _, name := range slices.Sorted(maps.Keys(loads())) {
		for _, kind := range []apiconfig.DatastoreType{apiconfig.EtcdV3, apiconfig.Kubernetes} {
			t.Run(name+"/"+string(kind), func(t *testing.T) { test(t, kind, loads()[name]) })
		}
	}
}

// storm is a cluster of machines that come and go at random, and what disturbs those that clean up after them.
type storm struct {
	*site
	load
	truth   *truth
	history *history
	seed    uint64
	next    atomic.Int64 // numbers pods and objects
	over    chan struct{}
	// calm reports that the machines have come to rest: the kubelets of all that live are at work then.
	calm atomic.Bool

	// pending is the request by name that is not answered yet; the person's until the storm is over.
	pending *asked

	mu      sync.Mutex // guards the two below
	counts  map[string]int
	lenders map[int]*caliconode.Agent
	// absent are the names of lasting pods that do not exist now.
	absent []string

	lives, others sync.WaitGroup // of machines, and of all that works beside them
	slots         []*slot
	replicas      []*replica
}

// replica is one of the two.
type replica struct {
	*testkit.Process
	kubeconfig, etcd string
}

// Two replicas of the real program work beside machines that depart, join, join again in the middle of their clean-up and are renamed, while they
// are killed, put to sleep, and their servers freeze, and while a person asks for machines by name, that are gone or not. The history of Calico's
// etcd, change by change, must hold no removal of anything of a machine or of a sandbox that lived at that moment, nor of a pod that is gone for less
// than youngestLeftover; in the end nothing of machines and sandboxes that are gone may be left.
// MOORING_E2E_STORM_SECONDS makes it longer, MOORING_E2E_STORM_MACHINES adds machines that only exist.
func TestStorm(t *testing.T) { //nolint:paralleltest // its servers freeze, and it needs the machine for itself
	eachStorm(t, func(t *testing.T, kind apiconfig.DatastoreType, load load) {
		length := time.Duration(cases.FromEnv(t, "MOORING_E2E_STORM_SECONDS", 30)) * time.Second
		st := newStorm(t, kind, load)
		st.addIdle(min(number("MOORING_E2E_STORM_MACHINES", 0), mostIdle))
		st.startReplicas()
		st.populate()
		person := st.alongside(st.askByName)
		confirming := st.alongside(st.confirm)
		st.rage(length)
		st.end(person)
		t.Log("the storm is over")
		st.rest()
		confirming()
		st.report(st.judge())
	})
}

// A controller that removes at the first sight what has no Node or pod is found out by the same oracle.
func TestTheStormFindsANaiveController(t *testing.T) { //nolint:paralleltest // as above
	eachStorm(t, func(t *testing.T, kind apiconfig.DatastoreType, load load) {
		st := newStorm(t, kind, load)
		naive := st.alongside(st.beNaive)
		st.populate()
		defer st.end(naive)
		testkit.Eventually(t, "a naive controller to do wrong", func() string {
			<-time.After(5 * time.Second)
			o := st.judge()
			var found []string
			for _, words := range load.wrong[kind] {
				if i := slices.IndexFunc(o.violations, func(v string) bool { return strings.Contains(v, words) }); i >= 0 {
					found = append(found, o.violations[i])
				}
			}
			if len(found) < len(load.wrong[kind]) {
				return fmt.Sprintf("it had done %d wrongs in a history of %d writes: %q", len(o.violations), o.writes, o.violations)
			}
			t.Logf("it had done %d wrongs in a history of %d writes, such as %s", len(o.violations), o.writes, strings.Join(found, "; "))
			return ""
		})
	})
}

func newStorm(t *testing.T, kind apiconfig.DatastoreType, load load) *storm {
	t.Helper()
	st := &storm{
		site: newSiteIn(t, kind, controlplane.New(t), "storm"), load: load, truth: newTruth(), seed: cases.Seed(t), over: make(chan struct{}),
		counts: map[string]int{}, lenders: map[int]*caliconode.Agent{},
	}
	st.api.AllowPods(t, "default", "default")
	for i := range 4 * load.stays {
		st.absent = append(st.absent, fmt.Sprintf("web-%d", i))
	}
	t.Cleanup(st.others.Wait) // t.Context has ended then
	t.Cleanup(st.lives.Wait)
	st.history = newHistory(t, st.etcd.Client)
	st.alongside(st.history.record)
	if kind == apiconfig.Kubernetes {
		return st
	}
	t.Cleanup(func() { _ = st.compact(context.Background(), "storm") })
	// A bare-metal host that never was in Kubernetes is nobody's to remove.
	l := st.truth.born(st.name("metal"), st.history.began)
	_, err := st.calico.Start(t.Context(), caliconode.Host{Name: st.name("metal"), Address: netip.AddrFrom4([4]byte{172, 31, 1, 1})})
	st.must(err)
	l.started = st.etcd.Revision(t)
	return st
}

// alongside runs something until it is told to end, and has ended.
func (st *storm) alongside(run func(ctx context.Context)) (end func()) {
	ctx, cancel := context.WithCancel(st.t.Context())
	ended := make(chan struct{})
	st.others.Go(func() {
		defer close(ended)
		run(ctx)
	})
	return func() {
		cancel()
		<-ended
	}
}

func (st *storm) count(what string) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.counts[what]++
}

// revision is the store's, and false if the test is over.
func (st *storm) revision() (revision int64, ok bool) {
	ok = st.persist("reading the revision", func(ctx context.Context) error {
		answer, err := st.etcd.Client.Get(ctx, "any")
		if err == nil {
			revision = answer.Header.Revision
		}
		return err
	})
	return revision, ok
}

// populate lets the machines begin, and a clock tell when which revision was there.
func (st *storm) populate() {
	for i := range st.comers + st.stays {
		sl := st.newSlot(i, i >= st.comers)
		st.slots = append(st.slots, sl)
		st.lives.Go(sl.run)
	}
	st.alongside(func(ctx context.Context) {
		for ctx.Err() == nil {
			if revision, ok := st.revision(); ok {
				st.truth.with(func() { st.truth.clock = append(st.truth.clock, tick{revision, time.Now()}) })
			}
			for _, sl := range st.slots {
				host := st.name(fmt.Sprintf("stays%d", sl.number))
				if !sl.stays {
					if !st.calm.Load() || sl.life.until != 0 {
						continue
					}
					host = sl.name
				}
				if sl.kubeletDead.Load() {
					continue
				}
				attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
				_ = sl.beat(attempt, host) // the next one may work
				cancel()
			}
			st.sleep(ctx, 2*time.Second)
		}
	})
}

func (st *storm) newSlot(number int, stays bool) *slot {
	return &slot{storm: st, Rand: rand.New(rand.NewPCG(st.seed, uint64(number))), number: number, stays: stays, dead: map[string][]*stormPod{}}
}

// addIdle adds machines with pods, to which nothing happens.
func (st *storm) addIdle(machines int) {
	var adding errgroup.Group
	adding.SetLimit(8)
	for i := range machines {
		adding.Go(func() error {
			if sl := st.newSlot(100+i, false); !sl.join(sl.site.name(fmt.Sprintf("idle%d", i))) {
				return errors.New("an idle machine did not start")
			}
			return nil
		})
	}
	st.must(adding.Wait())
}

// slowly is a slow way to the datastore, as a kubeconfig of the product's or the URL of an etcd.
func (st *storm) slowly() (kubeconfig, etcd string) {
	st.t.Helper()
	if st.kind == apiconfig.EtcdV3 {
		return st.direct(), newRelay(st.t, st.etcd.Endpoint).url()
	}
	r := newRelay(st.t, st.api.Config.Host)
	r.delay /= 4 // all that a process asks goes this way
	return st.through("https" + strings.TrimPrefix(r.url(), "http")), ""
}

func (st *storm) startReplicas() {
	st.t.Helper()
	for range 2 {
		r := &replica{}
		r.kubeconfig, r.etcd = st.slowly()
		st.replicas = append(st.replicas, r)
		st.startReplica(r)
	}
}

func (st *storm) startReplica(r *replica) {
	st.t.Helper()
	r.Process = st.startAt(r.kubeconfig, r.etcd, elected("--grace-period=1s", "--resync-period=3s", "--sweep-period=5s", "--leftover-age="+youngestLeftover.String(),
		"--mass-guard-nodes=100000", "--mass-guard-window=1s", "--min-overlap-percent=0", "--also-remove=HostEndpoint,BGPPeer,IPAMHandle,PodLeftovers")...)
}

// revive starts replicas again that have ended by themselves, as Kubernetes would.
func (st *storm) revive() {
	st.t.Helper()
	for _, r := range st.replicas {
		select {
		case <-r.Done():
			st.count(st.whyEnded(r))
			st.startReplica(r)
		default:
		}
	}
}

// whyEnded says why a replica has ended by itself, and fails the test where it may not: it may when it has lost its lease, and when it cannot begin since a
// server is frozen.
func (st *storm) whyEnded(r *replica) string {
	st.t.Helper()
	output := r.Output()
	crashed := r.ExitCode() != 1 || strings.Contains(output, "panic:") || strings.Contains(output, "fatal error:")
	switch {
	case !crashed && strings.Contains(output, "leader election lost"):
		return "ends of a replica that lost its lease"
	case !crashed && !strings.Contains(output, `"Starting"`):
		return "starts of a replica that a frozen server prevented"
	}
	st.t.Fatalf("a replica ended by itself, with exit code %d:\n%s", r.ExitCode(), tail(r.Process))
	return ""
}

// rage disturbs replicas and servers at random for a time.
func (st *storm) rage(length time.Duration) {
	st.t.Helper()
	random := rand.New(rand.NewPCG(st.seed, 1<<32))
	some := func(low, high time.Duration) time.Duration {
		return low + time.Duration(random.Int64N(int64(high-low)))
	}
	for end := time.Now().Add(length); time.Now().Before(end) && !st.t.Failed(); {
		<-time.After(some(st.low, st.high))
		st.revive()
		r := st.replicas[random.IntN(2)]
		switch random.IntN(8) {
		case 0, 1, 2:
			st.count("kills")
			r.Kill()
			st.startReplica(r)
		case 3, 4:
			st.count("freezes of etcd")
			resume := st.freezeEtcd()
			<-time.After(some(300*time.Millisecond, 8*time.Second))
			if random.IntN(3) == 0 {
				st.count("kills")
				r.Kill()
				st.startReplica(r)
			}
			resume()
		case 5, 6:
			st.count("freezes of the API server")
			resume := st.api.Pause(st.t, "kube-apiserver")
			<-time.After(some(300*time.Millisecond, 8*time.Second))
			resume()
		case 7:
			st.count("replicas put to sleep")
			r.Signal(syscall.SIGSTOP)
			<-time.After(some(time.Second, 9*time.Second))
			r.Signal(syscall.SIGCONT)
		}
	}
}

func (st *storm) freezeEtcd() (resume func()) {
	st.t.Helper()
	if st.kind == apiconfig.Kubernetes {
		return st.api.Pause(st.t, "etcd")
	}
	st.etcd.Pause(st.t)
	return st.etcd.Resume
}

// end ends the machines' lives as they are, and what else runs.
func (st *storm) end(more func()) {
	close(st.over)
	more()
}

// rest lets the replicas work undisturbed until nothing is left of machines that are gone. Machines that were renamed while nobody could watch
// are named by a person, as their page says.
func (st *storm) rest() {
	st.t.Helper()
	st.lives.Wait()
	st.t.Log("the machines have come to rest")
	st.expectAnswer(st.pending) // by processes that were there when it was written, if there is one: what they have lost shows
	for _, r := range st.replicas {
		r.Kill()
		st.startReplica(r)
	}
	for _, sl := range st.slots {
		sl.returnAddresses()
	}
	st.calm.Store(true)
	alive, gone := st.truth.alive()
	began := time.Now()
	deadline, asked, fewest := time.Now().Add(10*time.Minute), time.Now(), math.MaxInt
	for n := 0; ; n++ {
		st.revive()
		left := st.leftOf(gone)
		if len(left) == 0 {
			break
		}
		if len(left) < fewest { // however slowly, it goes on
			deadline, fewest = time.Now().Add(10*time.Minute), len(left)
		}
		if time.Now().After(deadline) {
			st.t.Fatalf("after a rest this is left of machines and sandboxes that are gone:\n%s\nthe logs:\n%s\n%s", strings.Join(left[:min(len(left), 20)], "\n"),
				tail(st.replicas[0].Process), tail(st.replicas[1].Process))
		}
		if named := renamed(gone, alive); len(named) > 0 && time.Since(asked) > 20*time.Second {
			st.expectAnswer(st.forget(st.t.Context(), fmt.Sprintf("rest-%d", n), named[:min(len(named), 50)], time.Minute))
			asked = time.Now()
		}
		if n%20 == 0 {
			st.t.Logf("resting: %d keys are left of machines and sandboxes that are gone, such as %s", len(left), left[0])
		}
		<-time.After(time.Second)
	}
	st.t.Logf("nothing is left after a rest of %s", time.Since(began).Round(time.Second))
	st.expectAlive(alive)
}

// renamed are those that are gone whose other name lives.
func renamed(gone, alive []string) []string {
	return slices.DeleteFunc(slices.Clone(gone), func(name string) bool {
		short, full := strings.CutSuffix(name, stormDomain)
		return !slices.Contains(alive, short) && (full || !slices.Contains(alive, name+stormDomain))
	})
}

// leftOf lists what the datastore holds that names a machine of these, or a sandbox that is gone.
func (st *storm) leftOf(gone []string) []string {
	quoted := []string{"no machine"}
	for _, name := range gone {
		quoted = append(quoted, regexp.QuoteMeta(name))
	}
	names := regexp.MustCompile(`(^|[^0-9A-Za-z-])(` + strings.Join(quoted, "|") + `)($|[^0-9A-Za-z.-])`)
	containers := regexp.MustCompile(`[0-9a-f]{64}`)
	var left []string
	for key, value := range st.history.now() {
		text := key + " " + string(value)
		if names.MatchString(text) || slices.ContainsFunc(containers.FindAllString(text, -1), func(id string) bool { return st.truth.ended(handlePrefix + id) }) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}

// expectAlive fails unless each machine that lives has its Calico Node, without a fence in the end.
func (st *storm) expectAlive(alive []string) {
	st.t.Helper()
	if st.kind == apiconfig.Kubernetes {
		return // there is none to be fenced
	}
	testkit.Eventually(st.t, "no machine that lives to be fenced", func() string {
		dump := st.etcd.Dump(st.t)
		for _, name := range alive {
			switch node := dump[nodePrefix+name]; {
			case node == "":
				st.t.Fatalf("%s lives and has no Calico Node", name)
			case fenced(node):
				return name
			}
		}
		return ""
	})
}

// judge reads the history up to now.
func (st *storm) judge() *oracle {
	st.t.Helper()
	end := fmt.Sprint(stormEnd, st.next.Add(1))
	testkit.Eventually(st.t, "the end of the history", func() string {
		return st.within(func(ctx context.Context) error {
			_, err := st.etcd.Client.Put(ctx, end, "")
			return err
		})
	})
	o := &oracle{truth: st.truth, kubernetes: st.kind == apiconfig.Kubernetes}
	o.judge(st.history.until(st.t, end))
	return o
}

func (st *storm) report(o *oracle) {
	st.t.Helper()
	st.mu.Lock()
	defer st.mu.Unlock()
	var lines strings.Builder
	for _, what := range slices.Sorted(maps.Keys(st.counts)) {
		fmt.Fprintf(&lines, "%7d %s\n", st.counts[what], what)
	}
	fmt.Fprintf(&lines, "%7d writes to Calico's datastore\n%7d removals of machines that were gone\n%7d removals of leftovers of pods on machines that live\n",
		o.writes, o.removed, o.leftovers)
	fmt.Fprintf(&lines, "%7d violations", len(o.violations))
	st.t.Logf("the storm:\n%s", lines.String())
	for _, violation := range o.violations[:min(len(o.violations), 20)] {
		st.t.Error(violation)
	}
	if o.removed == 0 || o.leftovers == 0 {
		st.t.Error("nothing of machines, or nothing of pods, was removed: the replicas did no work")
	}
}

func unlessExists(err error) error {
	if _, exists := errors.AsType[cerrors.ErrorResourceAlreadyExists](err); exists {
		return nil
	}
	return err
}
