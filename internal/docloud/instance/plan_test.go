// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

var (
	start = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ours  = instance.Account{UUID: "ours"}
	other = instance.Account{UUID: "other"}
)

// trusted is a World of three Nodes, 1 to 3, of which the list holds 1 and 2; 3 was asked for and responded with 404.
func trusted() instance.World {
	return instance.World{
		Now: start, Recorded: ours, Current: ours,
		Nodes:   []*corev1.Node{node("n3", providerid.Format(3)), node("n1", providerid.Format(1)), node("n2", providerid.Format(2))},
		List:    instance.List{At: start, Complete: true, Droplets: []int{1, 2}},
		Answers: map[int]instance.Answer{3: {At: start, Outcome: instance.AnswerNotFound}},
	}
}

func existences(d instance.Plan) string {
	words := make([]string, len(d.Verdicts))
	for i, v := range d.Verdicts {
		words[i] = v.Node + " " + string(v.Existence)
		if v.Reason != "" {
			words[i] += " (" + string(v.Reason) + ")"
		}
	}
	return strings.Join(words, ", ")
}

func TestPlan(t *testing.T) {
	t.Parallel()
	type world = instance.World
	for name, tt := range map[string]struct {
		change  func(*world)
		want    string
		trust   instance.Trust
		message string
		refresh bool
		ask     []int
		record  bool
		says    string // the message of the last verdict
	}{
		"gone": {
			want: "n1 exists, n2 exists, n3 gone", trust: instance.Trusted,
		},
		"the list alone is not proof": {
			change: func(w *world) { w.Answers = nil },
			want:   "n1 exists, n2 exists, n3 unknown (answer)", trust: instance.Trusted, ask: []int{3},
			says: "droplet 3 is not in the list, and was not read by ID since",
		},
		"a failed answer is none": {
			change: func(w *world) {
				w.Answers[3] = instance.Answer{At: start, Outcome: instance.AnswerFailed, Problem: "429"}
			},
			want: "n1 exists, n2 exists, n3 unknown (answer)", trust: instance.Trusted, ask: []int{3},
			says: "droplet 3 is not in the list, and reading it failed: 429",
		},
		"an old 404 is none": {
			change: func(w *world) {
				w.Answers[3] = instance.Answer{At: start.Add(-2*time.Minute - time.Second), Outcome: instance.AnswerNotFound}
			},
			want: "n1 exists, n2 exists, n3 unknown (answer)", trust: instance.Trusted, ask: []int{3},
			says: "droplet 3 was not found by ID, but that is longer than 2m0s ago",
		},
		"a partial list proves nothing, the answer notwithstanding": {
			change: func(w *world) { w.List.Complete = false },
			want:   "n1 exists, n2 exists, n3 unknown (list)", trust: instance.Trusted, refresh: true,
			says: "droplet 3: the list of droplets is not complete, so that a missing droplet proves nothing",
		},
		"nor does an old one": {
			change: func(w *world) { w.List.At = start.Add(-5*time.Minute - time.Second) },
			want:   "n1 exists, n2 exists, n3 unknown (list)", trust: instance.Trusted, refresh: true,
			says: "droplet 3: the list of droplets is older than 5m0s",
		},
		"a list that still has it must be read again": {
			change: func(w *world) {
				w.List.Droplets = []int{1, 2, 3}
				w.List.At = start.Add(-time.Minute)
			},
			want: "n1 exists, n2 exists, n3 unknown (list)", trust: instance.Trusted, refresh: true,
			says: "droplet 3 is not found by ID, but the list before that still held it",
		},
		"a list that has it again wins": {
			change: func(w *world) {
				w.List.Droplets = []int{1, 2, 3}
				w.Answers[3] = instance.Answer{At: start.Add(-time.Minute), Outcome: instance.AnswerNotFound}
			},
			want: "n1 exists, n2 exists, n3 exists", trust: instance.Trusted,
		},
		"found by ID though not in the list yet": {
			change: func(w *world) { w.Answers[3] = instance.Answer{At: start, Outcome: instance.AnswerFound} },
			want:   "n1 exists, n2 exists, n3 exists", trust: instance.Trusted,
		},
		"found before the list that lacks it": {
			change: func(w *world) {
				w.Answers[3] = instance.Answer{At: start.Add(-time.Second), Outcome: instance.AnswerFound}
			},
			want: "n1 exists, n2 exists, n3 unknown (answer)", trust: instance.Trusted, ask: []int{3},
		},
		"another account": {
			change:  func(w *world) { w.Current = other },
			want:    "n1 unknown (account), n2 unknown (account), n3 unknown (account)",
			trust:   instance.AnotherAccount,
			message: "the token is one of account other, but this cluster's droplets are in account ours: nothing is deleted; give a token of that account",
		},
		"another team of the same user": {
			change:  func(w *world) { w.Current = instance.Account{UUID: "ours", Team: "t"} },
			want:    "n1 unknown (account), n2 unknown (account), n3 unknown (account)",
			trust:   instance.AnotherAccount,
			message: "the token is one of account ours (team t), but this cluster's droplets are in account ours: nothing is deleted; give a token of that account",
		},
		"the account could not be read": {
			change:  func(w *world) { w.Current = instance.Account{} },
			want:    "n1 exists, n2 exists, n3 unknown (account)",
			trust:   instance.Unverified,
			message: "the account of the token could not be read: nothing is deleted",
		},
		"nothing visible": {
			change: func(w *world) {
				w.List.Droplets = []int{77}
				w.Answers[1] = instance.Answer{At: start, Outcome: instance.AnswerNotFound}
			},
			want:    "n1 unknown (nothing-visible), n2 unknown (nothing-visible), n3 unknown (nothing-visible)",
			trust:   instance.NothingVisible,
			message: "none of the cluster's 3 known droplets is visible to the token of account ours: nothing is deleted; check the token and its scopes",
			refresh: true, ask: []int{2},
		},
		"an old sight is not a sight": {
			change: func(w *world) {
				w.List.Droplets = nil
				w.Answers[1] = instance.Answer{At: start.Add(-time.Hour), Outcome: instance.AnswerFound}
			},
			want:    "n1 unknown (nothing-visible), n2 unknown (nothing-visible), n3 unknown (nothing-visible)",
			trust:   instance.NothingVisible,
			message: "none of the cluster's 3 known droplets is visible to the token of account ours: nothing is deleted; check the token and its scopes",
			refresh: true, ask: []int{1, 2},
		},
		"a droplet that is not a Node any more is a witness": {
			change: func(w *world) {
				w.Known = []int{9}
				w.List.Droplets = []int{9}
			},
			want: "n1 unknown (answer), n2 unknown (answer), n3 gone", trust: instance.Trusted, ask: []int{1, 2},
		},
		"nothing was read yet": {
			change:  func(w *world) { w.List, w.Answers = instance.List{}, nil },
			want:    "n1 unknown (list), n2 unknown (list), n3 unknown (list)",
			trust:   instance.Unverified,
			message: "none of the cluster's droplets is visible, but there is no complete list of droplets either: nothing is deleted",
			refresh: true,
		},
		"the first start records the account": {
			change: func(w *world) { w.Recorded = instance.Account{} },
			want:   "n1 exists, n2 exists, n3 gone", trust: instance.Trusted, record: true,
		},
		"the first start with a token of another account records nothing": {
			change: func(w *world) {
				w.Recorded = instance.Account{}
				w.List.Droplets = nil
			},
			want:    "n1 unknown (nothing-visible), n2 unknown (nothing-visible), n3 unknown (nothing-visible)",
			trust:   instance.NothingVisible,
			message: "none of the cluster's 3 known droplets is visible to the token of account ours: nothing is deleted; check the token and its scopes",
			refresh: true, ask: []int{1, 2},
		},
		"a cluster without Nodes records nothing": {
			change: func(w *world) { w.Recorded, w.Nodes = instance.Account{}, nil },
			want:   "", trust: instance.Trusted,
		},
		"Nodes that name no droplet": {
			change: func(w *world) {
				w.Nodes = []*corev1.Node{node("bare", ""), node("foreign", "aws:///i-1"), node("n1", providerid.Format(1))}
			},
			want: "bare unknown (provider-id), foreign unknown (provider-id), n1 exists", trust: instance.Trusted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := trusted()
			if tt.change != nil {
				tt.change(&w)
			}
			d := instance.MakePlan(w, instance.DefaultConfig())
			if got := existences(d); got != tt.want {
				t.Errorf("verdicts\n%s, want\n%s", got, tt.want)
			}
			if d.Trust != tt.trust || d.Message != tt.message {
				t.Errorf("trust %q, %q; want %q, %q", d.Trust, d.Message, tt.trust, tt.message)
			}
			if d.Refresh != tt.refresh || d.Record != tt.record || !cmp.Equal(d.Ask, tt.ask) {
				t.Errorf("refresh %v, record %v, ask %v; want %v, %v, %v", d.Refresh, d.Record, d.Ask, tt.refresh, tt.record, tt.ask)
			}
			if last := d.Verdicts[max(0, len(d.Verdicts)-1):]; tt.says != "" && last[0].Message != tt.says {
				t.Errorf("says\n%s, want\n%s", last[0].Message, tt.says)
			}
			for _, v := range d.Verdicts {
				if (v.Existence == instance.Unknown) != (v.Message != "") {
					t.Errorf("%+v", v)
				}
			}
		})
	}
}

// A colleague's token of the same team sees the same droplets; the same user in another team, or in none, does not.
func TestSameOwner(t *testing.T) {
	t.Parallel()
	type account = instance.Account
	for name, tt := range map[string]struct {
		recorded, current account
		same              bool
	}{
		"the same user":            {account{UUID: "u"}, account{UUID: "u"}, true},
		"another user":             {account{UUID: "u"}, account{UUID: "v"}, false},
		"the same user and team":   {account{"u", "t"}, account{"u", "t"}, true},
		"a colleague":              {account{"u", "t"}, account{"v", "t"}, true},
		"the user in another team": {account{"u", "t"}, account{"u", "s"}, false},
		"the user outside of it":   {account{"u", "t"}, account{UUID: "u"}, false},
		"the user in a team":       {account{UUID: "u"}, account{"u", "t"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := tt.recorded.SameOwner(tt.current); got != tt.same {
				t.Errorf("same owner: %v", got)
			}
			w := trusted()
			w.Recorded, w.Current = tt.recorded, tt.current
			d := instance.MakePlan(w, instance.DefaultConfig())
			if want := map[bool]instance.Trust{true: instance.Trusted, false: instance.AnotherAccount}[tt.same]; d.Trust != want || d.Record {
				t.Errorf("trust %q, record %v; want %q", d.Trust, d.Record, want)
			}
			if gone := strings.Contains(existences(d), "gone"); gone != tt.same {
				t.Errorf("verdicts: %s", existences(d))
			}
		})
	}
}

// Ninety of a hundred machines go. Ten at a time do, and in the end all are gone without anybody's help.
func TestLargeLossIsPaced(t *testing.T) {
	t.Parallel()
	c := instance.DefaultConfig()
	w := instance.World{Now: start, Recorded: ours, Current: ours, Answers: map[int]instance.Answer{}}
	for id := 1; id <= 100; id++ {
		w.Nodes = append(w.Nodes, node("n"+providerid.Format(id), providerid.Format(id)))
		if id <= 10 {
			w.List.Droplets = append(w.List.Droplets, id)
		} else {
			w.Answers[id] = instance.Answer{Outcome: instance.AnswerNotFound}
		}
		w.Known = append(w.Known, id)
	}
	var counts []int
	for range 20 {
		w.List.At, w.List.Complete = w.Now, true
		for id := range w.Answers {
			w.Answers[id] = instance.Answer{At: w.Now, Outcome: instance.AnswerNotFound}
		}
		d := instance.MakePlan(w, c)
		w.Memory = d.Memory
		var left []*corev1.Node
		gone := 0
		for _, n := range w.Nodes {
			if v, ok := d.Verdict(n.Name); ok && v.Existence == instance.Gone {
				gone++
				continue
			} else if v.Reason == instance.ReasonPace && v.Message == "" {
				t.Errorf("%+v", v)
			}
			left = append(left, n)
		}
		w.Nodes = left
		counts = append(counts, gone)
		w.Now = w.Now.Add(c.Window / 2)
	}
	want := []int{10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 10, 0, 0, 0}
	if diff := cmp.Diff(want, counts); diff != "" || len(w.Nodes) != 10 {
		t.Errorf("gone per half window (-want +got):\n%s%d nodes left", diff, len(w.Nodes))
	}
}

// The words of metrics and the form of what is remembered outlive a process.
func TestContract(t *testing.T) {
	t.Parallel()
	reasons := []instance.Reason{
		instance.ReasonNone, instance.ReasonAccount, instance.ReasonNothingVisible, instance.ReasonProviderID, instance.ReasonList,
		instance.ReasonAnswer, instance.ReasonPace, instance.ReasonUnseen,
	}
	if diff := cmp.Diff([]instance.Reason{"", "account", "nothing-visible", "provider-id", "list", "answer", "pace", "unseen"}, reasons); diff != "" {
		t.Error(diff)
	}
	data, err := json.Marshal(instance.Memory{Gone: []instance.Loss{{Droplet: 7, At: start}}})
	if want := `{"gone":[{"droplet":7,"at":"2026-01-01T12:00:00Z"}]}`; err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	if c := instance.DefaultConfig(); c.Window != 5*time.Minute || c.AtLeast != 5 || c.Percent != 10 {
		t.Errorf("%+v", c)
	}
}

// Lists that lack a droplet again and again prove more than time: those go at once, and no other. On another account nothing does.
func TestProvenLossesGoBesideThePace(t *testing.T) {
	t.Parallel()
	c := instance.DefaultConfig()
	w := instance.World{
		Now: start, Recorded: ours, Current: ours, Answers: map[int]instance.Answer{}, Missed: map[int]int{},
		List: instance.List{At: start, Complete: true},
	}
	for id := 1; id <= 200; id++ {
		w.Nodes = append(w.Nodes, node("n"+providerid.Format(id), providerid.Format(id)))
		switch {
		case id <= 100:
			w.List.Droplets = append(w.List.Droplets, id)
		case id <= 150:
			w.Missed[id] = c.ProofLists
		default:
			w.Missed[id] = c.ProofLists - 1
		}
		if id > 100 {
			w.Answers[id] = instance.Answer{At: start, Outcome: instance.AnswerNotFound}
		}
	}
	gone := func() (n int) {
		for _, v := range instance.MakePlan(w, c).Verdicts {
			if v.Existence == instance.Gone {
				n++
			}
		}
		return n
	}
	if n := gone(); n != 50 {
		t.Errorf("%d go, want the 50 that are proven", n)
	}
	clear(w.Missed)
	if n := gone(); n != 20 {
		t.Errorf("%d go without proof, want a tenth", n)
	}
	for id := range w.Answers {
		w.Missed[id] = 100
	}
	w.Current = instance.Account{UUID: "another"}
	if n := gone(); n != 0 {
		t.Errorf("%d go on another account", n)
	}
}

// A droplet that DigitalOcean has not shown yet is not gone: it may be younger than what the API shows. What shows that it
// existed is that it was shown, that a cloud controller has described it, or the age of its Node; nothing else does.
func TestUnseenIsNotGone(t *testing.T) {
	t.Parallel()
	described := map[string]string{
		corev1.LabelInstanceTypeStable: "s", corev1.LabelInstanceType: "s", corev1.LabelTopologyRegion: "r", corev1.LabelFailureDomainBetaRegion: "r",
	}
	without := func(label string) map[string]string {
		labels := maps.Clone(described)
		delete(labels, label)
		return labels
	}
	for name, tt := range map[string]struct {
		age    time.Duration
		labels map[string]string
		shown  bool
		missed int
		want   string
	}{
		"just registered":                      {age: 4 * time.Second, want: "n3 unknown (unseen)"},
		"lists that lacked it are not proof":   {age: 4 * time.Minute, missed: 100, want: "n3 unknown (unseen)"},
		"a clock that is behind":               {age: -time.Hour, want: "n3 unknown (unseen)"},
		"almost old enough":                    {age: 5*time.Minute - time.Second, want: "n3 unknown (unseen)"},
		"old, and never shown to this process": {age: 5 * time.Minute, want: "n3 gone"},
		"shown once":                           {age: 4 * time.Second, shown: true, want: "n3 gone"},
		"described":                            {age: 4 * time.Second, labels: described, want: "n3 gone"},
		"a label of the kubelet's own":         {age: 4 * time.Second, labels: without(corev1.LabelInstanceType), want: "n3 unknown (unseen)"},
		"two of them":                          {age: 4 * time.Second, labels: without(corev1.LabelFailureDomainBetaRegion), want: "n3 unknown (unseen)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := trusted()
			young := node("n3", providerid.Format(3))
			young.CreationTimestamp, young.Labels = metav1.NewTime(start.Add(-tt.age)), tt.labels
			w.Nodes[0], w.Missed = young, map[int]int{3: tt.missed}
			if tt.shown {
				w.Shown = map[int]instance.Droplet{3: {ID: 3}}
			}
			d := instance.MakePlan(w, instance.DefaultConfig())
			if got, want := existences(d), "n1 exists, n2 exists, "+tt.want; got != want {
				t.Errorf("verdicts %s, want %s", got, want)
			}
			if v, _ := d.Verdict("n3"); v.Reason == instance.ReasonUnseen && (!strings.Contains(v.Message, "droplet 3") || len(d.Memory.Gone) > 0) {
				t.Errorf("%q, remembered %v", v.Message, d.Memory.Gone)
			}
		})
	}
}

// New machines that DigitalOcean does not show take no place of others that are gone, and are not let go all at once when
// they are old enough.
func TestUnseenCountWithThePace(t *testing.T) {
	t.Parallel()
	c := instance.DefaultConfig()
	w := instance.World{Now: start, Recorded: ours, Current: ours, Answers: map[int]instance.Answer{}, List: instance.List{At: start, Complete: true}}
	for id := 1; id <= 100; id++ {
		n := node("n"+providerid.Format(id), providerid.Format(id))
		switch {
		case id <= 50:
			w.List.Droplets = append(w.List.Droplets, id)
		case id <= 90: // new
			n.CreationTimestamp = metav1.NewTime(start.Add(-time.Minute))
			fallthrough
		default:
			w.Answers[id] = instance.Answer{At: start, Outcome: instance.AnswerNotFound}
		}
		w.Nodes = append(w.Nodes, n)
	}
	gone := func() (ids []int) {
		for _, v := range instance.MakePlan(w, c).Verdicts {
			if v.Existence == instance.Gone {
				ids = append(ids, v.Droplet)
			}
		}
		slices.Sort(ids)
		return ids
	}
	if got := gone(); len(got) != 10 || got[0] != 91 {
		t.Errorf("%v go, want the ten that are old", got)
	}
	w.Now = start.Add(5 * time.Minute)
	w.List.At = w.Now
	for id := range w.Answers {
		w.Answers[id] = instance.Answer{At: w.Now, Outcome: instance.AnswerNotFound}
	}
	if got := gone(); len(got) != 10 {
		t.Errorf("%v go at a time, want a tenth", got)
	}
}
