// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/kubernetes/scheme"
)

// A server is the simulated API server.
type server struct {
	*store

	kindsMu sync.Mutex // guards kinds
	kinds   []*kind
}

func newServer() *server {
	s := &server{store: newStore(), kinds: builtInKinds()}
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
		namespace.SetName(name)
		k := s.kind(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"})
		if _, err := s.create(write{k: k, name: name, manager: "kube-apiserver"}, namespace, false); err != nil {
			panic("cluster: " + err.Error())
		}
	}
	return s
}

// serve adds the kinds of a definition.
func (s *server) serve(crd *apiextensionsv1.CustomResourceDefinition) error {
	kinds, err := customKinds(crd)
	if err != nil {
		return err
	}
	s.kindsMu.Lock()
	defer s.kindsMu.Unlock()
	s.kinds = append(slices.DeleteFunc(slices.Clone(s.kinds), func(k *kind) bool {
		return k.Group == crd.Spec.Group && k.plural == crd.Spec.Names.Plural
	}), kinds...)
	return nil
}

func (s *server) served() []*kind {
	s.kindsMu.Lock()
	defer s.kindsMu.Unlock()
	return s.kinds
}

// kind returns nil for a resource that is not served.
func (s *server) kind(resource schema.GroupVersionResource) *kind {
	for _, k := range s.served() {
		if k.resource() == resource {
			return k
		}
	}
	return nil
}

// A request is one request about a kind.
type request struct {
	*http.Request

	write
	query url.Values
	// meta reports that only the metadata is wanted.
	meta bool
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Impersonate-User") != "" {
		fail(w, apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "rights of " + r.Header.Get("Impersonate-User")},
			"judge: the simulated server allows everything, use cluster.Real"))
		return
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if out := s.discover(path); out != nil {
		answer(w, http.StatusOK, mustJSON(out))
		return
	}
	if path[0] == "readyz" || path[0] == "healthz" || path[0] == "livez" {
		answer(w, http.StatusOK, []byte("ok"))
		return
	}
	q, err := s.parse(path, r)
	if err == nil && isWatch(r) {
		err = s.watch(w, q)
	} else if err == nil {
		var status int
		var body []byte
		if status, body, err = s.handle(q); err == nil { //nolint:contextcheck // rules of CEL are evaluated at once
			answer(w, status, body)
		}
	}
	if err != nil {
		fail(w, err)
	}
}

func answer(w http.ResponseWriter, status int, body []byte) {
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

func fail(w http.ResponseWriter, err error) {
	out := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		out = status.Status()
	}
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	answer(w, int(out.Code), mustJSON(out))
}

// parse finds out which kind and object a request is about.
func (s *server) parse(path []string, r *http.Request) (*request, error) { //nolint:gocyclo // one case for each part of a path
	q := &request{Request: r, query: r.URL.Query(), meta: strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")}
	var resource schema.GroupVersionResource
	switch {
	case path[0] == "api" && len(path) > 2:
		resource.Version, path = path[1], path[2:]
	case path[0] == "apis" && len(path) > 3:
		resource.Group, resource.Version, path = path[1], path[2], path[3:]
	default:
		return nil, notServed()
	}
	if path[0] == "namespaces" && len(path) > 2 && path[2] != "status" && path[2] != "finalize" {
		q.namespace, path = path[1], path[2:]
	}
	resource.Resource = path[0]
	if q.k = s.kind(resource); q.k == nil && resource.Group != authorizationGroup {
		return nil, notServed()
	}
	if len(path) > 1 {
		q.name = path[1]
	}
	if len(path) > 2 {
		if q.subresource = path[2]; q.subresource != "status" || !q.k.status {
			if q.k.custom {
				return nil, q.notFound()
			}
			return nil, notServed()
		}
	}
	q.manager = managerOf(q.query.Get("fieldManager"), r.UserAgent())
	q.dryRun = q.query.Get("dryRun") == metav1.DryRunAll
	return q, nil
}

func notServed() error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: "the server could not find the requested resource", Details: &metav1.StatusDetails{},
	}}
}

// handle does everything but watches.
func (s *server) handle(q *request) (status int, body []byte, err error) {
	var r *record
	status = http.StatusOK
	switch {
	case q.k == nil || q.k.Group == authenticationv1.GroupName:
		return s.authorize(q)
	case q.Method == http.MethodGet && q.name == "":
		body, err = s.list(q)
		return status, body, err
	case q.Method == http.MethodGet:
		r, err = s.get(q.write)
	case q.Method == http.MethodPost && q.name == "":
		status = http.StatusCreated
		r, err = s.post(q)
	case q.Method == http.MethodPut && q.name != "":
		r, err = s.put(q)
	case q.Method == http.MethodPatch && q.name != "":
		r, status, err = s.patchRequest(q)
	case q.Method == http.MethodDelete:
		return s.deleteRequest(q)
	default:
		err = apierrors.NewMethodNotSupported(q.k.groupResource(), strings.ToLower(q.Method))
	}
	if err != nil {
		return 0, nil, err
	}
	return status, q.encode(r), nil
}

func (s *server) get(w write) (*record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.table(w.k).objects[w.key()]; r != nil {
		return r, nil
	}
	return nil, w.notFound()
}

func (s *server) put(q *request) (*record, error) {
	if err := q.checkOptions(""); err != nil {
		return nil, err
	}
	object, err := q.object()
	if err != nil {
		return nil, err
	}
	if _, err := s.get(q.write); err != nil && slices.Contains(createdByPut(), q.k.groupResource().String()) {
		return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusNotImplemented,
			Message: "the simulated server does not create a " + q.k.Kind + " by a PUT, as a real one does: add it to package cluster",
		}}
	}
	return s.replace(q.write, object)
}

// createdByPut are the kinds of which a PUT creates what does not exist.
func createdByPut() []string {
	return []string{
		"services", "endpoints", "events", "events.events.k8s.io", "leases.coordination.k8s.io",
		"roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
		"clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
	}
}

func (s *server) deleteRequest(q *request) (status int, body []byte, err error) {
	if q.name == "" {
		return s.deleteAll(q)
	}
	return s.deleteOne(q)
}

func (s *server) post(q *request) (*record, error) {
	if err := q.checkOptions(""); err != nil {
		return nil, err
	}
	object, err := q.object()
	if err != nil {
		return nil, err
	}
	if n := object.GetNamespace(); n != "" && n != q.namespace {
		return nil, apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	}
	return s.create(q.write, object, false)
}

// checkOptions checks the options of a write.
func (q *request) checkOptions(kind types.PatchType) error {
	options := &metav1.PatchOptions{}
	if err := metav1.Convert_url_Values_To_v1_PatchOptions(&q.query, options, nil); err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	if errs := metav1validation.ValidatePatchOptions(options, kind); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "PatchOptions"}, "", errs)
	}
	return nil
}

func (s *server) patchRequest(q *request) (r *record, status int, err error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, 0, err
	}
	kind, _, err := mime.ParseMediaType(q.Header.Get("Content-Type"))
	if err != nil {
		return nil, 0, apierrors.NewBadRequest(err.Error())
	}
	if err := q.checkOptions(types.PatchType(kind)); err != nil {
		return nil, 0, err
	}
	if types.PatchType(kind) == types.ApplyYAMLPatchType {
		return s.apply(q.write, body, q.query.Get("force") == "true")
	}
	r, err = s.patch(q.write, types.PatchType(kind), body)
	return r, http.StatusOK, err
}

func (s *server) deleteOne(q *request) (int, []byte, error) {
	options, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	q.dryRun = q.dryRun || len(options.DryRun) > 0
	r, whole, err := s.delete(q.write, options)
	if err != nil {
		return 0, nil, err
	}
	if whole {
		return http.StatusOK, q.encode(r), nil
	}
	return http.StatusOK, mustJSON(metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess,
		Details: &metav1.StatusDetails{Name: q.name, Group: q.k.Group, Kind: q.k.plural, UID: r.object.GetUID()},
	}), nil
}

func (s *server) deleteAll(q *request) (int, []byte, error) {
	options, err := q.deleteOptions()
	if err != nil {
		return 0, nil, err
	}
	chosen, revision, err := s.choose(q)
	if err != nil {
		return 0, nil, err
	}
	for _, r := range chosen {
		one := q.write
		one.namespace, one.name = r.object.GetNamespace(), r.object.GetName()
		if _, _, err := s.delete(one, deletionOptions(options)); err != nil && !apierrors.IsNotFound(err) {
			return 0, nil, err
		}
	}
	return http.StatusOK, q.encodeList(chosen, map[string]any{"resourceVersion": strconv.FormatInt(revision, 10)}), nil
}

const authorizationGroup = "authorization.k8s.io"

// authorize allows everything, and takes everybody for the administrator: what a program's rights are is a matter of real servers.
func (s *server) authorize(q *request) (int, []byte, error) {
	object, err := q.object()
	if err != nil {
		return 0, nil, err
	}
	object.Object["status"] = map[string]any{"allowed": true}
	if object.GetKind() == "SelfSubjectReview" {
		object.Object["status"] = map[string]any{"userInfo": map[string]any{"username": "administrator"}}
	}
	return http.StatusCreated, mustJSON(object.Object), nil
}

// object reads the object that a request carries, as JSON or protobuf, in the form in which it is kept.
func (q *request) object() (*unstructured.Unstructured, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	out := &unstructured.Unstructured{}
	if strings.HasPrefix(q.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if body, err = json.Marshal(typed); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if err := json.Unmarshal(body, &out.Object); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		out.SetGroupVersionKind(*kind)
	} else if err := json.Unmarshal(body, &out.Object); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if q.k == nil {
		return out, nil
	}
	if given := out.GroupVersionKind(); given != q.k.GroupVersionKind && given.Kind != "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the object is a %s, and the resource is %s", given, q.k.resource()))
	}
	out.SetGroupVersionKind(q.k.GroupVersionKind)
	out.Object = renameFields(out.Object, q.k.renamed)
	return out, nil
}

// deleteOptions are in the body or in the query.
func (q *request) deleteOptions() (*metav1.DeleteOptions, error) {
	out, err := q.readDeleteOptions()
	if err != nil {
		return nil, err
	}
	if errs := metav1validation.ValidateDeleteOptions(out); len(errs) > 0 {
		return nil, apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "DeleteOptions"}, "", errs)
	}
	return out, nil
}

func (q *request) readDeleteOptions() (*metav1.DeleteOptions, error) {
	body, err := io.ReadAll(q.Body)
	if err != nil {
		return nil, err
	}
	out := &metav1.DeleteOptions{}
	if len(body) == 0 {
		return out, metav1.Convert_url_Values_To_v1_DeleteOptions(&q.query, out, nil)
	}
	if strings.HasPrefix(q.Header.Get("Content-Type"), runtime.ContentTypeProtobuf) {
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, &schema.GroupVersionKind{Version: "v1", Kind: "DeleteOptions"}, out); err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return out, nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return out, nil
}

// encode is what is sent of a state of an object.
func (q *request) encode(r *record) []byte {
	if !q.meta && q.k.renamed == nil && r.object.GetAPIVersion() == q.k.GroupVersion().String() {
		return r.text
	}
	return mustJSON(q.content(r))
}

// content is an object as the request wants it. It shares what is in it.
func (q *request) content(r *record) map[string]any {
	if q.meta {
		return map[string]any{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": r.object.Object["metadata"]}
	}
	back := map[string]string{}
	for from, to := range q.k.renamed {
		back[to] = from
	}
	out := renameFields(r.object.Object, back)
	out["apiVersion"], out["kind"] = q.k.GroupVersion().String(), q.k.Kind
	return out
}

// discover answers what is served, or nil.
func (s *server) discover(path []string) any {
	switch {
	case path[0] == "version":
		return version.Info{Major: "1", Minor: "36", GitVersion: Version}
	case path[0] == "api" && len(path) == 1:
		return metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case path[0] == "apis" && len(path) == 1:
		return s.groups()
	case path[0] == "api" && len(path) == 2:
		return s.resources(schema.GroupVersion{Version: path[1]})
	case path[0] == "apis" && len(path) == 3:
		return s.resources(schema.GroupVersion{Group: path[1], Version: path[2]})
	case path[0] == "apis" && len(path) == 2:
		for _, g := range s.groups().Groups {
			if g.Name == path[1] {
				return g
			}
		}
	}
	return nil
}

// Version is what the simulated server says it is.
const Version = "v1.36.0-simulated"

func (s *server) groups() metav1.APIGroupList {
	out := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	at := map[string]int{}
	for _, k := range s.served() {
		if k.Group == "" {
			continue
		}
		i, seen := at[k.Group]
		if !seen {
			i = len(out.Groups)
			at[k.Group] = i
			out.Groups = append(out.Groups, metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: k.Group})
		}
		v := metav1.GroupVersionForDiscovery{GroupVersion: k.GroupVersion().String(), Version: k.Version}
		if g := &out.Groups[i]; !slices.Contains(g.Versions, v) {
			g.Versions = append(g.Versions, v)
			g.PreferredVersion = g.Versions[0]
		}
	}
	return out
}

func (s *server) resources(version schema.GroupVersion) any {
	out := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: version.String()}
	for _, k := range s.served() {
		if k.GroupVersion() != version {
			continue
		}
		out.APIResources = append(out.APIResources, metav1.APIResource{
			Name: k.plural, SingularName: strings.ToLower(k.Kind), Namespaced: k.namespaced, Kind: k.Kind,
			Verbs: metav1.Verbs{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"},
		})
		if k.status {
			out.APIResources = append(out.APIResources, metav1.APIResource{
				Name: k.plural + "/status", Namespaced: k.namespaced, Kind: k.Kind, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
	}
	if len(out.APIResources) == 0 {
		return nil
	}
	return out
}
