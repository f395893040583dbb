// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/clock"

	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

func noDatastore(t *testing.T) {
	t.Helper()
	for _, name := range []string{"DATASTORE_TYPE", "CALICO_DATASTORE_TYPE", "ETCD_ENDPOINTS", "CALICO_ETCD_ENDPOINTS"} {
		t.Setenv(name, "")
	}
}

func state() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "mooring-system", Name: nodesynccontroller.StateName}}
}

// Only a state that does not exist proves that no calico-node-sync runs. One that may not be read, and a Calico that is not where it was looked for, are unread.
func TestNodeSyncIsUnreadUntilItWasRead(t *testing.T) {
	noDatastore(t)
	look := func(typed *fake.Clientset) []finding.Finding {
		c := &observe.Cluster{Config: &rest.Config{Host: "http://127.0.0.1:0"}, Typed: typed, Namespaces: []string{"mooring-system", "kube-system"}}
		return lookAtNodeSync(t.Context(), New(c, clock.RealClock{}))
	}
	if found := look(fake.NewClientset()); len(found) > 0 {
		t.Errorf("without a state: %+v", found)
	}
	forbidding := func(objects ...runtime.Object) *fake.Clientset {
		typed := fake.NewClientset(objects...)
		typed.PrependReactor("*", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
			err := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, nodesynccontroller.StateName, errors.New("no"))
			return action.GetNamespace() == "kube-system" || action.Matches("list", "configmaps"), nil, err
		})
		return typed
	}
	unread := func(found []finding.Finding, what, do string) {
		t.Helper()
		if len(found) != 1 || !found[0].Unread || found[0].Severity != finding.Warning || found[0].Check != "nodesync" ||
			!strings.Contains(found[0].What, what) || !strings.Contains(found[0].Do, do) {
			t.Errorf("got %+v, want one that is unread, with %q and %q", found, what, do)
		}
	}
	unread(look(forbidding()), "reading ConfigMap kube-system/"+nodesynccontroller.StateName, "request the right")
	unread(look(forbidding(state())), observe.ErrNoCalico.Error(), "calico-node-sync doctor")
}

// What is a part of all doctors sweeps nothing, and leaves to agreement what that tells with its age.
func TestNodeSyncOfAllReadsLittle(t *testing.T) {
	t.Parallel()
	d := nodeSyncDoctor(&observe.Cluster{})
	if d.Settings.Config.SweepPeriod != 0 || !d.ForPerson || !d.Among {
		t.Errorf("%+v", d)
	}
	if all := All(); all[len(all)-1].Name != "nodesync" {
		t.Error("nodesync is not the last")
	}
}

// slow is an API server with a state of calico-node-sync and a Calico. Before it answers anything else, asked is called; then it fails.
func slow(t *testing.T, asked func()) *observe.Cluster {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch r.URL.Path {
		case "/version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.34.1"}`))
		case "/apis/" + observe.CalicoKinds:
			_, _ = w.Write([]byte(`{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"` + observe.CalicoKinds + `","resources":[]}`))
		case "/api/v1/configmaps":
			_, _ = w.Write([]byte(`{"kind":"ConfigMapList","apiVersion":"v1","items":[{"metadata":{"name":"` + nodesynccontroller.StateName + `","namespace":"mooring-system"}}]}`))
		case "/api/v1/namespaces/mooring-system/configmaps/" + nodesynccontroller.StateName:
			_, _ = w.Write([]byte(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"` + nodesynccontroller.StateName + `","namespace":"mooring-system"}}`))
		default:
			asked()
			http.Error(w, "{}", http.StatusGatewayTimeout)
		}
	}))
	t.Cleanup(api.Close)
	config := &rest.Config{Host: api.URL}
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &observe.Cluster{Config: config, Typed: typed, Namespaces: []string{"mooring-system"}}
}

// When time runs out, what was found until then stands, and nothing is made of what was under way.
func TestNodeSyncKeepsWhatItFoundInTime(t *testing.T) {
	noDatastore(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	found := lookAtNodeSync(ctx, New(slow(t, func() { cancel(context.DeadlineExceeded) }), clock.RealClock{}))
	unread := slices.DeleteFunc(slices.Clone(found), func(f finding.Finding) bool { return f.Severity == finding.OK })
	if len(unread) != 1 || !unread[0].Unread || !strings.Contains(unread[0].What, "time ran out") || strings.Contains(unread[0].Do, "right") {
		t.Errorf("%+v", unread)
	}
	if !slices.ContainsFunc(found, func(f finding.Finding) bool { return strings.Contains(f.What, "v1.34.1") }) {
		t.Errorf("the API server's version is not among %+v", found)
	}
}

// soon records until when an answer is waited for, and gives none.
type soon struct{ until time.Time }

func (s *soon) RoundTrip(r *http.Request) (*http.Response, error) {
	s.until, _ = r.Context().Deadline()
	return nil, errors.New("no answer")
}

// A datastore that does not respond costs the checks of route reflectors half of the time, and the rest is calico-node-sync's.
func TestReflectorsLeaveHalfOfTheTime(t *testing.T) {
	noDatastore(t)
	start := time.Now()
	ctx, cancel := context.WithDeadline(t.Context(), start.Add(8*time.Second))
	defer cancel()
	asked := &soon{}
	lookAtRouteReflectors(ctx, New(&observe.Cluster{Config: &rest.Config{Host: "http://127.0.0.1:1", Transport: asked}}, clock.RealClock{}))
	if asked.until.IsZero() || asked.until.After(start.Add(7*time.Second)) {
		t.Errorf("it waits for %s of 8s", asked.until.Sub(start))
	}
}
