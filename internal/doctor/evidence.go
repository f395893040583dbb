// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Workload is a Deployment, a StatefulSet or a DaemonSet, as far as anybody here asks.
type Workload struct {
	Kind, Namespace, Name string
	// Labels are the object's and its pods'.
	Labels map[string]string
	// Wanted and Ready count pods.
	Wanted, Ready int
	// Images and Args are those of all containers.
	Images, Args []string
	Env          map[string]Variable
	// Account is the name of the service account; empty for the namespace's own.
	Account string
	// Init are the commands and arguments of all init containers.
	Init []string
	// UdevRules reports whether the machine's folder of udev rules is mounted, Selects whether it is for some machines alone, by a selector or an affinity.
	UdevRules, Selects bool
}

// WorkloadOf is what is judged of an object with pods.
func WorkloadOf(kind string, meta metav1.Object, pod *corev1.PodTemplateSpec, wanted, ready int32) Workload {
	const rules = "/etc/udev/rules.d"
	w := Workload{
		Kind: kind, Namespace: meta.GetNamespace(), Name: meta.GetName(), Labels: map[string]string{}, Env: map[string]Variable{},
		Account: pod.Spec.ServiceAccountName, Wanted: int(wanted), Ready: int(ready),
		Selects: len(pod.Spec.NodeSelector) > 0 || pod.Spec.Affinity != nil && pod.Spec.Affinity.NodeAffinity != nil,
	}
	maps.Copy(w.Labels, meta.GetLabels())
	maps.Copy(w.Labels, pod.Labels)
	for _, c := range pod.Spec.Containers {
		w.Images = append(w.Images, c.Image)
		w.Args = append(append(w.Args, c.Command...), c.Args...)
		for _, v := range c.Env {
			w.Env[v.Name] = Variable{Value: v.Value, Elsewhere: v.ValueFrom != nil}
		}
	}
	for _, c := range pod.Spec.InitContainers {
		w.Init = append(append(w.Init, c.Command...), c.Args...)
	}
	for _, v := range pod.Spec.Volumes {
		w.UdevRules = w.UdevRules || v.HostPath != nil && strings.HasPrefix(rules+"/", strings.TrimSuffix(path.Clean(v.HostPath.Path), "/")+"/")
	}
	return w
}

// Variable is an environment variable of a pod.
type Variable struct {
	Value string
	// Elsewhere reports that the value is in another object, such as a ConfigMap, and not known here.
	Elsewhere bool
}

// Lease is one of leader election.
type Lease struct {
	Namespace, Name string
	// Holder is empty when the last one gave it back.
	Holder  string
	Renewed time.Time
	// Duration is for how long it is held after that.
	Duration time.Duration
	// Token is the health of the component's token that is recorded here, nil if nothing is wrong with it.
	Token *metav1.Condition
}

// LeaseOf is what is judged of a Lease, but for the token.
func LeaseOf(l *coordinationv1.Lease) Lease {
	out := Lease{Namespace: l.Namespace, Name: l.Name, Duration: usualLease}
	if l.Spec.HolderIdentity != nil {
		out.Holder = *l.Spec.HolderIdentity
	}
	if l.Spec.RenewTime != nil {
		out.Renewed = l.Spec.RenewTime.Time
	}
	if l.Spec.LeaseDurationSeconds != nil {
		out.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
	}
	return out
}

// usualLease is how long Leases of leader election last if they do not say.
const usualLease = 15 * time.Second

// clocksDiffer is by how much the clock of the machine that renews a Lease may be behind the API server's.
const clocksDiffer = 5 * time.Second

// Stale reports whether nobody has renewed a Lease in time. One that was given back lasts a second, and gets as long as
// another replica may need for it.
func (l Lease) Stale(now time.Time) bool {
	duration := l.Duration
	if l.Holder == "" || duration <= 0 {
		duration = max(duration, usualLease)
	}
	return now.Sub(l.Renewed) > duration+clocksDiffer
}

// problem is why nobody leads by it, "" if somebody does, or has just ceased to.
func (l Lease) problem(now time.Time) string {
	switch {
	case !l.Stale(now):
		return ""
	case l.Holder == "":
		return "its Lease has no holder"
	}
	return "its Lease is no longer renewed"
}

// Trust returns the workloads in one of the namespaces, and those elsewhere that look like a component or a rival of one:
// anybody who may edit that namespace can have made them.
func Trust(all []Workload, namespaces []string) (ours, elsewhere []Workload) {
	for _, w := range all {
		switch is := func(c component) bool { return c.is(w) || c.rivaled(w) }; {
		case slices.Contains(namespaces, w.Namespace):
			ours = append(ours, w)
		case w.volumeDriver() != "", slices.ContainsFunc(components(), is):
			elsewhere = append(elsewhere, w)
		}
	}
	return ours, elsewhere
}

// String names the workload to people.
func (w Workload) String() string { return w.Kind + " " + w.Namespace + "/" + w.Name }

// reference is how kubectl names it within its namespace.
func (w Workload) reference() string { return strings.ToLower(w.Kind) + "/" + w.Name }

// runs reports whether a workload runs an image, by the last parts of its name: a mirror has others before them.
func (w Workload) runs(image string) bool {
	wanted := strings.Split(image, "/")
	return slices.ContainsFunc(w.Images, func(i string) bool {
		parts := strings.Split(repository(i), "/")
		return len(parts) >= len(wanted) && slices.Equal(parts[len(parts)-len(wanted):], wanted)
	})
}

// repository is an image without its tag and digest.
func repository(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		image = image[:at]
	}
	return image
}

// tag is an image's tag; empty if a digest says which it is, or nothing does.
func tag(image string) string {
	if strings.Contains(image, "@") {
		return ""
	}
	_, tag, _ := strings.Cut(path.Base(image), ":")
	return tag
}

// has reports whether a flag that is true or false is given as true.
func (w Workload) has(name string) bool {
	value, set := w.flag(name)
	return set && value != "false"
}

// flag is the value of a flag of one or two dashes, behind a "=" or as the next word; set reports whether it is there. One without a value
// is "true". The last one wins, as it does in Go.
func (w Workload) flag(name string) (value string, set bool) {
	for n, arg := range w.Args {
		key, v, has := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"), "=")
		if !strings.HasPrefix(arg, "-") || key != name {
			continue
		}
		value, set = v, true
		switch {
		case has:
		case n+1 < len(w.Args) && !strings.HasPrefix(w.Args[n+1], "-"):
			value = w.Args[n+1]
		default:
			value = "true"
		}
	}
	return value, set
}

// valueOf is the value of a flag, or what is the case without it.
func (w Workload) valueOf(name, without string) string {
	if value, set := w.flag(name); set {
		return value
	}
	return without
}

// labeled reports that our manifests or our chart made it for a component.
func (w Workload) labeled(component string) bool {
	return w.Labels["app.kubernetes.io/part-of"] == "mooring" && w.Labels["app.kubernetes.io/name"] == component
}

// sorted are the workloads in the order of their names.
func sorted(all []Workload) []Workload {
	return slices.SortedFunc(slices.Values(all), func(a, b Workload) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind))
	})
}
