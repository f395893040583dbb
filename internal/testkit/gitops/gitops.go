// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package gitops judges objects as tools of GitOps do: Flux and kpt by the library kstatus, Argo CD by the health script that
// docs/examples gives it, run by the interpreter that Argo CD runs.
package gitops

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Health is what kstatus and Argo CD make of an object of a kind, with a space between: "Current Healthy".
func Health(t *testing.T, kind string, object any) string {
	t.Helper()
	var u unstructured.Unstructured
	must.Do(t, json.Unmarshal(must.Get(json.Marshal(object)).Or(t), &u.Object))
	// The library needs whole numbers, as a client's decoder makes them.
	u.SetGeneration(int64(u.Object["metadata"].(map[string]any)["generation"].(float64)))
	if is, found := u.Object["status"].(map[string]any); found {
		if at, found := is["observedGeneration"].(float64); found {
			is["observedGeneration"] = int64(at)
		}
	}
	result := must.Get(status.Compute(&u)).Or(t)
	return result.Status.String() + " " + argoCD(t, kind, u.Object)
}

// argoCD runs the script of a kind.
func argoCD(t *testing.T, kind string, object map[string]any) string {
	t.Helper()
	group := map[string]string{"RouteReflectorTopology": "bgp.mooring.dev", "EtcdStorage": "etcd.mooring.dev"}[kind]
	path := filepath.Join(testkit.Root(t), "docs", "examples", "gitops", "argo-cd-health.yaml")
	var settings corev1.ConfigMap
	must.Do(t, yaml.UnmarshalStrict(must.Get(os.ReadFile(path)).Or(t), &settings))
	state := lua.NewState()
	defer state.Close()
	state.SetGlobal("obj", value(state, object))
	must.Do(t, state.DoString(settings.Data["resource.customizations.health."+group+"_"+kind]))
	health, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script of %s returned no table", kind)
	}
	if health.RawGetString("message").String() == "" {
		t.Errorf("the script of %s says %s without a message", kind, health.RawGetString("status"))
	}
	return health.RawGetString("status").String()
}

// value is a decoded JSON value as Lua has it.
func value(state *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		out := state.NewTable()
		for key, field := range v {
			out.RawSetString(key, value(state, field))
		}
		return out
	case []any:
		out := state.NewTable()
		for _, item := range v {
			out.Append(value(state, item))
		}
		return out
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

// Stalls are the reasons of Stalled that docs/reference names for a kind, sorted.
func Stalls(t *testing.T, kind string) (reasons []string) {
	t.Helper()
	page := must.Get(os.ReadFile(filepath.Join(testkit.Root(t), "docs", "reference", "conditions.md"))).Or(t)
	_, section, found := strings.Cut(string(page), "\n### Stalled of "+kind+"\n")
	section, _, _ = strings.Cut(section, "\n#")
	for _, row := range regexp.MustCompile("(?m)^\\| True \\| `([A-Za-z]+)`").FindAllStringSubmatch(section, -1) {
		reasons = append(reasons, row[1])
	}
	if !found || len(reasons) == 0 {
		t.Fatalf("docs/reference/conditions.md has no reasons of Stalled of %s", kind)
	}
	slices.Sort(reasons)
	return reasons
}
