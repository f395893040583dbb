// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package ui

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

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
			env, flags := &observe.Env{}, pflag.NewFlagSet("", pflag.ContinueOnError)
			env.AddFlags(flags)
			if err := flags.Parse([]string{"--server=" + api.URL}); err != nil {
				t.Fatal(err)
			}
			opened := ""
			u := &window{env: env, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), noBrowser: tt.noBrowser}
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

// A name that no browser sends is refused before anything is read.
func TestAllowedHostIsAName(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "http://bastion", "a b", "*.example", "user@bastion"} {
		u := &window{env: &observe.Env{}, allowed: []string{name}}
		if err := u.run(t.Context(), &bytes.Buffer{}, &bytes.Buffer{}); err == nil || !strings.HasSuffix(err.Error(), ": use NAME or NAME:PORT, such as localhost:9000") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
