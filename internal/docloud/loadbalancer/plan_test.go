// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// stage is an account and one Service in memory, on which plans are carried out as package balancers does it.
type stage struct {
	in      loadbalancer.Input
	service *corev1.Service
	account map[string]loadbalancer.Observed
	memory  loadbalancer.Memory
	now     time.Time
	made    int
	// steps are all that were taken. After so many the process dies, without its memory; 0 for never.
	steps []loadbalancer.Step
	dies  int
	// reversed lists the account the other way around.
	reversed bool
	// lost reports that the next POST is not answered, whether it is made or refused; hides that lists do not show what there is.
	lost, hides bool
	// change is in what time settings may change once, 0 for no such limit.
	change time.Duration
	// meanwhile happens once, with the note of an attempt, nil for nothing.
	meanwhile func(*corev1.Service)
	// origin is when this program ran first in the cluster.
	origin time.Time
}

func newStage(in loadbalancer.Input) *stage {
	in.Service.Finalizers = []string{loadbalancer.Finalizer}
	return &stage{in: in, service: in.Service, account: map[string]loadbalancer.Observed{}, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// errDied is a process that has died.
var errDied = errors.New("died")

// pass makes one pass, and is errDied if the process did not live to its end.
func (s *stage) pass(t interface{ Fatalf(string, ...any) }, intent loadbalancer.Intent) (loadbalancer.End, error) {
	w := loadbalancer.World{
		Now: s.now, Intent: intent, Cluster: s.in.Cluster, Service: s.service, Services: []*corev1.Service{s.service}, Nodes: s.in.Nodes, Memory: s.memory,
		Pace: loadbalancer.Pace{ListAge: time.Second, Poll: time.Second, Pending: time.Second, Unanswered: time.Minute, CertificateAge: time.Minute, CertificateDoubt: time.Second, Change: s.change},
	}
	for range 30 {
		w.Stamp++
		plan := loadbalancer.MakePlan(w)
		again := loadbalancer.MakePlan(w)
		if !reflect.DeepEqual(plan, again) { // cmp is ten times as slow, and errors may differ in all but their text
			if diff := cmp.Diff(plan, again, cmp.Exporter(nothingHidden), cmp.Comparer(sameError)); diff != "" {
				t.Fatalf("the same world, another plan:\n%s", diff)
			}
		}
		w.Memory = plan.Memory
		switch {
		case plan.End != nil:
			s.memory = w.Memory
			return *plan.End, nil
		case plan.Step != nil:
			s.steps = append(s.steps, plan.Step)
			answer := s.take(plan.Step)
			if s.dies > 0 && len(s.steps) == s.dies {
				s.memory = loadbalancer.Memory{}
				return loadbalancer.End{}, errDied
			}
			w.Service, w.Answers = s.service, append(w.Answers, answer)
		default:
			s.read(&w, plan.Needs)
		}
	}
	t.Fatalf("the pass does not end: %d steps", len(s.steps))
	return loadbalancer.End{}, nil
}

func sameError(a, b error) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

func (s *stage) read(w *loadbalancer.World, needs loadbalancer.Needs) {
	if needs.Trust {
		w.Trust = &loadbalancer.Trust{}
	}
	if needs.Live {
		w.Service, w.Live = s.service, true
	}
	if needs.List != nil {
		w.List = loadbalancer.Reading[loadbalancer.Observed]{Met: needs.List, Items: s.list()}
	}
	if needs.Certificates != nil {
		w.Certificates = loadbalancer.Reading[loadbalancer.Certificate]{Met: needs.Certificates, Items: s.in.Certificates}
	}
	if needs.Droplets {
		w.Droplets.Met = &loadbalancer.Demand{}
	}
	if needs.Endpoints {
		w.Endpoints = &loadbalancer.Endpoints{Nodes: s.in.EndpointNodes}
	}
	if needs.Allowance {
		w.TakeOver = &loadbalancer.TakeOver{Since: s.origin}
	}
	if needs.ByID != "" {
		answer := loadbalancer.LookedUp{ID: needs.ByID}
		if lb, ok := s.account[needs.ByID]; ok {
			answer.Found = &lb
		}
		w.ByID = append(w.ByID, answer)
	}
	if needs.Again != nil {
		w.Again = needs.Again
	}
}

func (s *stage) list() []loadbalancer.Observed {
	var all []loadbalancer.Observed
	if s.hides {
		return nil
	}
	for _, id := range slices.Sorted(maps.Keys(s.account)) {
		all = append(all, s.account[id])
	}
	if s.reversed {
		slices.Reverse(all)
	}
	return all
}

// take does what a step says.
func (s *stage) take(step loadbalancer.Step) loadbalancer.Answer {
	answer := loadbalancer.Answer{Step: step}
	changed := s.service.DeepCopy()
	if changed.Annotations == nil {
		changed.Annotations = map[string]string{}
	}
	set := func(c metav1.Condition) {
		meta.RemoveStatusCondition(&changed.Status.Conditions, c.Type)
		meta.SetStatusCondition(&changed.Status.Conditions, c)
	}
	is := func(lb loadbalancer.Observed) { s.account[lb.ID], answer.LoadBalancer = lb, lb }
	switch step := step.(type) {
	case loadbalancer.Annotate:
		maps.Copy(changed.Annotations, step.Annotations)
	case loadbalancer.ShowStatus:
		changed.Status.LoadBalancer = step.Status
	case loadbalancer.DropAttempt:
		meta.RemoveStatusCondition(&changed.Status.Conditions, loadbalancer.ConditionAttempted)
	case loadbalancer.Record:
		meta.RemoveStatusCondition(&changed.Status.Conditions, loadbalancer.ConditionAttempted)
		set(step.Condition)
	case loadbalancer.SetCondition:
		set(step.Condition)
	case loadbalancer.NoteAttempt:
		set(step.Condition)
		if s.meanwhile != nil {
			s.meanwhile(changed)
			s.meanwhile = nil
		}
	case loadbalancer.Create:
		for _, other := range s.account {
			if other.Name == step.Request.Name {
				if s.lost {
					s.lost, answer.Trouble = false, &loadbalancer.Trouble{Err: errors.New("no response"), Kind: loadbalancer.Unanswered}
					return answer
				}
				answer.Trouble = &loadbalancer.Trouble{Err: errors.New("name is not unique"), Said: "name is not unique", Kind: loadbalancer.Refused}
				return answer
			}
		}
		s.made++
		lb := keeps(step.Request)
		lb.ID = fmt.Sprintf("00000000-0000-4000-8000-%012d", s.made)
		lb.IP, lb.CreatedAt = fmt.Sprintf("203.0.113.%d", s.made), s.now
		is(lb)
		if s.lost {
			s.lost = false
			answer.Trouble = &loadbalancer.Trouble{Err: errors.New("no response"), Kind: loadbalancer.Unanswered}
		}
	case loadbalancer.Update:
		now, lb := keeps(step.Request), step.LoadBalancer
		now.ID, now.IP, now.CreatedAt = lb.ID, lb.IP, lb.CreatedAt
		is(now)
	case loadbalancer.AddTargets:
		lb := step.LoadBalancer
		lb.DropletIDs = slices.Concat(lb.DropletIDs, step.Droplets)
		is(lb)
	case loadbalancer.RemoveTargets:
		lb := step.LoadBalancer
		lb.DropletIDs = slices.DeleteFunc(slices.Clone(lb.DropletIDs), func(id int) bool { return slices.Contains(step.Droplets, id) })
		is(lb)
	case loadbalancer.Delete:
		delete(s.account, step.LoadBalancer.ID)
	case loadbalancer.OrderCertificate:
	}
	s.service = changed
	return answer
}

// writes counts the steps that change something at DigitalOcean.
func writes(steps []loadbalancer.Step) int {
	n := 0
	for _, step := range steps {
		switch step.(type) {
		case loadbalancer.Annotate, loadbalancer.NoteAttempt, loadbalancer.DropAttempt, loadbalancer.ShowStatus,
			loadbalancer.SetCondition, loadbalancer.Record:
		default:
			n++
		}
	}
	return n
}

// drawStage draws a cluster and an account in which others have load balancers too, some in the way: another cluster's, made by hand, or left by a
// Service that is gone, with the very rules and machines of this one.
func drawStage(t *rapid.T) *stage {
	s := newStage(drawInput(t))
	s.in.Nodes = nodes(v4(1), v4(2), v4(3))
	for i, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"web", "shop", defName, "z"}), 0, 3, rapid.ID[string]).Draw(t, "names of others") {
		id := fmt.Sprintf("others-%d", i)
		other := lb(id, name, theirs(), 9)
		if name != defName && rapid.Bool().Draw(t, "looks like ours") {
			other = lb(id, name, rapid.SampledFrom([][]string{mine(), nil, {}}).Draw(t, "tags"), 1)
			if result, err := loadbalancer.Desired(s.in); err == nil {
				other.ForwardingRules = result.Request.ForwardingRules
			}
		}
		s.account[id] = other
	}
	// One whose name is made of the Service's UID was made for it, no matter who has tagged it since.
	if rapid.Bool().Draw(t, "names another's") && s.account["others-0"].Name != defName {
		s.service.Annotations[annotation.LoadBalancerID] = "others-0"
	}
	return s
}

// settle makes passes until nothing is left to do, and says how many it took.
func (s *stage) settle(t interface{ Fatalf(string, ...any) }) (loadbalancer.End, int) {
	for n := 1; n <= 8; n++ {
		before := len(s.steps)
		end, err := s.pass(t, loadbalancer.Keep)
		s.now = s.now.Add(2 * time.Minute) // longer than an unanswered POST is waited for
		if err == nil && len(s.steps) == before {
			return end, n
		}
		if n := writes(s.steps[before:]); n > 1 {
			t.Fatalf("one pass makes %d changes: %+v", n, s.steps[before:])
		}
	}
	t.Fatalf("it does not converge: %+v", s.steps)
	return loadbalancer.End{}, 0
}

// untouched fails if anything of others' was changed.
func (s *stage) untouched(t *rapid.T, before map[string]loadbalancer.Observed) {
	for id, was := range before {
		if diff := cmp.Diff(was, s.account[id]); diff != "" {
			t.Fatalf("what is another cluster's was changed:\n%s", diff)
		}
	}
	ours := len(s.account) - len(before)
	if ours > 1 {
		t.Fatalf("%d load balancers for one Service: %v", ours, slices.Sorted(maps.Keys(s.account)))
	}
}

// Whatever the Service asks for and whatever else is in the account: passes come to an end at which nothing is left to do, one change at a
// time; what is others' stays as it is; and the order in which things are listed makes no difference.
func TestPlansConvergeModestlyInAnyOrder(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		s := drawStage(t)
		others := maps.Clone(s.account)
		mirror := &stage{in: s.in, service: s.service.DeepCopy(), account: maps.Clone(s.account), now: s.now, reversed: true}
		s.lost = rapid.Bool().Draw(t, "the first answer is lost")
		mirror.lost = s.lost
		end, _ := s.settle(t)
		mirrored, _ := mirror.settle(t)
		if diff := cmp.Diff(s.steps, mirror.steps, cmp.Exporter(nothingHidden)); diff != "" || end.Outcome != mirrored.Outcome {
			t.Fatalf("listed the other way around (%s, %s):\n%s", end.Outcome, mirrored.Outcome, diff)
		}
		s.untouched(t, others)
		if end.Refusal == nil && (end.LoadBalancer == nil || s.service.Annotations[annotation.LoadBalancerID] != end.LoadBalancer.ID ||
			len(s.service.Status.LoadBalancer.Ingress) == 0) {
			t.Fatalf("nothing is left to do, and the Service does not show it: %+v, %+v", end, s.service)
		}
		gone, err := s.pass(t, loadbalancer.Remove)
		if s.untouched(t, others); err != nil || gone.Refusal != nil || len(s.account) != len(others) {
			t.Fatalf("at the end of the Service: %+v, %v, %d load balancers of %d", gone, err, len(s.account), len(others))
		}
	})
}

// A process that dies after any step leaves what the next one finishes, with the same result and nothing paid for twice.
func TestPlansAreSafeAtEveryPrefix(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		s := drawStage(t)
		others := maps.Clone(s.account)
		whole := &stage{in: s.in, service: s.service.DeepCopy(), account: maps.Clone(s.account), now: s.now}
		want, _ := whole.settle(t)
		if len(whole.steps) == 0 {
			return
		}
		s.dies = rapid.IntRange(1, len(whole.steps)).Draw(t, "dies after")
		got, _ := s.settle(t)
		s.untouched(t, others)
		if got.Outcome != want.Outcome || len(s.account) != len(whole.account) {
			t.Fatalf("%s with %d load balancers, without a death %s with %d: %+v", got.Outcome, len(s.account), want.Outcome, len(whole.account), s.steps)
		}
		if diff := cmp.Diff(whole.service.Annotations, s.service.Annotations); diff != "" {
			t.Fatalf("other annotations after a death:\n%s", diff)
		}
	})
}

// A Node that comes is one call that adds it, and deleting the Service is one call that deletes its own load balancer.
func TestPlansAreMinimal(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		s := drawStage(t)
		others := maps.Clone(s.account)
		if end, _ := s.settle(t); end.Refusal != nil {
			return
		}
		pods := s.in.EndpointNodes
		pods["node-4"] = pods["node-1"] || pods["node-2"] || pods["node-3"] // without a pod it is not a target where others have one
		s.in.Nodes, s.steps = nodes(v4(1), v4(2), v4(3), v4(4)), nil
		s.settle(t)
		if add, ok := s.steps[0].(loadbalancer.AddTargets); len(s.steps) != 1 || !ok || !slices.Equal(add.Droplets, []int{4}) {
			t.Fatalf("one Node has come: %+v", s.steps)
		}
		s.steps = nil
		end, err := s.pass(t, loadbalancer.Remove)
		if err != nil || end.Outcome != loadbalancer.OutcomeDeleted || len(s.steps) != 1 {
			t.Fatalf("%+v, %v: %+v", end, err, s.steps)
		}
		s.untouched(t, others)
		if len(s.account) != len(others) {
			t.Fatalf("left behind: %v", slices.Sorted(maps.Keys(s.account)))
		}
	})
}

// nothingHidden compares unexported fields too.
func nothingHidden(reflect.Type) bool { return true }

// A failure is told once, whatever identifiers are in its text, until it is over or another one, and again before the event of it expires.
func TestAFailureIsToldOnce(t *testing.T) {
	t.Parallel()
	w := loadbalancer.World{Now: time.Unix(1e9, 0), Asked: true, Service: &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}}
	look := func(after time.Duration, said, text string) []loadbalancer.Note {
		w.Now = w.Now.Add(after)
		w.List = loadbalancer.Reading[loadbalancer.Observed]{Met: &loadbalancer.Demand{}, Trouble: &loadbalancer.Trouble{Err: errors.New(text), Said: said}}
		plan := loadbalancer.MakePlan(w)
		w.Memory = plan.Memory
		if plan.End == nil || plan.End.Refusal == nil || plan.End.Refusal.Kind != loadbalancer.Retry {
			t.Fatalf("end: %+v", plan.End)
		}
		return plan.Said
	}
	expect := func(when string, got []loadbalancer.Note, want ...loadbalancer.Note) {
		t.Helper()
		if !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	sync := func(text string) loadbalancer.Note {
		return loadbalancer.Note{Kind: corev1.EventTypeWarning, Reason: "SyncLoadBalancerFailed", Message: "Error syncing load balancer: failed to ensure load balancer: listing load balancers: " + text}
	}
	expect("at first", look(0, "in trouble", "500 in trouble, request a"), sync("500 in trouble, request a"))
	expect("again", look(5*time.Second, "in trouble", "500 in trouble, request b"))
	w.Asked = false
	expect("again, by itself", look(40*time.Minute, "in trouble", "500 in trouble, request c"))
	expect("another one", look(0, "tired", "500 tired"), loadbalancer.Note{Kind: corev1.EventTypeWarning, Reason: "UpdateLoadBalancerFailed", Message: "listing load balancers: 500 tired"})
	w.Asked = true
	expect("nearly an hour later", look(55*time.Minute, "tired", "500 tired"), sync("500 tired"))
	w.Intent = loadbalancer.Remove
	expect("at the end of the Service, of which the framework tells", look(55*time.Minute, "tired", "500 tired"))
}

// A POST without a response is repeated under its own name, whatever the Service is called by then: DigitalOcean refuses it if the first one made
// the load balancer, however long its lists hide it. What is not sure is not said to be gone when the Service is deleted.
func TestALoadBalancerThatListsHideIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	s := newStage(input(service(annotation.Name, "old")))
	s.lost, s.hides = true, true
	retried := func(when string) {
		t.Helper()
		if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal == nil {
			t.Fatalf("%s: %+v, %v", when, end, err)
		}
	}
	retried("no response")
	s.service.Annotations[annotation.Name] = "new"
	s.now = s.now.Add(10 * time.Minute)
	retried("the name is taken")
	if last, _ := s.steps[len(s.steps)-1].(loadbalancer.Create); last.Request.Name != "old" || len(s.account) != 1 {
		t.Fatalf("%+v, %d load balancers", last, len(s.account))
	}
	s.now = s.now.Add(10 * time.Minute)
	if end, err := s.pass(t, loadbalancer.Remove); err != nil || end.Refusal == nil {
		t.Errorf("the Service is gone and leaves one behind: %+v, %v", end, err)
	}
	s.hides = false
	if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal != nil || end.LoadBalancer.Name != "new" || len(s.account) != 1 {
		t.Errorf("%+v, %v, %d load balancers", end, err, len(s.account))
	}
}

// Whose a load balancer is stands in the status before the annotation names it: who comes after a death finds a proof, whatever the Service is
// called by then, and deletes it with the Service.
func TestARenameAfterADeathKeepsTheLoadBalancer(t *testing.T) {
	t.Parallel()
	for dies := 1; ; dies++ {
		s := newStage(input(service(annotation.Name, "first")))
		s.dies = dies
		if _, err := s.pass(t, loadbalancer.Keep); err == nil {
			break // it needs no more steps
		}
		s.service.Annotations[annotation.Name] = "second"
		end, _ := s.settle(t)
		if end.Refusal != nil || len(s.account) != 1 || loadbalancer.HandedOver(s.service, *end.LoadBalancer) {
			t.Errorf("died after %s: %+v, %d load balancers", s.steps[dies-1], end, len(s.account))
		}
		s.memory = loadbalancer.Memory{} // it dies again
		s.service.Annotations[annotation.Name] = "third"
		if end, err := s.pass(t, loadbalancer.Remove); err != nil || end.Outcome != loadbalancer.OutcomeDeleted {
			t.Errorf("died after %s, then deleted: %+v, %v", s.steps[dies-1], end, err)
		}
	}
}

// A request is sent under the name that was noted for it, even if the Service got another name with the note: who comes
// after a death knows what it made.
func TestARenameWithTheNoteOfAnAttemptKeepsTheLoadBalancer(t *testing.T) {
	t.Parallel()
	s := newStage(input(service(annotation.Name, "old")))
	s.lost, s.hides = true, true
	s.meanwhile = func(now *corev1.Service) { now.Annotations[annotation.Name] = "new" }
	if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal == nil || len(s.account) != 1 {
		t.Fatalf("%+v, %v, %d load balancers", end, err, len(s.account))
	}
	s.memory, s.hides = loadbalancer.Memory{}, false // it dies
	if end, _ := s.settle(t); end.Refusal != nil || len(s.account) != 1 {
		t.Errorf("%+v, %d load balancers", end, len(s.account))
	}
}

// A load balancer that lists hide is the Service's when they show it, although another request of its name was not
// answered either, long after it was made. What a person made before both is not.
func TestAnUnansweredRepetitionKeepsTheFirstAttempt(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		created time.Duration
		want    bool
	}{{"by the first request", 0, true}, {"before it", -10 * time.Minute, false}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newStage(input(service(annotation.Name, "web")))
			s.hides = true
			for range 2 {
				s.lost = true
				if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal == nil {
					t.Fatalf("%+v, %v", end, err)
				}
				s.now = s.now.Add(10 * time.Minute)
			}
			s.hides, s.lost = false, false
			for id, lb := range s.account {
				lb.CreatedAt = lb.CreatedAt.Add(c.created)
				s.account[id] = lb
			}
			end, err := s.pass(t, loadbalancer.Keep)
			if got := end.LoadBalancer != nil; err != nil || got != c.want {
				t.Errorf("%+v, %v: is the Service's: %t, want %t", end, err, got, c.want)
			}
		})
	}
}

// What a request without a response has made is the Service's also in a pass that began with the Service as it was
// before the note of the attempt, and that has to read something else first.
func TestAnOldViewOfTheServiceDoesNotForgetAnAttempt(t *testing.T) {
	t.Parallel()
	s := newStage(input(service(annotation.Name, "web")))
	s.in.Nodes = nodes(v4(1), node(0)) // for one that is not initialized yet, droplets are listed
	before := s.service
	s.lost, s.hides = true, true
	if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal == nil {
		t.Fatalf("%+v, %v", end, err)
	}
	s.service, s.hides = before, false
	if end, err := s.pass(t, loadbalancer.Keep); err != nil || end.Refusal != nil || end.LoadBalancer == nil {
		t.Errorf("%+v, %v", end, err)
	}
	if len(s.memory.Attempted) > 0 {
		t.Errorf("it is recorded, and %+v are still in doubt", s.memory.Attempted)
	}
}
