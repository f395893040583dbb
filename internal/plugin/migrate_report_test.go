// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/command"
)

// The report for programs, of each outcome that there is without a cluster: the same objects as without it, and nothing of the text for people.
func TestMigrateEtcdStorageReport(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		code int
		err  string
	}{
		"migrate-etcdstorage-json-all":   {[]string{"-o", "json"}, command.ExitError, "error: 2 of 5 EtcdStorages could not be converted, see above\n"},
		"migrate-etcdstorage-json-whole": {[]string{"-o", "json", "team-a"}, command.ExitOK, ""},
		"migrate-etcdstorage-json-lost":  {[]string{"-o", "json", "strange", "team-a"}, command.ExitAttention, ""},
		"migrate-etcdstorage-yaml-lost":  {[]string{"--output=yaml", "strange", "sample"}, command.ExitAttention, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, append([]string{"migrate", "etcdstorage", "-f", oldStorages}, tt.args...))
			const note = "note: EtcdStorage new is of etcd.mooring.dev/v1alpha1 and is skipped\n"
			if code != tt.code || stderr != note+tt.err {
				t.Errorf("exit code %d, want %d; %s", code, tt.code, stderr)
			}
			golden(t, name, stdout)
		})
	}
	if code, stdout, stderr := runWith(t, "a: b", "migrate", "etcdstorage", "-f", "-", "-o", "json"); code != command.ExitError || stdout != "" || !strings.HasPrefix(stderr, "error: ") {
		t.Errorf("without a report: exit code %d, %s%s", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, []string{"migrate", "etcdstorage", "-f", oldStorages, "-o", "table"}); code != command.ExitError || stdout != "" ||
		!strings.Contains(stderr, "use one of objects, yaml, json") {
		t.Errorf("another format: exit code %d, %s%s", code, stdout, stderr)
	}
	_, plain, _ := run(t, []string{"migrate", "etcdstorage", "-f", oldStorages, "team-a"})
	_, objects, _ := run(t, []string{"migrate", "etcdstorage", "-f", oldStorages, "team-a", "-o", "objects"})
	if plain != objects {
		t.Errorf("-o objects is not the default:\n%s", objects)
	}
}

// storagesAPI is as much of an API server as --apply needs.
type storagesAPI struct {
	t  *testing.T
	mu sync.Mutex
	at map[string]map[string]any
}

// ServeHTTP implements http.Handler.
func (s *storagesAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	answer := func(code int, body any) {
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(body); err != nil {
			s.t.Error(err)
		}
	}
	failure := func(code int, reason string, details map[string]any) {
		answer(code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code, "details": details})
	}
	dir, name := path.Split(r.URL.Path)
	if dir != "/apis/etcd.mooring.dev/v1alpha1/etcdstorages/" {
		s.t.Errorf("%s %s", r.Method, r.URL)
	}
	switch stored := s.at[name]; {
	case r.Method == http.MethodGet && stored == nil:
		failure(http.StatusNotFound, "NotFound", nil)
	case r.Method == http.MethodGet:
		answer(http.StatusOK, stored)
	case name == "taken":
		failure(http.StatusConflict, "Conflict", map[string]any{"causes": []any{map[string]any{"field": ".spec.prefix"}}})
	default:
		body, err := io.ReadAll(r.Body)
		if err != nil {
			s.t.Error(err)
		}
		var object map[string]any
		if err := yaml.Unmarshal(body, &object); err != nil {
			s.t.Error(err)
		}
		if r.URL.Query().Get("dryRun") == "" {
			s.at[name] = object
		}
		answer(http.StatusOK, object)
	}
}

// newStoragesAPI returns it with a kubeconfig.
func newStoragesAPI(t *testing.T) (api *storagesAPI, kubeconfig string) {
	t.Helper()
	api = &storagesAPI{t: t, at: map[string]map[string]any{}}
	server := httptest.NewServer(api)
	t.Cleanup(server.Close)
	kubeconfig = filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], contexts: [{name: c, context: {cluster: c, user: c}}], users: [{name: c, user: {}}]}", server.URL)
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return api, kubeconfig
}

// The report of each outcome that there is with a cluster.
func TestMigrateEtcdStorageReportApplied(t *testing.T) {
	t.Parallel()
	api, kubeconfig := newStoragesAPI(t)
	const old = `{apiVersion: v1, kind: List, items: [
{apiVersion: etcd.xmudrii.com/v1alpha1, kind: EtcdStorage, metadata: {name: good}, spec: {signingCertificateValidity: 26280h}},
{apiVersion: etcd.xmudrii.com/v1alpha1, kind: EtcdStorage, metadata: {name: taken}, spec: {}},
{apiVersion: etcd.xmudrii.com/v1alpha1, kind: EtcdStorage, metadata: {name: less}, spec: {replicas: 3}},
{apiVersion: etcd.xmudrii.com/v1alpha1, kind: EtcdStorage, metadata: {name: with.dots}, spec: {}}]}`
	for _, step := range []struct {
		what   string
		before func()
		args   string
		code   int
		want   string
	}{
		{"dry run", nil, "good less --dry-run", command.ExitAttention, "dry run; good whole created; less changed created"},
		{"all", nil, "", command.ExitError, "good whole created; taken failed (it exists already, and another field manager has set spec.prefix to another " +
			"value; it is not changed); less changed created; with.dots refused"},
		{"again", nil, "good", command.ExitOK, "good whole unchanged"},
		{"with a loss again", nil, "less good", command.ExitAttention, "good whole unchanged; less changed unchanged"},
		{"changed meanwhile", func() { api.at["good"]["spec"] = map[string]any{} }, "good", command.ExitOK, "good whole configured"},
	} {
		if step.before != nil {
			step.before()
		}
		args := append([]string{"migrate", "etcdstorage", "-f", "-", "--kubeconfig", kubeconfig, "--apply", "-o", "json"}, strings.Fields(step.args)...)
		code, stdout, stderr := runWith(t, old, args...)
		if code != step.code || (stderr != "") != (code == command.ExitError) {
			t.Errorf("%s: exit code %d, want %d; %s", step.what, code, step.code, stderr)
		}
		if got := summary(t, stdout); got != step.want {
			t.Errorf("%s: got  %s\nwant %s", step.what, got, step.want)
		}
	}
}

// summary is a report on one line.
func summary(t *testing.T, stdout string) string {
	t.Helper()
	var got struct {
		DryRun   bool
		Storages []struct {
			Name, Result, Written, Error string
			Object                       map[string]any
		}
	}
	if err := json.Unmarshal([]byte(stdout), &got); err != nil {
		t.Fatal(err, stdout)
	}
	var out []string
	if got.DryRun {
		out = append(out, "dry run")
	}
	for _, s := range got.Storages {
		text := s.Name + " " + s.Result
		if s.Written != "" {
			text += " " + s.Written
		}
		if s.Error != "" {
			text += " (" + s.Error + ")"
		}
		if (s.Object == nil) != (s.Result == "refused") {
			t.Errorf("%s: %v", s.Name, s.Object)
		}
		out = append(out, text)
	}
	return strings.Join(out, "; ")
}
