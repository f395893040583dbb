// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/redact"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const (
	// logLines and logBytes are how much of each container's log is taken, from its end.
	logLines, logBytes = int64(5000), int64(1 << 20)
	// mostEvents is how many Events of a namespace are taken.
	mostEvents = 1000
)

// commands are those of the plugin that the report has the output of.
func commands() []string { return []string{"version", "status", "agreement", "volumes", "doctor"} }

// gather reads everything, one after the other: what cannot be read does not keep the rest from being read.
func (r *reporter) gather(ctx context.Context) {
	r.files = map[string]string{}
	for _, name := range commands() {
		r.command(ctx, name)
	}
	r.objects(ctx, "routereflectortopologies", v1alpha1.GroupVersion.WithResource("routereflectortopologies"), "", all)
	r.objects(ctx, "etcdstorages", observe.EtcdStorages(), "", all)
	r.objects(ctx, "nodes", corev1.SchemeGroupVersion.WithResource("nodes"), "", all)
	for _, namespace := range r.cluster.Namespaces {
		for _, kind := range []string{"deployments", "daemonsets", "statefulsets"} {
			r.objects(ctx, kind, schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: kind}, namespace, ours)
		}
		leases := schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}
		r.objects(ctx, "leases", leases, namespace, all)
		r.pods(ctx, namespace)
	}
	r.events(ctx)
	slices.Sort(r.unread)
	if r.unread = slices.Compact(r.unread); len(r.unread) > 0 {
		r.files["unread.txt"] = strings.Join(r.unread, "\n") + "\n"
	}
}

// leftOut notes what could not be read.
func (r *reporter) leftOut(what string, err error) {
	r.unread = append(r.unread, redact.Text(what+": "+observe.OneLine(err)))
}

// command adds the output of one command, and what it says on the error stream.
func (r *reporter) command(ctx context.Context, name string) {
	var out, problems bytes.Buffer
	code := r.run(ctx, append([]string{name, "--output=json"}, r.flags...), &out, &problems)
	r.add("commands/"+name+".json", out.String())
	r.add("commands/"+name+".txt", strings.TrimSpace(problems.String()+fmt.Sprintf("\nexit code %d", code))+"\n")
}

// add adds a file without secrets, unless it is empty.
func (r *reporter) add(name, text string) {
	if text != "" {
		r.files[name] = redact.Text(text)
	}
}

// all takes every object, ours the workloads that run one of Mooring's programs.
func all(*unstructured.Unstructured) bool { return true }

func ours(u *unstructured.Unstructured) bool {
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	var images []string
	for _, c := range containers {
		if container, ok := c.(map[string]any); ok {
			image, _ := container["image"].(string)
			images = append(images, image)
		}
	}
	return doctor.IsOurs(images)
}

// objects adds the objects of a kind, of a namespace or of all.
func (r *reporter) objects(
	ctx context.Context, name string, kind schema.GroupVersionResource, namespace string, wanted func(*unstructured.Unstructured) bool,
) {
	list := r.cluster.Dynamic.Resource(kind).List
	if namespace != "" {
		name = namespace + "/" + name
		list = r.cluster.Dynamic.Resource(kind).Namespace(namespace).List
	}
	found, err := observe.All[unstructured.Unstructured](ctx, "", list)
	if err != nil && !apierrors.IsNotFound(err) {
		r.leftOut(name, err)
	}
	var text strings.Builder
	for _, object := range found {
		if wanted(object) {
			text.WriteString("---\n" + document(object))
		}
	}
	r.add("objects/"+name+".yaml", text.String())
}

// document is an object as YAML, without what no reader needs and without values of variables that are secrets.
func document(u *unstructured.Unstructured) string {
	u.SetManagedFields(nil)
	unstructured.RemoveNestedField(u.Object, "metadata", "annotations", corev1.LastAppliedConfigAnnotation)
	mask(u.Object)
	text, err := yaml.Marshal(u.Object)
	if err != nil { // of what came as JSON there is none
		return "# " + err.Error() + "\n"
	}
	return string(text)
}

// mask replaces the values of variables whose names say that they are secrets: name and value are fields beside each other.
func mask(value any) {
	switch v := value.(type) {
	case map[string]any:
		name, named := v["name"].(string)
		if _, has := v["value"].(string); has && named && redact.IsName(name) {
			v["value"] = redact.Mark
		}
		for _, inner := range v {
			mask(inner)
		}
	case []any:
		for _, inner := range v {
			mask(inner)
		}
	}
}

// pods adds the state and the logs of the components' Pods in a namespace.
func (r *reporter) pods(ctx context.Context, namespace string) {
	list, err := r.cluster.Typed.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		r.leftOut(namespace+"/pods", err)
		return
	}
	for i := range list.Items {
		r.pod(ctx, &list.Items[i])
	}
}

// pod adds the state and the logs of a Pod, if it is one of the components'.
func (r *reporter) pod(ctx context.Context, p *corev1.Pod) {
	var images []string
	for _, c := range p.Spec.Containers {
		images = append(images, c.Image)
	}
	if !doctor.IsOurs(images) {
		return
	}
	if text, err := yaml.Marshal(p.Status); err == nil {
		r.add("pods/"+p.Namespace+"/"+p.Name+".yaml", string(text))
	}
	for _, c := range p.Status.ContainerStatuses {
		r.log(ctx, p, c.Name, false)
		if c.RestartCount > 0 {
			r.log(ctx, p, c.Name, true)
		}
	}
}

// log adds the end of a container's log, or of that of the container before it.
func (r *reporter) log(ctx context.Context, p *corev1.Pod, container string, previous bool) {
	lines, bytes := logLines, logBytes
	name := p.Name + "." + container
	if previous {
		name += ".previous"
	}
	options := &corev1.PodLogOptions{Container: container, Previous: previous, TailLines: &lines, LimitBytes: &bytes, Timestamps: true}
	text, err := r.cluster.Typed.CoreV1().Pods(p.Namespace).GetLogs(p.Name, options).DoRaw(ctx)
	if err != nil {
		r.leftOut("the log of "+p.Namespace+"/"+name, err)
		return
	}
	r.add("logs/"+p.Namespace+"/"+name+".log", string(text))
}

// events adds the Events of the components.
func (r *reporter) events(ctx context.Context) {
	list, _, err := r.cluster.MooringEvents(ctx, mostEvents)
	if err != nil {
		r.leftOut("events", err)
		return
	}
	var text strings.Builder
	for i := range list {
		e := &list[i]
		at, _ := observe.LastSeen(e)
		fmt.Fprintf(&text, "%s %s %s %s %s/%s: %s\n", at.UTC().Format(time.RFC3339), e.Type, observe.SourceOf(e), e.Reason,
			e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message)
	}
	r.add("events.txt", text.String())
}

// archive writes files as a compressed archive, in the order of their names.
func archive(out io.Writer, files map[string]string, now time.Time) error {
	zipped := gzip.NewWriter(out)
	tape := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		header := &tar.Header{Name: "mooring-report/" + name, Mode: 0o600, Size: int64(len(files[name])), ModTime: now}
		if err := tape.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(tape, files[name]); err != nil {
			return err
		}
	}
	if err := tape.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
