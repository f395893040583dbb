// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What was listed of all namespaces is not asked for again, object by object or namespace by namespace, in whatever
// form: each client gets what the API server itself would have responded.
func TestPartsOfAListAreNotReadAgain(t *testing.T) {
	t.Parallel()
	cluster := controlplane.Lend(t)
	var sent atomic.Int32
	config := rest.CopyConfig(cluster.Config)
	config.QPS = -1
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			sent.Add(1)
			return next.RoundTrip(r)
		})
	})
	config.Wrap(remembering)
	typed := must.Get(Typed(config)).Or(t)
	inJSON := must.Get(kubernetes.NewForConfig(config)).Or(t)
	untyped := must.Get(dynamic.NewForConfig(config)).Or(t).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	bare := must.Get(metadata.NewForConfig(config)).Or(t).Resource(corev1.SchemeGroupVersion.WithResource("configmaps"))
	for _, namespace := range []string{"default", "kube-public"} {
		for i := range Page/2 + 1 { // two pages
			object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("c%d", i)}, Data: map[string]string{"k": namespace}}
			must.Get(typed.CoreV1().ConfigMaps(namespace).Create(t.Context(), object, metav1.CreateOptions{})).Or(t)
		}
	}
	once := Once(t.Context())
	wide := must.Get(All[corev1.ConfigMap](once, "ConfigMaps", typed.CoreV1().ConfigMaps("").List)).Or(t)
	if len(wide) <= Page {
		t.Fatalf("%d ConfigMaps are one page", len(wide))
	}
	get, byName := metav1.GetOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=c7"}
	for what, ask := range map[string]func(context.Context) (any, error){
		"one": func(ctx context.Context) (any, error) {
			return typed.CoreV1().ConfigMaps("default").Get(ctx, "c7", get)
		},
		"one, in JSON": func(ctx context.Context) (any, error) {
			return inJSON.CoreV1().ConfigMaps("default").Get(ctx, "c8", get)
		},
		"one, untyped": func(ctx context.Context) (any, error) { return untyped.Namespace("kube-public").Get(ctx, "c9", get) },
		"none": func(ctx context.Context) (any, error) {
			return typed.CoreV1().ConfigMaps("default").Get(ctx, "nosuch", get)
		},
		"by name": func(ctx context.Context) (any, error) {
			l, err := typed.CoreV1().ConfigMaps("").List(ctx, byName)
			return l.Items, err
		},
		"a namespace": func(ctx context.Context) (any, error) {
			l, err := inJSON.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{})
			return l.Items, err
		},
		"a namespace, untyped": func(ctx context.Context) (any, error) {
			l, err := untyped.Namespace("kube-public").List(ctx, metav1.ListOptions{})
			return l.Items, err
		},
		"metadata": func(ctx context.Context) (any, error) {
			l, err := bare.Namespace("default").List(ctx, metav1.ListOptions{})
			if l == nil {
				return nil, err
			}
			for i := range l.Items {
				l.Items[i].TypeMeta = metav1.TypeMeta{} // some responses have it
			}
			return l.Items, err
		},
	} {
		direct, directErr := ask(t.Context())
		before := sent.Load()
		narrow, narrowErr := ask(once)
		if n := sent.Load() - before; n != 0 {
			t.Errorf("%s: %d requests", what, n)
		}
		if diff := cmp.Diff(direct, narrow); diff != "" || apierrors.ReasonForError(directErr) != apierrors.ReasonForError(narrowErr) {
			t.Errorf("%s: %v, not %v\n%.2000s", what, narrowErr, directErr, diff)
		}
	}
	named := Once(t.Context())
	must.Get(typed.CoreV1().ConfigMaps("").List(named, byName)).Or(t)
	before := sent.Load()
	if one := must.Get(inJSON.CoreV1().ConfigMaps("default").Get(named, "c7", get)).Or(t); one.Data["k"] != "default" || sent.Load() != before {
		t.Errorf("what was listed by its name is asked for again: %+v", one)
	}
	if _, err := inJSON.CoreV1().ConfigMaps("default").Get(named, "c8", get); err != nil || sent.Load() != before+1 {
		t.Errorf("another name: %v", err)
	}
	for what, options := range map[string]metav1.ListOptions{
		"by label": {LabelSelector: "a=b"}, "by another field": {FieldSelector: "metadata.namespace=default"},
	} {
		before := sent.Load()
		must.Get(typed.CoreV1().ConfigMaps("").List(once, options)).Or(t)
		if sent.Load() == before {
			t.Errorf("%s: the API server was not asked", what)
		}
	}
}

// What the API server says of the moment is not what it says to the next one: who is told to come again gets a
// response.
func TestAMomentIsNotRemembered(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "0")
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"TooManyRequests","code":429}`, http.StatusTooManyRequests)
			return
		}
		fmt.Fprint(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}`)
	}))
	t.Cleanup(server.Close)
	config := &rest.Config{Host: server.URL}
	config.Wrap(remembering)
	client := must.Get(kubernetes.NewForConfig(config)).Or(t)
	once := Once(t.Context())
	for range 2 {
		must.Get(client.CoreV1().Nodes().List(once, metav1.ListOptions{})).Or(t)
	}
	if n := asked.Load(); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// What no APIService serves is not asked for, and what a list leaves out is.
func TestWhatIsServedAndWhatIsLeftOut(t *testing.T) {
	t.Parallel()
	var sent []string
	next := roundTripper(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.URL.Path)
		items := map[string]string{
			"/apis/apiregistration.k8s.io/v1/apiservices": `{"metadata":{"name":"v1.coordination.k8s.io"}}`,
			"/apis/coordination.k8s.io/v1/leases":         `{"metadata":{"name":"a","namespace":"b"}}`,
		}[r.URL.Path]
		recorder := httptest.NewRecorder()
		recorder.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(recorder, `{"apiVersion":"x/v1","kind":"XList","metadata":{},"items":[%s]}`, items)
		return recorder.Result(), nil
	})
	once := Once(t.Context())
	ask := func(path string) int {
		request := must.Get(http.NewRequestWithContext(once, http.MethodGet, "https://api"+path, nil)).Or(t)
		response, err := remembering(next).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		return response.StatusCode
	}
	for _, path := range []string{"/apis/x.io/v1/early", "/apis/apiregistration.k8s.io/v1/apiservices", "/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.namespace!%3Dnodes"} {
		if code := ask(path); code != http.StatusOK {
			t.Errorf("%s: %d", path, code)
		}
	}
	for path, want := range map[string]int{
		"/apis/x.io/v1/late": http.StatusNotFound, "/apis/x.io/v1": http.StatusNotFound,
		"/apis/coordination.k8s.io/v1/namespaces/b/leases/a": http.StatusOK, "/apis/coordination.k8s.io/v1/namespaces/b/leases/c": http.StatusNotFound,
	} {
		if code := ask(path); code != want {
			t.Errorf("%s: %d, want %d", path, code, want)
		}
	}
	if len(sent) != 3 {
		t.Errorf("what the lists show was asked for again: %q", sent)
	}
	ask("/apis/coordination.k8s.io/v1/namespaces/nodes/leases/a")
	ask("/apis/coordination.k8s.io/v1/leases")
	if len(sent) != 5 {
		t.Errorf("what a list leaves out was not asked for: %q", sent)
	}
}
