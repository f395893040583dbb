// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// LabelsAnnotation on Nodes: the labels that were made from tags, with their values, as JSON. It distinguishes our labels from those of others.
// It MUST NOT change: labels that a version before has made would be taken for somebody else's.
const LabelsAnnotation = "cloud.mooring.dev/labels-from-tags"

// TagLabels returns which tags of a droplet become labels of its Node: the label's key by the tag's. A tag is KEY:VALUE, or KEY alone for an empty
// value; where two keys fit the longer one counts, so that a key may have colons itself. No two keys make the same label.
type TagLabels map[string]string

// ParseTagLabels reads TAG=LABEL,TAG=LABEL, such as env=example.com/env. Blanks around a part are not meant. An empty text is not labels at all. An
// error is one sentence.
func ParseTagLabels(text string) (TagLabels, error) {
	made, tags := TagLabels{}, regexp.MustCompile(assumed.TagPattern)
	for part := range strings.SplitSeq(text, ",") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		tag, label, _ := strings.Cut(part, "=")
		tag, label = strings.TrimSpace(tag), strings.TrimSpace(label)
		switch {
		case tag == "" || label == "":
			return nil, fmt.Errorf("%q is not of the form TAG=LABEL, such as env=example.com/env", strings.TrimSpace(part))
		case len(tag) > assumed.TagLength || !tags.MatchString(tag) || strings.HasSuffix(tag, ":"):
			return nil, fmt.Errorf("%q cannot be the key of a tag: it has letters, digits, colons, dashes and underscores, and no colon at its end", tag)
		case len(validation.IsQualifiedName(label)) > 0:
			return nil, fmt.Errorf("%q cannot be a label: %s", label, strings.Join(validation.IsQualifiedName(label), "; "))
		case reserved(label):
			return nil, fmt.Errorf("label %s is Kubernetes' own: give one that is not under kubernetes.io or k8s.io", label)
		}
		if other, twice := made[tag]; twice {
			return nil, fmt.Errorf("tag %s is given two labels, %s and %s", tag, other, label)
		}
		for other, same := range made {
			if same == label {
				first, second := min(other, tag), max(other, tag)
				return nil, fmt.Errorf("label %s is made of two tags, %s and %s", label, first, second)
			}
		}
		made[tag] = label
	}
	return made, nil
}

// String is the form that ParseTagLabels reads, in the order of tags.
func (t TagLabels) String() string {
	parts := make([]string, 0, len(t))
	for _, tag := range slices.Sorted(maps.Keys(t)) {
		parts = append(parts, tag+"="+t[tag])
	}
	return strings.Join(parts, ",")
}

// reserved reports whether a label is Kubernetes' own. Kubernetes' framework takes none of those from a cloud provider either
// (k8s.io/cloud-provider, getNodeModifiersFromCloudProvider).
func reserved(label string) bool {
	domain, _, prefixed := strings.Cut(label, "/")
	if !prefixed {
		return false
	}
	for _, own := range []string{"kubernetes.io", "k8s.io"} {
		if domain == own || strings.HasSuffix(domain, "."+own) {
			return true
		}
	}
	return false
}

// LabelWorld is what is known when the labels of one Node are decided.
type LabelWorld struct {
	Node *corev1.Node
	// Tags are those of its droplet.
	Tags []string
	// Complete reports that the tags may be believed about what they lack: a token without the scope for tags sees none.
	Complete bool
}

// LabelPlan is what is to be written to a Node, and what people are to be told.
type LabelPlan struct {
	// Set and Remove are labels; Remove is in the order of keys.
	Set    map[string]string
	Remove []string
	// Record is what LabelsAnnotation is to hold, empty for no annotation; Changed says that it does not hold that yet.
	Record  string
	Changed bool
	// Problems are sentences about tags that make no label, in the order of labels.
	Problems []string
}

// Writes reports whether there is anything to write.
func (p LabelPlan) Writes() bool { return len(p.Set) > 0 || len(p.Remove) > 0 || p.Changed }

// PlanLabels decides which labels a Node gets of its droplet's tags. For each label:
//
//	one tag, and no such label      it is set, and recorded as ours
//	one tag, and our label          it gets the tag's value
//	one tag, and another's label    it stays; people are told if it says something else
//	no tag, and our label           it is removed, if the tags may be believed about what they lack
//	no tag, and another's label     it stays
//	several tags, or a wrong one    all stays as it is, and people are told
//
// Ours is what the Node's annotation records with the value that the label has: anyone who changes a label takes it over. A label that is
// recorded and asked for no longer is treated as one without a tag, since the operator has said so.
func PlanLabels(w LabelWorld, labels TagLabels) LabelPlan {
	record, problem := recordOf(w.Node)
	p := labelPlanner{world: w, before: record, after: map[string]string{}, plan: LabelPlan{Set: map[string]string{}}}
	if problem != "" {
		p.plan.Problems = append(p.plan.Problems, problem)
	}
	asked := map[string]bool{}
	for _, tag := range byLabel(labels) {
		label := labels[tag]
		asked[label] = true
		p.label(label, labels.values(tag, w.Tags), tag)
	}
	for _, label := range slices.Sorted(maps.Keys(record)) {
		if !asked[label] && p.ours(label) && !reserved(label) {
			p.remove(label)
		}
	}
	slices.Sort(p.plan.Remove)
	p.plan.Record = formatLabels(p.after)
	p.plan.Changed = !maps.Equal(p.before, p.after)
	return p.plan
}

// byLabel returns the tags in the order of their labels.
func byLabel(labels TagLabels) []string {
	return slices.SortedFunc(maps.Keys(labels), func(a, b string) int { return strings.Compare(labels[a], labels[b]) })
}

// values returns the values that tags give to a key, each once and in ascending order.
func (t TagLabels) values(key string, tags []string) []string {
	var values []string
	for _, tag := range tags {
		if owner, value := t.owner(tag); owner == key {
			values = append(values, value)
		}
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// owner returns the key that a tag belongs to, and the tag's value; an empty key for none.
func (t TagLabels) owner(tag string) (key, value string) {
	for k := range t {
		rest, fits := strings.CutPrefix(tag, k)
		if fits && (rest == "" || rest[0] == ':') && len(k) > len(key) {
			key, value = k, strings.TrimPrefix(rest, ":")
		}
	}
	return key, value
}

// labelPlanner makes one plan.
type labelPlanner struct {
	world         LabelWorld
	before, after map[string]string // what is recorded as ours
	plan          LabelPlan
}

// ours reports that a label is there, and as we have set it.
func (p *labelPlanner) ours(label string) bool {
	recorded, ok := p.before[label]
	current, there := p.world.Node.Labels[label]
	return ok && there && current == recorded
}

// label decides about one label, whose tag has these values.
func (p *labelPlanner) label(label string, values []string, tag string) {
	current, there := p.world.Node.Labels[label]
	ours := p.ours(label)
	switch {
	case len(values) > 1:
		p.problem("the droplet has %d tags for label %s, %s: leave one of them", len(values), label, quoted(tag, values))
		p.keep(label, ours)
	case len(values) == 1 && len(validation.IsValidLabelValue(values[0])) > 0:
		p.problem("tag %s makes no label %s: %s", quoted(tag, values), label, strings.Join(validation.IsValidLabelValue(values[0]), "; "))
		p.keep(label, ours)
	case len(values) == 1 && there && !ours:
		if current != values[0] {
			p.problem("label %s has the value %q from another owner, and tag %s does not change it: remove the label or the tag", label, current, quoted(tag, values))
		}
	case len(values) == 1:
		p.after[label] = values[0]
		if !there || current != values[0] {
			p.plan.Set[label] = values[0]
		}
	case ours && p.world.Complete:
		p.remove(label)
	default:
		p.keep(label, ours)
	}
}

// keep leaves a label, and whose it is, as it is.
func (p *labelPlanner) keep(label string, ours bool) {
	if ours {
		p.after[label] = p.before[label]
	}
}

func (p *labelPlanner) remove(label string) { p.plan.Remove = append(p.plan.Remove, label) }

func (p *labelPlanner) problem(format string, args ...any) {
	p.plan.Problems = append(p.plan.Problems, fmt.Sprintf(format, args...))
}

// quoted are the tags of a key with these values, not too many and not too long.
func quoted(key string, values []string) string {
	const most = 3
	var out []string
	for i, value := range values {
		if i == most {
			out = append(out, "…")
			break
		}
		tag := key
		if value != "" {
			tag += ":" + value
		}
		out = append(out, tag)
	}
	return strings.Join(out, ", ")
}

// recordOf returns which labels of a Node are recorded as ours. What cannot be read is nothing: then no label is ours.
func recordOf(node *corev1.Node) (map[string]string, string) {
	record := map[string]string{}
	text := node.Annotations[LabelsAnnotation]
	if text == "" {
		return record, ""
	}
	if err := json.Unmarshal([]byte(text), &record); err != nil {
		return map[string]string{}, fmt.Sprintf("annotation %s cannot be read, so that labels that were made of tags stay: remove it", LabelsAnnotation)
	}
	if record == nil { // "null"
		record = map[string]string{}
	}
	return record, ""
}

// formatLabels is the inverse of recordOf, in the order of keys.
func formatLabels(record map[string]string) string {
	if len(record) == 0 {
		return ""
	}
	text, err := json.Marshal(record)
	if err != nil {
		return "" // a map of texts has a form
	}
	return string(text)
}
