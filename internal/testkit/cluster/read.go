// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

func isWatch(r *http.Request) bool {
	value := r.URL.Query().Get("watch")
	return r.Method == http.MethodGet && (value == "true" || value == "1")
}

// A filter is which objects a list or watch is about.
type filter struct {
	namespace, name string
	labels          labels.Selector
	fields          fields.Selector
}

func (q *request) filter() (f filter, err error) {
	f.namespace, f.name = q.namespace, q.name
	if f.labels, err = labels.Parse(q.query.Get("labelSelector")); err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	if f.fields, err = fields.ParseSelector(q.query.Get("fieldSelector")); err != nil {
		return f, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range f.fields.Requirements() {
		if r.Field != "metadata.name" && r.Field != "metadata.namespace" && !slices.Contains(q.k.fields, r.Field) {
			return f, apierrors.NewBadRequest("field label not supported: " + r.Field)
		}
	}
	return f, nil
}

func (f filter) matches(r *record) bool {
	return r != nil && (f.namespace == "" || f.namespace == r.object.GetNamespace()) && (f.name == "" || f.name == r.object.GetName()) &&
		f.labels.Matches(labels.Set(r.object.GetLabels())) && f.fields.Matches(fieldsOf{r.object})
}

// fieldsOf reads fields of an object by path.
type fieldsOf struct{ *unstructured.Unstructured }

// Has implements fields.Fields.
func (f fieldsOf) Has(path string) bool { return f.Get(path) != "" }

// Get implements fields.Fields.
func (f fieldsOf) Get(path string) string {
	value, found, _ := unstructured.NestedFieldNoCopy(f.Object, strings.Split(path, ".")...)
	if !found {
		if path == "spec.unschedulable" || path == "spec.hostNetwork" {
			return "false"
		}
		return ""
	}
	return fmt.Sprint(value)
}

// choose returns the objects that a request is about, and the revision of which that is true.
func (s *server) choose(q *request) ([]*record, int64, error) {
	f, err := q.filter()
	if err != nil {
		return nil, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(s.table(q.k).sorted(q.namespace), func(r *record) bool { return !f.matches(r) }), s.revision, nil
}

// list answers a list, in pages if a limit is given. A page begins after the key of the last one, in what there is by then.
func (s *server) list(q *request) ([]byte, error) {
	chosen, revision, err := s.choose(q)
	if err != nil {
		return nil, err
	}
	metadata := map[string]any{"resourceVersion": strconv.FormatInt(revision, 10)}
	key := func(r *record) string { return keyOf(r.object.GetNamespace(), r.object.GetName()) }
	if after := q.query.Get("continue"); after != "" {
		if !strings.Contains(after, "/") {
			return nil, apierrors.NewBadRequest("continue key is not valid: " + after)
		}
		chosen = slices.DeleteFunc(chosen, func(r *record) bool { return key(r) <= after })
	}
	if limit, _ := strconv.Atoi(q.query.Get("limit")); limit > 0 && len(chosen) > limit {
		if q.query.Get("labelSelector")+q.query.Get("fieldSelector") == "" {
			metadata["remainingItemCount"] = int64(len(chosen) - limit)
		}
		chosen = chosen[:limit]
		metadata["continue"] = key(chosen[limit-1])
	}
	return q.encodeList(chosen, metadata), nil
}

// encodeList is a list of objects. Elements of lists of built-in kinds have no apiVersion and kind of their own.
func (q *request) encodeList(chosen []*record, metadata map[string]any) []byte {
	version, kind := q.k.GroupVersion().String(), q.k.Kind+"List"
	if q.meta {
		version, kind = "meta.k8s.io/v1", "PartialObjectMetadataList"
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, `{"apiVersion":%q,"kind":%q,"metadata":%s,"items":[`, version, kind, mustJSON(metadata))
	for i, r := range chosen {
		if i > 0 {
			out.WriteByte(',')
		}
		if q.k.custom || q.meta {
			out.Write(q.encode(r))
			continue
		}
		content := maps.Clone(q.content(r))
		delete(content, "apiVersion")
		delete(content, "kind")
		out.Write(mustJSON(content))
	}
	out.WriteString("]}")
	return out.Bytes()
}

// A stream writes events to a client.
type stream struct {
	q   *request
	out http.ResponseWriter
}

func (w stream) send(event watch.EventType, body []byte) error {
	_, err := fmt.Fprintf(w.out, "{\"type\":%q,\"object\":%s}\n", event, body)
	if f, ok := w.out.(http.Flusher); ok && err == nil {
		f.Flush()
	}
	return err
}

// bookmark says up to which revision everything has been sent.
func (w stream) bookmark(revision int64, initial bool) error {
	metadata := map[string]any{"resourceVersion": strconv.FormatInt(revision, 10), "creationTimestamp": nil}
	if initial {
		metadata["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	version, kind := w.q.k.GroupVersion().String(), w.q.k.Kind
	if w.q.meta {
		version, kind = "meta.k8s.io/v1", "PartialObjectMetadata"
	}
	return w.send(watch.Bookmark, mustJSON(map[string]any{"apiVersion": version, "kind": kind, "metadata": metadata}))
}

// watch streams changes until the client goes, the time is over, or the history is forgotten.
func (s *server) watch(w http.ResponseWriter, q *request) error {
	f, err := q.filter()
	if err != nil {
		return err
	}
	out, revision := stream{q: q, out: w}, int64(0)
	given := q.query.Get("resourceVersion")
	initial := q.query.Get("sendInitialEvents") == "true"
	if given != "" && given != "0" && !initial {
		if revision, err = strconv.ParseInt(given, 10, 64); err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(http.StatusOK)
	if fl, ok := w.(http.Flusher); ok {
		fl.Flush()
	}
	if revision == 0 {
		var chosen []*record
		if chosen, revision, err = s.choose(q); err != nil {
			return nil //nolint:nilerr // the filter was read above
		}
		for _, r := range chosen {
			if out.send(watch.Added, q.encode(r)) != nil {
				return nil //nolint:nilerr // the client has gone
			}
		}
		if initial && out.bookmark(revision, true) != nil {
			return nil //nolint:nilerr // as above
		}
	}
	s.follow(out, f, revision)
	return nil
}

// follow streams what comes after a revision.
func (s *server) follow(out stream, f filter, revision int64) {
	var over <-chan time.Time
	if seconds, _ := strconv.Atoi(out.q.query.Get("timeoutSeconds")); seconds > 0 {
		timer := time.NewTimer(time.Duration(seconds) * time.Second)
		defer timer.Stop()
		over = timer.C
	}
	for {
		changes, more, known := s.since(out.q.k, revision)
		if !known {
			expired := apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d", revision)).Status()
			expired.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			_ = out.send(watch.Error, mustJSON(expired))
			return
		}
		for _, c := range changes {
			if event := f.event(c); event != "" && out.send(event, out.q.encode(c.is)) != nil {
				return
			}
			revision = c.revision
		}
		select {
		case <-out.q.Context().Done():
			return
		case <-over:
			return
		case <-more:
		}
	}
}

// event is what a change is to who looks through the filter: an object that no longer matches is gone.
func (f filter) event(c change) watch.EventType {
	was, is := f.matches(c.was), f.matches(c.is) && c.kind != watch.Deleted
	switch {
	case was && is:
		return watch.Modified
	case is:
		return watch.Added
	case was:
		return watch.Deleted
	}
	return ""
}
