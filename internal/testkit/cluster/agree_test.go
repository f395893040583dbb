// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// stories is the file of the fixed sequences; its head explains the format.
const stories = "testdata/agree.txt"

// definitions are kinds for the test: one with a status subresource, defaults and rules, one without a subresource.
//
//go:embed testdata/kinds.yaml
var definitions string

// allowed lists the differences that are left, as a prefix of a path in the object of some kinds, each with its reason.
// Such fields are removed on both sides before they are compared.
var allowed = []struct{ kinds, path, reason string }{
	{"Pod", "spec", "the defaults of pods are many, and the service account's token is mounted"},
	{"Deployment DaemonSet", "spec", "the defaults of pods and of their rollout are many"},
	{"Service", "spec.clusterIP", "the simulated server allocates no addresses"},
	{"Service", "spec.clusterIPs", "the simulated server allocates no addresses"},
	{"Service", "spec.ports.nodePort", "the simulated server allocates no ports"},
	{"DaemonSet", "metadata.annotations", "a real server counts templates in a deprecated annotation"},
	{"PersistentVolume", "status.lastPhaseTransitionTime", "it is a time"},
	{"Service", "spec.healthCheckNodePort", "the simulated server allocates no ports"},
}

// A story is a sequence of operations.
type story struct {
	name       string
	operations []operation
}

// An operation is one request: see testdata/agree.txt.
type operation struct{ verb, path, body string }

func (o operation) String() string { return strings.TrimSpace(o.verb + " " + o.path + " " + o.body) }

func readStories(t *testing.T) (out []story) {
	t.Helper()
	text := must.Get(os.ReadFile(stories)).Or(t)
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "== "):
			out = append(out, story{name: strings.TrimPrefix(line, "== ")})
		default:
			verb, rest, _ := strings.Cut(line, " ")
			path, body, _ := strings.Cut(rest, " ")
			last := &out[len(out)-1]
			last.operations = append(last.operations, operation{verb, path, strings.TrimSpace(body)})
		}
	}
	return out
}

// workload is what a new Deployment needs.
const workload = `{"spec":{"selector":{"matchLabels":{"a":"b"}},` +
	`"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`

func gvk(group, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: kind}
}

// collections are the kinds that operations name, with what a new object of the kind needs.
var collections = map[string]struct {
	schema.GroupVersionKind
	namespaced bool
	body       string
}{
	"nodes":      {gvk("", "Node"), false, `{}`},
	"namespaces": {gvk("", "Namespace"), false, `{}`},
	"configmaps": {gvk("", "ConfigMap"), true, `{"data":{"k":"v"}}`},
	"secrets":    {gvk("", "Secret"), true, `{"stringData":{"k":"v"}}`},
	"services":   {gvk("", "Service"), true, `{"spec":{"ports":[{"port":80}]}}`},
	"pods":       {gvk("", "Pod"), true, `{"spec":{"containers":[{"name":"c","image":"i"}]}}`},
	"events": {gvk("", "Event"), true,
		`{"involvedObject":{"kind":"Pod","namespace":"$ns","name":"p"},"reason":"R"}`},
	"leases":  {gvk("coordination.k8s.io", "Lease"), true, `{"spec":{"holderIdentity":"me"}}`},
	"widgets": {gvk("agree.test", "Widget"), true, `{"spec":{"size":1}}`},
	"gadgets": {gvk("agree.test", "Gadget"), false, `{"spec":{"size":1}}`},
	"deployments": {gvk("apps", "Deployment"), true,
		workload},
	"daemonsets": {gvk("apps", "DaemonSet"), true,
		workload},
	"serviceaccounts": {gvk("", "ServiceAccount"), true, `{}`},
	"persistentvolumes": {gvk("", "PersistentVolume"), false,
		`{"spec":{"capacity":{"storage":"1Gi"},"accessModes":["ReadWriteOnce"],"csi":{"driver":"d",` +
			`"volumeHandle":"h"}}}`},
	"persistentvolumeclaims": {gvk("", "PersistentVolumeClaim"), true,
		`{"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
	"csinodes":       {gvk("storage.k8s.io", "CSINode"), false, `{"spec":{"drivers":[]}}`},
	"storageclasses": {gvk("storage.k8s.io", "StorageClass"), false, `{"provisioner":"p"}`},
	"volumeattachments": {gvk("storage.k8s.io", "VolumeAttachment"), false,
		`{"spec":{"attacher":"a","nodeName":"n","source":{"persistentVolumeName":"v"}}}`},
	"endpointslices": {gvk("discovery.k8s.io", "EndpointSlice"), true,
		`{"addressType":"IPv4","endpoints":[]}`},
	"networkpolicies": {gvk("networking.k8s.io", "NetworkPolicy"), true, `{"spec":{"podSelector":{}}}`},
	"poddisruptionbudgets": {gvk("policy", "PodDisruptionBudget"), true,
		`{"spec":{"maxUnavailable":1,"selector":{"matchLabels":{"a":"b"}}}}`},
	"roles": {gvk("rbac.authorization.k8s.io", "Role"), true, `{"rules":[]}`},
	"rolebindings": {gvk("rbac.authorization.k8s.io", "RoleBinding"), true,
		`{"subjects":[{"kind":"User","name":"u"}],"roleRef":{"kind":"Role","name":"r"}}`},
}

// patches are the verbs that send a PATCH.
var patches = map[string]types.PatchType{
	"JSON": types.JSONPatchType, "MERGE": types.MergePatchType, "STRATEGIC": types.StrategicMergePatchType,
	"APPLY": types.ApplyYAMLPatchType,
}

// A side is one of the two servers, with what the story has seen there.
type side struct {
	client    *rest.RESTClient
	namespace string
	last      map[string]map[string]any // the newest state of each object, by path
	first     map[string]string         // its first resourceVersion
	continued string                    // of the last list
	begin     map[string]string         // resourceVersions of collections before the story
}

// newSide makes the namespace of a story, which touches some collections.
func newSide(t *testing.T, c *cluster.Cluster, namespace string, touched []string) *side {
	t.Helper()
	config := rest.CopyConfig(c.Config)
	config.GroupVersion, config.NegotiatedSerializer = &schema.GroupVersion{}, scheme.Codecs.WithoutConversion()
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.APIPath = "/"
	client := must.Get(rest.RESTClientFor(config)).Or(t)
	s := &side{
		client: client, namespace: namespace,
		last: map[string]map[string]any{}, first: map[string]string{}, begin: map[string]string{},
	}
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	must.Get(c.Client.CoreV1().Namespaces().Create(t.Context(), object, metav1.CreateOptions{})).Or(t)
	c.AllowPods(t, namespace, "default")
	for _, collection := range touched {
		raw := must.Get(client.Get().AbsPath(pathOf(collection, namespace, "")).DoRaw(t.Context())).Or(t)
		metadata, _ := decoded(t, raw)["metadata"].(map[string]any)
		s.begin[collection] = fmt.Sprint(metadata["resourceVersion"])
	}
	return s
}

// An outcome is what is compared of one operation.
type outcome struct {
	Code   int
	Reason metav1.StatusReason
	// Causes are the type and field of what a refusal names.
	Causes []string
	// Moved reports that the resourceVersion of the object is not the one of before.
	Moved bool
	// About is the kind and the name that a refusal names.
	About  string
	Object any

	message string // of a refusal, for people
}

func pathOf(collection, namespace, rest string) string {
	c := collections[collection]
	prefix := "/apis/" + c.Group + "/" + c.Version
	if c.Group == "" {
		prefix = "/api/" + c.Version
	}
	if c.namespaced {
		prefix += "/namespaces/" + namespace
	}
	return prefix + "/" + collection + rest
}

// do sends one operation.
func (s *side) do(t *testing.T, o operation) outcome {
	t.Helper()
	path, query, _ := strings.Cut(o.path, "?")
	collection, rest, _ := strings.Cut(path, "/")
	name, _, _ := strings.Cut(rest, "/")
	key := strings.TrimSuffix(collection+"/"+name, "/")
	k, known := collections[collection]
	if !known {
		t.Fatalf("%s: unknown collection", o)
	}
	if rest != "" {
		rest = "/" + rest
	}
	values := must.Get(url.ParseQuery(s.fill(query, key))).Or(t)
	method, contentType := o.verb, runtime.ContentTypeJSON
	if p, is := patches[o.verb]; is {
		method, contentType = http.MethodPatch, string(p)
	}
	if method != http.MethodGet && method != http.MethodDelete && !values.Has("fieldManager") {
		values.Set("fieldManager", "tester")
	}
	body := s.fill(o.body, key)
	switch {
	case strings.HasPrefix(body, "!"): // as it is
		body = body[1:]
	case o.verb == http.MethodPost:
		body = merged(t, merged(t, s.fill(k.body, key), typeMeta(k.GroupVersionKind)), body)
	case o.verb == "APPLY":
		body = merged(t, typeMeta(k.GroupVersionKind), body)
	case o.verb == http.MethodPut:
		before, err := json.Marshal(s.last[key])
		if err != nil || s.last[key] == nil {
			before = []byte("{}")
		}
		body = merged(t, string(before), body)
	}
	request := s.client.Verb(method).AbsPath(pathOf(collection, s.namespace, rest)).
		SetHeader("Content-Type", contentType).Body([]byte(body))
	for n, v := range values {
		request.Param(n, v[0])
	}
	var out outcome
	raw, err := request.Do(t.Context()).StatusCode(&out.Code).Raw()
	if err != nil && out.Code == 0 {
		t.Fatalf("%s: %v", o, err)
	}
	if err != nil {
		var status metav1.Status
		if err := json.Unmarshal(raw, &status); err != nil {
			t.Fatalf("%s: %v: %s", o, err, raw)
		}
		out.Reason, out.message = status.Reason, status.Message
		if d := status.Details; d != nil {
			out.About = d.Kind + " " + d.Name
			for _, c := range d.Causes {
				out.Causes = append(out.Causes, string(c.Type)+" "+c.Field)
			}
			slices.Sort(out.Causes)
			out.Causes = slices.Compact(out.Causes)
		}
		return out
	}
	s.learn(t, &out, o, key, raw)
	out.Object = s.normal(decoded(t, raw))
	return out
}

// learn remembers what a response says of an object.
func (s *side) learn(t *testing.T, out *outcome, o operation, key string, raw []byte) {
	t.Helper()
	object := decoded(t, raw)
	if _, list := object["items"]; list {
		metadata, _ := object["metadata"].(map[string]any)
		s.continued, _ = metadata["continue"].(string)
		return
	}
	metadata, ok := object["metadata"].(map[string]any)
	if object["kind"] == "Status" || !ok {
		return
	}
	if o.verb == http.MethodPost {
		key += "/" + fmt.Sprint(metadata["name"])
	}
	before, _ := s.last[key]["metadata"].(map[string]any)
	out.Moved = before["resourceVersion"] != metadata["resourceVersion"]
	if strings.Contains(o.path, "dryRun") {
		return
	}
	s.last[key] = object
	if before["uid"] != metadata["uid"] {
		s.first[key] = fmt.Sprint(metadata["resourceVersion"])
	}
}

// fill replaces what differs between the servers.
func (s *side) fill(text, key string) string {
	metadata, _ := s.last[key]["metadata"].(map[string]any)
	return strings.NewReplacer("$uid", fmt.Sprint(metadata["uid"]), "$rv", fmt.Sprint(metadata["resourceVersion"]),
		"$first", s.first[key], "$ns", s.namespace, "$continue", url.QueryEscape(s.continued)).Replace(text)
}

func decoded(t *testing.T, raw []byte) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &object); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return object
}

func typeMeta(k schema.GroupVersionKind) string {
	version, kind := k.ToAPIVersionAndKind()
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q}`, version, kind)
}

func merged(t *testing.T, base, patch string) string {
	t.Helper()
	if patch == "" {
		return base
	}
	out, err := jsonpatch.MergePatch([]byte(base), []byte(patch))
	if err != nil {
		t.Fatalf("%v: %s, %s", err, base, patch)
	}
	return string(out)
}

// normal removes what must differ from an object.
func (s *side) normal(object map[string]any) any {
	if items, list := object["items"].([]any); list {
		for _, item := range items {
			if o, ok := item.(map[string]any); ok {
				_, named := o["kind"]
				o["kind"] = strings.TrimSuffix(fmt.Sprint(object["kind"]), "List") // elements need not name theirs
				s.normal(o)
				o["kind"] = named
			}
		}
	}
	if d, ok := object["details"].(map[string]any); ok {
		d["uid"] = d["uid"] != nil
	}
	metadata, _ := object["metadata"].(map[string]any)
	if metadata["continue"] == "" {
		delete(metadata, "continue")
	}
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "continue"} {
		if _, there := metadata[field]; there {
			metadata[field] = "(set)"
		}
	}
	if stem, _ := metadata["generateName"].(string); stem != "" {
		metadata["name"] = strings.HasPrefix(fmt.Sprint(metadata["name"]), stem)
	}
	delete(metadata, "managedFields") // what a conflict names shows whom fields belong to
	for _, a := range allowed {
		if kind, _ := object["kind"].(string); slices.Contains(strings.Fields(a.kinds), kind) {
			drop(object, strings.Split(a.path, "."))
		}
	}
	return withoutEmpty(object)
}

// withoutEmpty removes nulls, empty texts and empty lists: a real server turns one into the other.
func withoutEmpty(value any) any {
	if list, ok := value.([]any); ok {
		for _, element := range list {
			withoutEmpty(element)
		}
	}
	if object, ok := value.(map[string]any); ok {
		for key, inner := range object {
			if list, ok := inner.([]any); inner == nil || inner == "" || ok && len(list) == 0 {
				delete(object, key)
			}
			withoutEmpty(inner)
		}
	}
	return value
}

// drop removes a field; a path leads through the elements of lists.
func drop(value any, path []string) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			drop(element, path)
		}
	case map[string]any:
		if len(path) == 1 {
			delete(value, path[0])
		} else {
			drop(value[path[0]], path[1:])
		}
	}
}

// events are what a watch of a collection shows of the story, up to an object that is made for that.
func (s *side) events(t *testing.T, collection string) (out []any) {
	t.Helper()
	end := "zz-" + s.namespace
	s.do(t, operation{http.MethodPost, collection, fmt.Sprintf(`{"metadata":{"name":%q}}`, end)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream := must.Get(s.client.Get().AbsPath(pathOf(collection, s.namespace, "")).Param("watch", "true").
		Param("resourceVersion", s.begin[collection]).Stream(ctx)).Or(t)
	defer func() { _ = stream.Close() }()
	lines := bufio.NewScanner(stream)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e struct {
			Type   string
			Object map[string]any
		}
		must.Do(t, json.Unmarshal(lines.Bytes(), &e))
		metadata, _ := e.Object["metadata"].(map[string]any)
		if metadata["name"] == end {
			return out
		}
		out = append(out, e.Type, s.normal(e.Object))
	}
	t.Fatalf("the watch of %s ended: %v", collection, lines.Err())
	return nil
}

// servers are the two that must agree.
func servers(t *testing.T) (simulated, real *cluster.Cluster) {
	t.Helper()
	var crds []*apiextensionsv1.CustomResourceDefinition
	for text := range strings.SplitSeq(definitions, "\n---\n") {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		must.Do(t, yaml.UnmarshalStrict([]byte(text), crd))
		crds = append(crds, crd)
	}
	return cluster.New(t, crds...), cluster.On(t, controlplane.Shared(t), crds...)
}

// number makes names unique: each story has its own namespace, and names of its own for objects of the whole cluster.
var number atomic.Int64

// agree plays a story on both servers and compares every outcome, and all events.
func agree(
	t *testing.T, report func(format string, args ...any), simulated, real *cluster.Cluster, operations []operation,
) (differ int) {
	t.Helper()
	namespace := fmt.Sprintf("s%d", number.Add(1))
	var touched []string
	for _, o := range operations {
		collection, _, _ := strings.Cut(o.path, "/")
		collection, _, _ = strings.Cut(collection, "?")
		touched = append(touched, collection)
	}
	slices.Sort(touched)
	touched = slices.Compact(touched)
	a, b := newSide(t, simulated, namespace, touched), newSide(t, real, namespace, touched)
	for _, o := range operations {
		o.path, o.body = strings.ReplaceAll(o.path, "~", namespace), strings.ReplaceAll(o.body, "~", namespace)
		is, want := a.do(t, o), b.do(t, o)
		if diff := cmp.Diff(want, is, cmpopts.IgnoreUnexported(outcome{})); diff != "" {
			differ++
			report("%s: the simulated server differs (-real +simulated): %s\n+ %s\n%s",
				o, want.message, is.message, diff)
		}
	}
	for _, collection := range touched {
		if diff := cmp.Diff(b.events(t, collection), a.events(t, collection)); diff != "" {
			differ++
			report("events of %s: the simulated server differs (-real +simulated):\n%s", collection, diff)
		}
	}
	return differ
}

// TestBothAgree plays fixed stories on the simulated server and on a real one.
func TestBothAgree(t *testing.T) {
	simulated, real := servers(t)
	operations, differ := 0, 0
	for _, s := range readStories(t) {
		t.Run(s.name, func(t *testing.T) {
			operations += len(s.operations)
			differ += agree(t, t.Errorf, simulated, real, s.operations)
		})
	}
	t.Logf("%d operations, %d differ", operations, differ)
}

// TestBothAgreeOnRandomStories plays random operations on a few objects of one kind.
func TestBothAgreeOnRandomStories(t *testing.T) {
	simulated, real := servers(t)
	kinds := []string{
		"nodes", "services", "configmaps", "leases", "secrets", "pods", "widgets", "gadgets", "deployments",
	}
	cases.Check(t, func(rt *rapid.T) {
		collection := rapid.SampledFrom(kinds).Draw(rt, "kind")
		var operations []operation
		for range rapid.IntRange(4, 16).Draw(rt, "length") {
			o := rapid.SampledFrom(moves(collection)).Draw(rt, "operation")
			name := rapid.SampledFrom([]string{"~-a", "~-b"}).Draw(rt, "name")
			o.path, o.body = strings.ReplaceAll(o.path, "NAME", name), strings.ReplaceAll(o.body, "NAME", name)
			operations = append(operations, o)
		}
		agree(t, rt.Errorf, simulated, real, operations)
	})
}

// moves are the operations that random stories are made of.
func moves(collection string) []operation {
	object := collection + "/NAME"
	out := []operation{
		{"POST", collection, `{"metadata":{"name":"NAME"}}`},
		{"POST", collection, `{"metadata":{"name":"NAME","finalizers":["test.example/a"],"labels":{"a":"b"}}}`},
		{"GET", object, ""},
		{"PUT", object, strings.TrimSuffix(typeMeta(collections[collection].GroupVersionKind), "}") +
			`,"metadata":{"name":"NAME","labels":{"n":"1"}}}`},
	}
	if slices.Contains([]string{"services", "leases"}, collection) {
		out = out[:len(out)-1] // a PUT can create them: the simulated server refuses that with a 501
	}
	for _, metadata := range []string{
		`{"labels":{"a":"b"}}`, `{"labels":{"a":null}}`, `{"annotations":{"x":"y"},"uid":"$uid","resourceVersion":"$rv"}`,
		`{"resourceVersion":"$first"}`, `{"uid":"wrong"}`, `{"finalizers":["test.example/a"]}`,
		`{"finalizers":["test.example/b"]}`, `{"finalizers":[]}`, `{"labels":{"a":"c"},"resourceVersion":"$first"}`,
	} {
		out = append(out, operation{"MERGE", object, `{"metadata":` + metadata + `}`})
	}
	spec := "" // without it a real server refuses to create some kinds
	if slices.Contains([]string{"services", "pods", "deployments"}, collection) {
		spec = strings.TrimSuffix(strings.TrimPrefix(collections[collection].body, "{"), "}") + ","
	}
	for _, query := range []string{"?fieldManager=one", "?fieldManager=two", "?fieldManager=two&force=true"} {
		for _, value := range []string{"1", "2"} {
			out = append(out, operation{"APPLY", object + query,
				`{` + spec + `"metadata":{"name":"NAME","labels":{"owned":"` + value + `"}}}`})
		}
	}
	for _, body := range []string{
		"", `{"preconditions":{"uid":"$uid"}}`, `{"preconditions":{"uid":"wrong"}}`,
		`{"preconditions":{"resourceVersion":"$rv"}}`, `{"preconditions":{"resourceVersion":"$first"}}`,
		`{"gracePeriodSeconds":0}`,
	} {
		out = append(out, operation{"DELETE", object, body})
	}
	return out
}
