// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestParseTagLabels(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                                 "",
		" , ":                              "",
		"env=example.com/env":              "env=example.com/env",
		" team = team ,env=example.com/e,": "env=example.com/e,team=team",
		"a:b=a.example/b,a=a.example/a":    "a=a.example/a,a:b=a.example/b",
		"k8s=mykubernetes.io/x":            "k8s=mykubernetes.io/x",
	} {
		got, err := instance.ParseTagLabels(text)
		if err != nil || got.String() != want {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"env":                         `"env" is not of the form TAG=LABEL`,
		"=a":                          `"=a" is not of the form TAG=LABEL`,
		"env=":                        `"env=" is not of the form TAG=LABEL`,
		"e v=a":                       `"e v" cannot be the key of a tag`,
		"env:=a":                      `"env:" cannot be the key of a tag`,
		"env=a b":                     `"a b" cannot be a label: `,
		"env=a=b":                     `"a=b" cannot be a label: `,
		"env=kubernetes.io/role":      "label kubernetes.io/role is Kubernetes' own",
		"env=k8s.io/role":             "label k8s.io/role is Kubernetes' own",
		"r=node-role.kubernetes.io/x": "label node-role.kubernetes.io/x is Kubernetes' own",
		"r=node-restriction.kubernetes.io/x": "label node-restriction.kubernetes.io/x is Kubernetes' own: give one that is not under kubernetes.io or " +
			"k8s.io",
		"a=x,a=y": "tag a is given two labels, x and y",
		"b=x,a=x": "label x is made of two tags, a and b",
	} {
		if got, err := instance.ParseTagLabels(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, %v, want %q", text, got, err, want)
		}
	}
}

// labeled is a Node with labels, of which those in record are recorded as ours.
func labeled(labels, record map[string]string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}}
	if record != nil {
		text, err := json.Marshal(record)
		if err != nil {
			panic(err)
		}
		n.Annotations = map[string]string{instance.LabelsAnnotation: string(text)}
	}
	return n
}

type m = map[string]string

func TestPlanLabels(t *testing.T) {
	t.Parallel()
	labels := instance.TagLabels{"env": "example.com/env", "gpu": "gpu", "team": "team", "team:sub": "sub"}
	const env = "example.com/env"
	for name, tt := range map[string]struct {
		labels, record m
		tags           []string
		partial        bool
		set            m
		remove         []string
		after          string
		changed        bool
		problem        string
	}{
		"nothing":                             {},
		"tags that nobody asked for":          {tags: []string{"k8s", "k8s:worker", "environment:prod", "Env:prod"}},
		"a new label":                         {tags: []string{"env:prod"}, set: m{env: "prod"}, after: `{"example.com/env":"prod"}`, changed: true},
		"without a value":                     {tags: []string{"gpu"}, set: m{"gpu": ""}, after: `{"gpu":""}`, changed: true},
		"the longer key":                      {tags: []string{"team:sub:x", "team:a"}, set: m{"sub": "x", "team": "a"}, after: `{"sub":"x","team":"a"}`, changed: true},
		"it is as it must be":                 {labels: m{env: "prod"}, record: m{env: "prod"}, tags: []string{"env:prod"}, after: `{"example.com/env":"prod"}`},
		"another value":                       {labels: m{env: "dev"}, record: m{env: "dev"}, tags: []string{"env:prod"}, set: m{env: "prod"}, after: `{"example.com/env":"prod"}`, changed: true},
		"the same twice":                      {tags: []string{"gpu", "gpu:"}, set: m{"gpu": ""}, after: `{"gpu":""}`, changed: true},
		"somebody took it off":                {record: m{env: "prod"}, tags: []string{"env:prod"}, set: m{env: "prod"}, after: `{"example.com/env":"prod"}`},
		"the tag is gone":                     {labels: m{env: "prod", "x": "y"}, record: m{env: "prod"}, remove: []string{env}, changed: true},
		"tags cannot be seen":                 {labels: m{env: "prod"}, record: m{env: "prod"}, partial: true, after: `{"example.com/env":"prod"}`},
		"it was another's":                    {labels: m{env: "prod"}, tags: []string{"env:prod"}},
		"it was another's, the tag is gone":   {labels: m{env: "prod"}},
		"another says something else":         {labels: m{env: "dev"}, tags: []string{"env:prod"}, problem: `label example.com/env has the value "dev" from another owner`},
		"taken over":                          {labels: m{env: "dev"}, record: m{env: "prod"}, tags: []string{"env:prod"}, changed: true, problem: `label example.com/env has the value "dev" from another owner`},
		"taken over, the tag is gone":         {labels: m{env: "dev"}, record: m{env: "prod"}, changed: true},
		"two values":                          {labels: m{env: "dev"}, record: m{env: "dev"}, tags: []string{"env:b", "env:a", "gpu"}, set: m{"gpu": ""}, after: `{"example.com/env":"dev","gpu":""}`, changed: true, problem: "the droplet has 2 tags for label example.com/env, env:a, env:b: leave one of them"},
		"a wrong value":                       {labels: m{env: "dev"}, record: m{env: "dev"}, tags: []string{"env:a:b", "gpu"}, set: m{"gpu": ""}, after: `{"example.com/env":"dev","gpu":""}`, changed: true, problem: "tag env:a:b makes no label example.com/env: "},
		"too long a value":                    {tags: []string{"env:" + strings.Repeat("a", 64)}, problem: "must be no more than 63"},
		"not asked for any longer":            {labels: m{"old": "x", "other": "y"}, record: m{"old": "x", "other": "z"}, partial: true, remove: []string{"old"}, changed: true},
		"a record that names Kubernetes' own": {labels: m{"kubernetes.io/hostname": "n"}, record: m{"kubernetes.io/hostname": "n"}, changed: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := instance.PlanLabels(instance.LabelWorld{Node: labeled(tt.labels, tt.record), Tags: tt.tags, Complete: !tt.partial}, labels)
			want := instance.LabelPlan{Set: tt.set, Remove: tt.remove, Record: tt.after, Changed: tt.changed}
			if want.Set == nil {
				want.Set = m{}
			}
			problems := strings.Join(got.Problems, "; ")
			got.Problems = nil
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("- want, + got:\n%s", diff)
			}
			if (problems == "") != (tt.problem == "") || !strings.Contains(problems, tt.problem) {
				t.Errorf("problems %q, want %q", problems, tt.problem)
			}
			if want := len(tt.set) > 0 || len(tt.remove) > 0 || tt.changed; got.Writes() != want {
				t.Errorf("it writes: %v", got.Writes())
			}
		})
	}
}

// A record that cannot be read makes no label ours, and stops none.
func TestPlanLabelsWithADamagedRecord(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"{", `["a"]`, "null", "7"} {
		n := labeled(m{"example.com/env": "prod"}, nil)
		n.Annotations = map[string]string{instance.LabelsAnnotation: text}
		got := instance.PlanLabels(instance.LabelWorld{Node: n, Tags: []string{"gpu"}, Complete: true}, instance.TagLabels{"env": "example.com/env", "gpu": "gpu"})
		if len(got.Remove) > 0 || got.Record != `{"gpu":""}` || !got.Changed {
			t.Errorf("%s: %+v", text, got)
		}
		if damaged := text != "null"; damaged != (len(got.Problems) == 1) {
			t.Errorf("%s: problems %q", text, got.Problems)
		}
	}
}

// apply is what the API server makes of a plan.
func apply(n *corev1.Node, p instance.LabelPlan) *corev1.Node {
	n = n.DeepCopy()
	n.Labels, n.Annotations = maps.Clone(n.Labels), maps.Clone(n.Annotations)
	if n.Labels == nil {
		n.Labels = m{}
	}
	maps.Copy(n.Labels, p.Set)
	for _, key := range p.Remove {
		delete(n.Labels, key)
	}
	if n.Annotations == nil {
		n.Annotations = m{}
	}
	if n.Annotations[instance.LabelsAnnotation] = p.Record; p.Record == "" {
		delete(n.Annotations, instance.LabelsAnnotation)
	}
	return n
}

// The laws of the plan, over histories of tags that come and go and people who change labels: it converges in one round, is blind to the order of
// tags, never touches a label that it does not own, and a label that is left alone by people is there exactly while its tag is.
func TestPlanLabelsLaws(t *testing.T) {
	t.Parallel()
	labels := instance.TagLabels{"a": "x.example/a", "b": "x.example/b", "a:c": "c"}
	tag := rapid.SampledFrom([]string{"a", "a:1", "a:2", "b:1", "b:_", "a:c:1", "a:c", "other", "b:1:2"})
	cases.CheckTimes(t, 100, 300, 3000, func(t *rapid.T) {
		people := m{} // what somebody has set last
		node := labeled(m{}, nil)
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			if key := rapid.SampledFrom([]string{"", "x.example/a", "c", "kubernetes.io/os", "mine"}).Draw(t, "changed"); key != "" {
				value := rapid.SampledFrom([]string{"1", "2", "own"}).Draw(t, "to")
				if _, there := node.Labels[key]; !there || node.Labels[key] != value {
					node.Labels[key], people[key] = value, value
				}
			}
			tags := rapid.SliceOfDistinct(tag, rapid.ID[string]).Draw(t, "tags")
			w := instance.LabelWorld{Node: node, Tags: tags, Complete: rapid.Bool().Draw(t, "complete")}
			p := instance.PlanLabels(w, labels)
			shuffled := w
			shuffled.Tags = rapid.Permutation(tags).Draw(t, "shuffled")
			if diff := cmp.Diff(p, instance.PlanLabels(shuffled, labels)); diff != "" {
				t.Fatalf("the order of tags counts: %s", diff)
			}
			for key := range people {
				if _, set := p.Set[key]; set || slices.Contains(p.Remove, key) {
					t.Fatalf("label %s was set by somebody else to %q: %+v", key, people[key], p)
				}
			}
			for key, value := range p.Set {
				if len(validation.IsValidLabelValue(value)) > 0 || !slices.Contains(slices.Collect(maps.Values(labels)), key) {
					t.Fatalf("set %s=%s", key, value)
				}
			}
			node = apply(node, p)
			w.Node = node
			if again := instance.PlanLabels(w, labels); again.Writes() {
				t.Fatalf("after %+v there is more to write: %+v", p, again)
			}
		}
		w := instance.LabelWorld{Node: node, Complete: true}
		node = apply(node, instance.PlanLabels(w, labels))
		if diff := cmp.Diff(people, node.Labels); diff != "" {
			t.Fatalf("without tags there is left what people have set, and no more (- people, + left):\n%s", diff)
		}
		if len(node.Annotations) > 0 {
			t.Fatalf("the record is left: %v", node.Annotations)
		}
	})
}

// What is read is written the same, and no text is a panic or a label of Kubernetes' own.
func FuzzParseTagLabels(f *testing.F) {
	for _, seed := range []string{"", "a=b", "a:b=x.example/y,c=d", "env=kubernetes.io/x", "a==b", "a=b,a=b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		labels, err := instance.ParseTagLabels(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") && !strings.Contains(text, "\n") {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		again, err := instance.ParseTagLabels(labels.String())
		if err != nil || !maps.Equal(labels, again) {
			t.Errorf("%q: %v, then %v, %v", text, labels, again, err)
		}
		for _, label := range labels {
			if domain, _, ok := strings.Cut(label, "/"); ok && (strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io")) {
				t.Errorf("%q: label %s", text, label)
			}
		}
		_ = instance.PlanLabels(instance.LabelWorld{Node: labeled(nil, nil), Tags: []string{text}, Complete: true}, labels)
	})
}

// FuzzLabelRecord: whatever a Node's annotation says, no label of Kubernetes' own goes and no plan is without an end.
func FuzzLabelRecord(f *testing.F) {
	for _, seed := range []string{"", "{}", `{"a":"1"}`, `{"kubernetes.io/os":"linux"}`, "null", "[]", `{"a":7}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n := labeled(m{"a": "1", "kubernetes.io/os": "linux"}, nil)
		n.Annotations = m{instance.LabelsAnnotation: text}
		w := instance.LabelWorld{Node: n, Tags: []string{"t:1"}, Complete: true}
		p := instance.PlanLabels(w, instance.TagLabels{"t": "x.example/t"})
		if slices.Contains(p.Remove, "kubernetes.io/os") || p.Set["x.example/t"] != "1" {
			t.Errorf("%q: %+v", text, p)
		}
		w.Node = apply(n, p)
		if again := instance.PlanLabels(w, instance.TagLabels{"t": "x.example/t"}); again.Writes() {
			t.Errorf("%q: after %s: %s", text, fmt.Sprintf("%+v", p), fmt.Sprintf("%+v", again))
		}
	})
}

// The annotation is a contract: what an earlier version has recorded must be found.
func TestLabelsAnnotation(t *testing.T) {
	t.Parallel()
	if instance.LabelsAnnotation != "cloud.mooring.dev/labels-from-tags" {
		t.Errorf("it is %s", instance.LabelsAnnotation)
	}
}
