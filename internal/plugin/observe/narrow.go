// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// place is what a path of the API server names: objects of a kind in all namespaces or in one, or one object.
type place struct {
	// kind is the beginning of the path, such as /api/v1/nodes.
	kind, namespace, name string
}

// placeOf reads a path; ok is false for what is not a kind's objects, such as discovery, or a part of one.
func placeOf(address string) (p place, ok bool) {
	parts := strings.Split(strings.Trim(address, "/"), "/")
	head := 3 // apis, group, version
	if parts[0] == "api" {
		head = 2
	}
	if len(parts) <= head || parts[0] != "api" && parts[0] != "apis" {
		return p, false
	}
	rest := parts[head:]
	if rest[0] == "namespaces" && len(rest) > 2 {
		p.namespace, rest = rest[1], rest[2:]
	}
	p.kind = "/" + path.Join(path.Join(parts[:head]...), rest[0])
	if len(rest) > 1 {
		p.name = rest[1]
	}
	return p, len(rest) <= 2
}

// chooses returns the name that a query chooses among objects, "" for all of them, and the namespace that it leaves out; ok
// is false if it chooses otherwise.
func chooses(query url.Values) (name, except string, ok bool) {
	for key, values := range query {
		selected, byName := strings.CutPrefix(values[0], "metadata.name=")
		others, byOthers := strings.CutPrefix(values[0], "metadata.namespace!=")
		switch {
		case key == "limit", key == "timeout":
		case key == "fieldSelector" && byName && !strings.Contains(selected, ","):
			name = selected
		case key == "fieldSelector" && byOthers && !strings.Contains(others, ","):
			except = others
		default:
			return "", "", false
		}
	}
	return name, except, true
}

// wide is a list of all objects of a kind, or of all with a name, page by page. It may leave a namespace out.
type wide struct {
	except string
	pages  []*remembered
	once   sync.Once
	kind   schema.GroupVersionKind // of the objects
	items  []runtime.Object
	whole  bool
}

// note keeps a page of a list of all objects of a kind, or of all with a name.
func (m *memo) note(r *http.Request, e *remembered) {
	query := r.URL.Query()
	next := query.Get("continue") != ""
	query.Del("continue")
	name, except, all := chooses(query)
	p, ok := placeOf(r.URL.Path)
	whole := ok && all && p.namespace+p.name+shownAs(r) == ""
	if !whole || e.response.StatusCode != http.StatusOK {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	key := p.kind + "/" + name
	if m.lists[key] == nil || !next {
		m.lists[key] = &wide{except: except}
	}
	m.lists[key].pages = append(m.lists[key].pages, e)
}

// read decodes the pages; the list is whole if each page is the one after the page before.
func (w *wide) read() {
	following := ""
	for _, e := range w.pages {
		page, kind, err := decode(e.body)
		list, isList := page.(metav1.ListInterface)
		if err != nil || !isList || e.by.URL.Query().Get("continue") != following {
			return
		}
		w.kind = kind.GroupVersion().WithKind(strings.TrimSuffix(kind.Kind, "List"))
		following = list.GetContinue()
		_ = apimeta.EachListItem(page, func(o runtime.Object) error {
			w.items = append(w.items, o)
			return nil
		})
	}
	w.whole = following == ""
}

// decode reads an object or a list in any form.
func decode(body []byte) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if runtime.IsNotRegisteredError(err) {
		return unstructured.UnstructuredJSONScheme.Decode(body, nil, nil)
	}
	return object, kind, err
}

// wider is the whole list of all objects of the kind that a request is about, nil without it, or if the request itself
// was responded to.
func (m *memo) wider(r *http.Request, p place) *wide {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range []string{p.kind + "/", p.kind + "/" + p.name} {
		if w := m.lists[key]; w != nil && m.seen[keyOf(r)] == nil {
			has := w.except == "" || p.namespace != w.except && p.namespace+p.name != ""
			if w.once.Do(w.read); w.whole && has {
				return w
			}
		}
	}
	return nil
}

// narrowed is the response to a request for some objects of a kind of which all were read; nil if they were not, or if
// the request is for all of them as they are.
func (m *memo) narrowed(r *http.Request) *http.Response {
	if m.unserved(r.URL.Path) {
		return respond(r, http.StatusNotFound, apierrors.NewGenericServerResponse(http.StatusNotFound, "get", schema.GroupResource{}, "", "", 0, true).Status())
	}
	p, ok := placeOf(r.URL.Path)
	name, except, chosen := chooses(r.URL.Query())
	if !ok || except != "" || !chosen || p.name != "" && name != "" {
		return nil
	}
	single := p.name != ""
	p.name += name
	w := m.wider(r, p)
	if w == nil {
		return nil
	}
	as, kind, listKind := shownAs(r), w.kind, w.kind.Kind+"List"
	if as != "" {
		kind = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
		listKind = kind.Kind + "List"
	}
	items := w.chosen(p, as != "")
	switch {
	case !single:
		of := metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: listKind}
		return respond(r, http.StatusOK, listOf{TypeMeta: of, Items: items})
	case len(items) == 0:
		resource := schema.GroupResource{Group: w.kind.Group, Resource: path.Base(p.kind)}
		return respond(r, http.StatusNotFound, apierrors.NewNotFound(resource, p.name).Status())
	}
	object := items[0].DeepCopyObject()
	object.GetObjectKind().SetGroupVersionKind(kind)
	return respond(r, http.StatusOK, object)
}

// unserved reports that the group and the version of a path are not among the APIServices, if those were read.
func (m *memo) unserved(address string) bool {
	m.mu.Lock()
	w := m.lists[apiServices]
	m.mu.Unlock()
	parts := strings.Split(strings.Trim(address, "/"), "/")
	if w == nil || len(parts) < 3 || parts[0] != "apis" {
		return false
	}
	w.once.Do(w.read)
	return w.whole && len(w.chosen(place{name: parts[2] + "." + parts[1]}, true)) == 0
}

// apiServices is where the list of [APIServices] is kept.
const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices/"

// chosen are the objects of a namespace, and of a name, where a place names them; bare leaves their metadata alone.
func (w *wide) chosen(p place, bare bool) []runtime.Object {
	out := []runtime.Object{}
	for _, item := range w.items {
		object, err := apimeta.Accessor(item)
		switch {
		case err != nil:
		case p.namespace != "" && object.GetNamespace() != p.namespace, p.name != "" && object.GetName() != p.name:
		case bare:
			out = append(out, apimeta.AsPartialObjectMetadata(object))
		default:
			out = append(out, item)
		}
	}
	return out
}

// listOf is a list of any kind as the API server writes it.
type listOf struct {
	metav1.TypeMeta `json:",inline"`

	Metadata metav1.ListMeta  `json:"metadata"`
	Items    []runtime.Object `json:"items"`
}

// shownAs is what a request wants to be shown of objects, "" for all of them.
func shownAs(r *http.Request) string {
	_, as, _ := strings.Cut(r.Header.Get("Accept"), ";as=")
	as, _, _ = strings.Cut(as, ";")
	return as
}

// respond is a response in JSON, which every client understands; nil for what has no such form.
func respond(r *http.Request, code int, value any) *http.Response {
	body, err := json.Marshal(value)
	if err != nil {
		return nil
	}
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header:        http.Header{"Content-Type": {runtime.ContentTypeJSON}},
		ContentLength: int64(len(body)), Body: io.NopCloser(bytes.NewReader(body)),
	}
}
