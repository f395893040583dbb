// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/ui"
)

// What DigitalOcean says stands for minutes, and for less when there are Nodes that it was not asked about, or when it did not respond.
func TestDropletsAreAskedForSeldom(t *testing.T) {
	var asked atomic.Int32
	var down atomic.Bool
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case down.Load():
			http.Error(w, `{"id":"forbidden","message":"no"}`, http.StatusForbidden)
		case strings.HasSuffix(r.URL.Path, "/account"):
			asked.Add(1)
			_, _ = w.Write([]byte(`{"account":{"uuid":"a"}}`))
		default:
			_, _ = w.Write([]byte(`{"droplets":[{"id":1,"name":"w1","status":"active"}],"meta":{"total":1}}`))
		}
	}))
	defer api.Close()
	t.Setenv(envDOToken, "token")
	t.Setenv(envDOTokenFile, "")
	t.Setenv(envDOURL, api.URL)
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	u := &uiReader{cluster: &cluster{typed: fake.NewClientset()}, agreement: agreementCommand{clock: c}, clock: c}
	node := func(name, id string) corev1.Node {
		return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: "digitalocean://" + id}}
	}
	old := []corev1.Node{node("w1", "1")}
	more := append([]corev1.Node{node("w2", "1")}, old...)
	for i, step := range []struct {
		after time.Duration
		nodes []corev1.Node
		down  bool
		want  int32
	}{
		{0, old, false, 1}, {4 * time.Minute, old, false, 1}, {time.Minute, old, false, 2},
		{50 * time.Second, more, false, 2}, {10 * time.Second, more, false, 3}, {50 * time.Second, old, false, 3},
		{5 * time.Minute, old, true, 3}, {50 * time.Second, old, false, 3}, {10 * time.Second, old, false, 4},
	} {
		c.SetTime(c.Now().Add(step.after))
		down.Store(step.down)
		cloud, err := u.droplets(t.Context(), step.nodes)
		if err != nil || asked.Load() != step.want || step.down && cloud.Problem == "" {
			t.Errorf("step %d: asked %d times, want %d; %+v, %v", i, asked.Load(), step.want, cloud.Side, err)
		}
	}
}

// The page runs the doctor again after a while only, and shows how old its findings are.
func TestFindingsStandForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	u := &uiReader{
		clock: clocktesting.NewFakePassiveClock(now), findings: []finding.Finding{{What: "found"}}, checkedAt: now.Add(-doctorStands + time.Second),
	}
	var w ui.World
	u.doctor(t.Context(), nil, &w) // it would need an examination to run
	if len(w.Findings) != 1 || w.Findings[0].What != "found" || !w.CheckedAt.Equal(u.checkedAt) {
		t.Errorf("%+v of %s", w.Findings, w.CheckedAt)
	}
}

// endingWriter ends a command when it has said that Ctrl-C ends it.
type endingWriter struct {
	bytes.Buffer
	end func()
}

func (e *endingWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "Ctrl-C") {
		e.end()
	}
	return e.Buffer.Write(p)
}

// A browser is opened with the address that works once, unless it is not wanted; one that does not start is not a failure.
func TestBrowserIsOpened(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		noBrowser bool
		err       error
		opened    bool
		notes     string
	}{
		"wanted":     {false, nil, true, ""},
		"not wanted": {true, nil, false, ""},
		"not there":  {false, errors.New("starting xdg-open: not found"), true, "note: no browser was opened: starting xdg-open: not found\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				if r.URL.Path != "/api/v1/nodes" {
					w.WriteHeader(http.StatusNotFound)
					_, _ = w.Write([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`))
					return
				}
				_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","items":[]}`))
			}))
			defer api.Close()
			env := &Env{Kube: NewKubeFlags()}
			env.Kube.overrides.ClusterInfo.Server = api.URL
			opened := ""
			u := &uiCommand{env: env, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), noBrowser: tt.noBrowser}
			u.browse = func(_ context.Context, url string) error {
				opened = url
				return tt.err
			}
			var out bytes.Buffer
			notes := &endingWriter{end: cancel}
			if err := u.run(ctx, &out, notes); err != nil {
				t.Fatal(err)
			}
			if want := "note: anyone who knows this address sees the page; Ctrl-C ends it\n" + tt.notes; notes.String() != want {
				t.Errorf("notes %q, want %q", notes.String(), want)
			}
			page := strings.TrimSpace(out.String())
			if (opened != "") != tt.opened || strings.Contains(opened+"/", page) || tt.opened && !strings.HasPrefix(opened, page[:len("http://127.0.0.1:1")]) {
				t.Errorf("opened %q, the page is at %q", opened, page)
			}
		})
	}
}
