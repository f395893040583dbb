// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
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
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

const (
	// stormSlots are machines that come and go, stormStays those that stay.
	stormSlots, stormStays = 8, 3
	// stormEnd begins the keys with which the history ends when it is read.
	stormEnd = "/e2e/storm-end-"
	// answered begins the names of counters of answers.
	answered = "requests answered "
)

// storm is a cluster of machines that come and go at random, and what disturbs those that clean up after them.
type storm struct {
	*site
	truth *truth
	seed  uint64
	next  atomic.Int64 // numbers pods and objects
	over  chan struct{}
	began int64

	// pending is the request by name that is not answered yet; the person's until the storm is over.
	pending *asked

	mu      sync.Mutex // guards the two below
	counts  map[string]int
	lenders map[int]*caliconode.Agent

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
// etcd, change by change, must hold no removal of anything of a machine or pod that lived at that moment; in the end nothing of machines that are
// gone may be left. What pods left on machines that stay is younger than its 15 minutes, and must stay as well: that it goes later, other tests show.
// MOORING_E2E_STORM_SECONDS makes it longer.
func TestStorm(t *testing.T) { //nolint:paralleltest // its servers freeze, and it needs the machine for itself
	if testing.Short() {
		t.Skip("it takes minutes; make e2e runs it")
	}
	length := time.Duration(cases.FromEnv(t, "MOORING_E2E_STORM_SECONDS", 60)) * time.Second
	st := newStorm(t)
	st.startReplicas()
	st.populate()
	person := st.alongside(st.askByName)
	st.rage(length)
	st.end(person)
	t.Log("the storm is over")
	st.rest()
	st.report(st.judge())
}

// A controller that removes at the first sight what has no Node is found out by the same oracle.
func TestTheStormFindsANaiveController(t *testing.T) { //nolint:paralleltest // as above
	if testing.Short() {
		t.Skip("it takes a minute; make e2e runs it")
	}
	st := newStorm(t)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, newRelay(t, st.etcd.Endpoint).url()
	store, err := caliconode.Connect(*config)
	st.must(err)
	defer func() { _ = store.Close() }()
	naive := st.alongside(func(ctx context.Context) { st.beNaive(ctx, store.Client()) })
	st.populate()
	defer st.end(naive)
	testkit.Eventually(t, "a naive controller to do wrong to a Node, and to a block or an address", func() string {
		<-time.After(5 * time.Second)
		o := st.judge()
		node := slices.IndexFunc(o.violations, func(v string) bool { return strings.Contains(v, nodePrefix) })
		ipam := slices.IndexFunc(o.violations, func(v string) bool { return strings.Contains(v, ipamPrefix) })
		if node < 0 || ipam < 0 {
			return fmt.Sprintf("it had done %d wrongs in a history of %d writes: %q", len(o.violations), o.writes, o.violations)
		}
		t.Logf("it had done %d wrongs in a history of %d writes, such as %s; %s", len(o.violations), o.writes, o.violations[node], o.violations[ipam])
		return ""
	})
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	seed := cases.Seed(t)
	st := &storm{
		site: newSite(t, controlplane.New(t), "storm"), truth: newTruth(), seed: seed, over: make(chan struct{}), counts: map[string]int{},
		lenders: map[int]*caliconode.Agent{},
	}
	st.api.AllowPods(t, "default", "default")
	st.began = st.etcd.Revision(t)
	// A bare-metal host that never was in Kubernetes is nobody's to remove.
	l := st.truth.born(st.name("metal"), st.began)
	_, err := st.calico.Start(t.Context(), caliconode.Host{Name: st.name("metal"), Address: netip.AddrFrom4([4]byte{172, 30, 1, 1})})
	st.must(err)
	l.started = st.etcd.Revision(t)
	t.Cleanup(st.others.Wait) // t.Context has ended then
	t.Cleanup(st.lives.Wait)
	t.Cleanup(func() { _ = st.compact(context.Background(), "storm") })
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
	for i := range stormSlots + stormStays {
		sl := &slot{storm: st, Rand: rand.New(rand.NewPCG(st.seed, uint64(i))), number: i, stays: i >= stormSlots, dead: map[string][]*stormPod{}}
		st.slots = append(st.slots, sl)
		st.lives.Go(sl.run)
	}
	st.alongside(func(ctx context.Context) {
		for ctx.Err() == nil {
			if revision, ok := st.revision(); ok {
				st.truth.with(func() { st.truth.clock = append(st.truth.clock, tick{revision, time.Now()}) })
			}
			for _, sl := range st.slots[stormSlots:] {
				attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
				_ = sl.beat(attempt, st.name(fmt.Sprintf("stays%d", sl.number))) // the next one may work
				cancel()
			}
			select {
			case <-ctx.Done():
			case <-time.After(2 * time.Second):
			}
		}
	})
}

func (st *storm) startReplicas() {
	st.t.Helper()
	for range 2 {
		r := &replica{kubeconfig: st.direct(), etcd: newRelay(st.t, st.etcd.Endpoint).url()}
		st.replicas = append(st.replicas, r)
		st.startReplica(r)
	}
}

func (st *storm) startReplica(r *replica) {
	st.t.Helper()
	r.Process = st.startAt(r.kubeconfig, r.etcd, elected("--grace-period=1s", "--resync-period=3s", "--sweep-period=10s",
		"--mass-guard-nodes=100000", "--min-overlap-percent=0", "--also-remove=HostEndpoint,BGPPeer,PodLeftovers")...)
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
		<-time.After(some(500*time.Millisecond, 4*time.Second))
		st.revive()
		r := st.replicas[random.IntN(2)]
		switch random.IntN(8) {
		case 0, 1, 2:
			st.count("kills")
			r.Kill()
			st.startReplica(r)
		case 3, 4:
			st.count("freezes of etcd")
			st.etcd.Pause(st.t)
			<-time.After(some(300*time.Millisecond, 8*time.Second))
			if random.IntN(3) == 0 {
				st.count("kills")
				r.Kill()
				st.startReplica(r)
			}
			st.etcd.Resume()
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

// end ends the machines' lives as they are, and what else runs.
func (st *storm) end(more func()) {
	close(st.over)
	more()
}

// askByName is a person who asks the controller to forget machines, whatever has become of them, and waits for each answer.
func (st *storm) askByName(ctx context.Context) {
	random := rand.New(rand.NewPCG(st.seed, 1<<33))
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(5 * time.Second)))):
		}
		alive, gone := st.truth.alive()
		all := slices.Concat(alive, gone)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		valid := time.Duration(5+random.IntN(56)) * time.Second
		for st.pending = st.forget(ctx, fmt.Sprintf("storm-%d", n), all[:min(len(all), 1+random.IntN(4))], valid); st.pending != nil && !st.isAnswered(st.pending); {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
		st.pending = nil
	}
}

// asked is a request by name.
type asked struct {
	id    string
	names []string
	at    time.Time
}

// forget asks for machines by name, however long servers freeze. There is one request at a time: the next one may be written when this one is answered.
func (st *storm) forget(ctx context.Context, id string, names []string, valid time.Duration) *asked {
	request := &asked{id: id, names: names, at: time.Now()}
	text, err := json.Marshal(controller.Request{ID: id, Verb: controller.VerbForget, Names: names, Until: request.at.Add(valid)})
	if err != nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodesync.RequestAnnotation: string(text)}}})
	if err != nil {
		return nil
	}
	written := false
	st.persist("asking for machines by name", func(attempt context.Context) error {
		select {
		case <-ctx.Done(): // the storm is over
			return nil
		default:
		}
		_, err := st.api.Client.CoreV1().ConfigMaps(st.namespace).Patch(attempt, controller.StateName, types.MergePatchType, patch, metav1.PatchOptions{})
		written = err == nil
		return err
	})
	if !written {
		return nil
	}
	st.count("requests by name")
	return request
}

// isAnswered reports whether a request has its last answer, and counts that.
func (st *storm) isAnswered(request *asked) bool {
	ctx, cancel := context.WithTimeout(st.t.Context(), 20*time.Second)
	defer cancel()
	state, err := st.api.Client.CoreV1().ConfigMaps(st.namespace).Get(ctx, controller.StateName, metav1.GetOptions{})
	if err != nil {
		return false
	}
	answer := controller.ParseAnswer(state.Annotations[nodesync.AnswerAnnotation])
	if answer.ID != request.id || !answer.Final() {
		return false
	}
	st.count(answered + answer.State)
	why := slices.DeleteFunc(answer.Lines, func(line string) bool { return strings.HasPrefix(line, "done: ") })
	st.t.Logf("request %s for %q: %s after %s: %.300q", request.id, request.names, answer.State, time.Since(request.at).Round(time.Second), strings.Join(why, "; "))
	return true
}

// expectAnswer fails unless a request is answered, now that it is calm.
func (st *storm) expectAnswer(request *asked) {
	st.t.Helper()
	if request == nil {
		return
	}
	testkit.Eventually(st.t, fmt.Sprintf("an answer to request %s for %q", request.id, request.names), func() string {
		st.revive()
		if !st.isAnswered(request) {
			<-time.After(500 * time.Millisecond)
			return "there is none:\n" + tail(st.replicas[0].Process) + "\n" + tail(st.replicas[1].Process)
		}
		return ""
	})
}

// beNaive is the controller that anybody would write first.
func (st *storm) beNaive(ctx context.Context, store clientv3.Interface) {
	for ctx.Err() == nil {
		list, err := store.Nodes().List(ctx, options.ListOptions{})
		if err != nil {
			continue
		}
		for _, node := range list.Items {
			_, err := st.api.Client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
			if len(node.Spec.OrchRefs) > 0 && apierrors.IsNotFound(err) {
				_, _ = store.Nodes().Delete(ctx, node.Name, options.DeleteOptions{})
			}
		}
	}
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
	alive, gone := st.truth.alive()
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
			st.t.Fatalf("after a rest this is left of machines that are gone:\n%s\nthe logs:\n%s\n%s", strings.Join(left[:min(len(left), 20)], "\n"),
				tail(st.replicas[0].Process), tail(st.replicas[1].Process))
		}
		if named := renamed(gone, alive); len(named) > 0 && time.Since(asked) > 20*time.Second {
			st.expectAnswer(st.forget(st.t.Context(), fmt.Sprintf("rest-%d", n), named[:min(len(named), 50)], time.Minute))
			asked = time.Now()
		}
		if n%20 == 0 {
			st.t.Logf("resting: %d keys are left of machines that are gone, such as %s", len(left), left[0])
		}
		<-time.After(time.Second)
	}
	st.expectAlive(alive)
}

// renamed are those that are gone whose other name lives.
func renamed(gone, alive []string) []string {
	return slices.DeleteFunc(slices.Clone(gone), func(name string) bool {
		short, full := strings.CutSuffix(name, stormDomain)
		return !slices.Contains(alive, short) && (full || !slices.Contains(alive, name+stormDomain))
	})
}

// leftOf lists what the datastore holds that names a machine of these.
func (st *storm) leftOf(gone []string) []string {
	st.t.Helper()
	if len(gone) == 0 {
		return nil
	}
	quoted := make([]string, len(gone))
	for i, name := range gone {
		quoted[i] = regexp.QuoteMeta(name)
	}
	names := regexp.MustCompile(`(^|[^0-9A-Za-z-])(` + strings.Join(quoted, "|") + `)($|[^0-9A-Za-z.-])`)
	var left []string
	for key, value := range st.etcd.Dump(st.t) {
		if names.MatchString(key) || names.MatchString(value) {
			left = append(left, key)
		}
	}
	slices.Sort(left)
	return left
}

// expectAlive fails unless each machine that lives has its Calico Node, without a fence in the end.
func (st *storm) expectAlive(alive []string) {
	st.t.Helper()
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
	o := &oracle{truth: st.truth}
	st.must(o.judge(st.t.Context(), st.etcd.Client, st.began, end))
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
	fmt.Fprintf(&lines, "%7d writes to Calico's etcd\n%7d removals of machines that were gone\n%7d removals of leftovers of pods on machines that live, which are too young in a short storm\n",
		o.writes, o.removed, o.leftovers)
	fmt.Fprintf(&lines, "%7d violations", len(o.violations))
	st.t.Logf("the storm:\n%s", lines.String())
	for _, violation := range o.violations[:min(len(o.violations), 20)] {
		st.t.Error(violation)
	}
	if o.removed == 0 {
		st.t.Error("nothing of machines that were gone was removed: the replicas did no work")
	}
}

func unlessExists(err error) error {
	if _, exists := errors.AsType[cerrors.ErrorResourceAlreadyExists](err); exists {
		return nil
	}
	return err
}
