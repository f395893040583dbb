// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package charts_test

import (
	"encoding/json"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestRefusals returns which values are refused, and what is said then: each message names the value and what is wrong with it.
func TestRefusals(t *testing.T) {
	t.Parallel()
	const on = "calicoNodeSync: {enabled: true, datastore: kubernetes, "
	const etcd = "calicoNodeSync: {enabled: true, datastore: etcdv3, etcd: "
	checkRefusals(t, namespace, map[string]refusal{
		"no datastore":           {"calicoNodeSync: {enabled: true}", "at '/calicoNodeSync/datastore': value must be one of 'etcdv3', 'kubernetes'"},
		"null as the datastore":  {"calicoNodeSync: {enabled: true, datastore: null}", "missing property 'datastore'"},
		"another datastore":      {"calicoNodeSync: {enabled: true, datastore: etcdv2}", "at '/calicoNodeSync/datastore': value must be one of"},
		"another when off":       {"calicoNodeSync: {datastore: Kubernetes}", "at '/calicoNodeSync/datastore': value must be one of"},
		"no endpoints":           {etcd + "{}}", "at '/calicoNodeSync/etcd/endpoints': minItems: got 0, want 1"},
		"endpoints as text":      {etcd + `{endpoints: "https://192.0.2.10:2379"}}`, "at '/calicoNodeSync/etcd/endpoints': got string, want array"},
		"no URL":                 {etcd + `{endpoints: ["192.0.2.10:2379"]}}`, "at '/calicoNodeSync/etcd/endpoints/0': '192.0.2.10:2379' does not match pattern '^https?://"},
		"two in one":             {etcd + `{endpoints: ["https://a:2379,https://b:2379"]}}`, "at '/calicoNodeSync/etcd/endpoints/0'"},
		"http and https":         {etcd + `{endpoints: ["https://a:2379", "http://b:2379"]}}`, "calicoNodeSync.etcd.endpoints mixes http and https"},
		"two sources":            {etcd + `{endpoints: ["https://a:2379"], configMap: calico-config}}`, "both name an etcd: remove one of them"},
		"half a certificate":     {etcd + `{endpoints: ["https://a:2379"], keyKey: ""}}`, "only one of certKey and keyKey is set"},
		"no Secret":              {etcd + `{endpoints: ["https://a:2379"], secret: ""}}`, "at '/calicoNodeSync/etcd/secret': minLength: got 0, want 1"},
		"a contradiction":        {on + `etcd: {endpoints: ["https://a:2379"]}}`, "calicoNodeSync.datastore is kubernetes, but calicoNodeSync.etcd names an etcd"},
		"another contradiction":  {on + `etcd: {configMap: calico-config}}`, "calicoNodeSync.datastore is kubernetes, but calicoNodeSync.etcd names an etcd"},
		"an unknown component":   {"calicoNodesync: {enabled: true}", "additional properties 'calicoNodesync' not allowed"},
		"an unknown value":       {on + "gracePerod: 5m}", "at '/calicoNodeSync': additional properties 'gracePerod' not allowed"},
		"an unknown inner value": {on + "metrics: {serviceMonitor: {enable: true}}}", "at '/calicoNodeSync/metrics/serviceMonitor': additional properties 'enable' not allowed"},
		"enabled as text":        {`calicoNodeSync: {enabled: "yes"}`, "at '/calicoNodeSync/enabled': got string, want boolean"},
		"a mode as a flag":       {"etcdStorageOperator: {enabled: true, core: {urls: [https://a:2379]}, extraArgs: [--mode=report]}", "--mode is not for here: set etcdStorageOperator.mode"},
		"an unknown mode":        {on + "mode: observe}", "at '/calicoNodeSync/mode': value must be one of 'enforce', 'report'"},
		"a number as duration":   {on + "gracePeriod: 300}", "at '/calicoNodeSync/gracePeriod': got number, want string"},
		"a unitless duration":    {on + `gracePeriod: "300"}`, "at '/calicoNodeSync/gracePeriod': '300' does not match pattern"},
		"no replicas":            {on + "replicas: 0}", "at '/calicoNodeSync/replicas': minimum: got 0, want 1"},
		"a tag with a colon":     {on + `image: {tag: "x:y"}}`, "at '/calicoNodeSync/image/tag': 'x:y' does not match pattern"},
		"half a digest":          {on + "image: {digest: sha256:12}}", "at '/calicoNodeSync/image/digest': 'sha256:12' does not match pattern"},
		"a port too high":        {on + "networkPolicy: {apiServerPorts: [70000]}}", "at '/calicoNodeSync/networkPolicy/apiServerPorts/0': maximum: got 70,000, want 65,535"},
		"no port":                {on + "networkPolicy: {apiServerPorts: []}}", "at '/calicoNodeSync/networkPolicy/apiServerPorts': minItems: got 0, want 1"},
		"no network":             {on + "networkPolicy: {apiServerCIDRs: [192.0.2.1]}}", "at '/calicoNodeSync/networkPolicy/apiServerCIDRs/0': '192.0.2.1' does not match"},
		"a reader without space": {on + "metrics: {readers: [{name: prometheus}]}}", "at '/calicoNodeSync/metrics/readers/0': missing property 'namespace'"},
		"an argument":            {on + "extraArgs: [report]}", "at '/calicoNodeSync/extraArgs/0': 'report' does not match pattern"},
		"a flag with a value":    {on + "extraArgs: [--mode=report]}", "calicoNodeSync.extraArgs: --mode is not for here: set calicoNodeSync.mode"},
		"the same, one dash":     {on + "extraArgs: [-dry-run]}", "calicoNodeSync.extraArgs: --dry-run is not for here: set calicoNodeSync.mode to report"},
		"a flag that would break": {on + "extraArgs: ['--metrics-bind-address=:9']}",
			"calicoNodeSync.extraArgs: --metrics-bind-address is not for here: the Service and the NetworkPolicy expect port 8443"},
		"an unknown journal":        {on + "journal: {mode: disk}}", "at '/calicoNodeSync/journal/mode': value must be one of 'configmaps', 'folder', 'none'"},
		"a retention of no unit":    {on + `journal: {retention: "30"}}`, "at '/calicoNodeSync/journal/retention': '30' does not match pattern"},
		"a journal of no entry":     {on + "journal: {maxEntries: 0}}", "at '/calicoNodeSync/journal/maxEntries': minimum: got 0, want 1"},
		"a size that is none":       {on + "journal: {mode: folder, folder: {size: big}}}", "at '/calicoNodeSync/journal/folder/size': 'big' does not match pattern"},
		"a claim that nothing uses": {on + "journal: {folder: {existingClaim: a}}}", "calicoNodeSync.journal.mode is configmaps: set it to folder, or remove the claim"},
		"a volume for one of two": {on + "journal: {mode: folder, folder: {accessMode: ReadWriteOnce}}}",
			"calicoNodeSync.journal.folder.accessMode is ReadWriteOnce, which one machine can mount, and there are 2 replicas"},
		"a journal by its flag": {on + "extraArgs: ['--journal-dir=/x']}", "calicoNodeSync.extraArgs: --journal-dir is not for here: set calicoNodeSync.journal.mode to folder"},
		"a label with a blank":  {on + "podLabels: {team: a b}}", "at '/calicoNodeSync/podLabels/team': 'a b' does not match pattern"},
		"a text as pull secret": {"imagePullSecrets: [registry]", "at '/imagePullSecrets/0': got string, want object"},
		"a registry's URL":      {"global: {imageRegistry: 'https://registry.example'}", "at '/global/imageRegistry': 'https://registry.example' does not match pattern"},
		"a label of ours":       {"commonLabels: {app.kubernetes.io/name: mine}", "invalid propertyName 'app.kubernetes.io/name'"},
		"a log level by name":   {on + "logLevel: debug}", "at '/calicoNodeSync/logLevel': got string, want integer"},
		"an account's name":     {on + "serviceAccount: {name: a}}", "at '/calicoNodeSync/serviceAccount': additional properties 'name' not allowed"},
		"a budget of none":      {on + "podDisruptionBudget: {maxUnavailable: 0}}", "at '/calicoNodeSync/podDisruptionBudget/maxUnavailable'"},
		"a mount of no path":    {on + "extraVolumeMounts: [{name: a}]}", "at '/calicoNodeSync/extraVolumeMounts/0': missing property 'mountPath'"},
		"half a constraint":     {on + "topologySpreadConstraints: [{maxSkew: 1}]}", "at '/calicoNodeSync/topologySpreadConstraints/0': missing properties 'topologyKey', 'whenUnsatisfiable'"},
		"an object of no kind":  {"extraObjects: [{metadata: {name: a}}]", "at '/extraObjects/0': missing properties 'apiVersion', 'kind'"},
	})
}

// leaves maps each value's path to its default; a list or an empty map is one value.
func leaves(prefix string, value any, into map[string]any) {
	object, ok := value.(map[string]any)
	if !ok || len(object) == 0 {
		into[prefix] = value
		return
	}
	for key, inner := range object {
		leaves(strings.TrimPrefix(prefix+"."+key, "."), inner, into)
	}
}

// TestReadmeListsEveryValue compares the tables of the README with values.yaml: the same values, the same defaults, each explained.
func TestReadmeListsEveryValue(t *testing.T) {
	t.Parallel()
	want := map[string]any{}
	leaves("", read[map[string]any](t, chart+"/values.yaml"), want)
	readme := must.Get(os.ReadFile(chart + "/README.md")).Or(t)
	have := map[string]string{}
	row := regexp.MustCompile("(?m)^\\| `([A-Za-z.]+)` \\| `(.*)` \\| (.+) \\|$")
	for _, m := range row.FindAllStringSubmatch(string(readme), -1) {
		have[m[1]] = m[2]
	}
	for _, path := range slices.Sorted(maps.Keys(want)) {
		value := must.Get(json.Marshal(want[path])).Or(t)
		if given, ok := have[path]; !ok || given != string(value) {
			t.Errorf("charts/mooring/README.md wants a row: | `%s` | `%s` | what it means |", path, value)
		}
		delete(have, path)
	}
	for path := range have {
		t.Errorf("charts/mooring/README.md has a row for %s, which is not a value", path)
	}
}

// schema is the part of a JSON schema that this test follows.
type schema struct {
	Ref                  string            `json:"$ref"`
	Description          string            `json:"description"`
	Properties           map[string]schema `json:"properties"`
	AdditionalProperties any               `json:"additionalProperties"`
	Definitions          map[string]schema `json:"definitions"`
}

// TestSchemaAndValuesAgree finds each value of the schema in values.yaml, so that none is hidden, a description of each, and no object of
// ours that takes any key.
// That the schema has each value of values.yaml shows in its accepting them.
func TestSchemaAndValuesAgree(t *testing.T) {
	t.Parallel()
	content := must.Get(os.ReadFile(chart + "/values.schema.json")).Or(t)
	var root schema
	must.Do(t, json.Unmarshal(content, &root))
	var follow func(path string, s schema, value any)
	follow = func(path string, s schema, value any) {
		if name, ok := strings.CutPrefix(s.Ref, "#/definitions/"); ok {
			s = root.Definitions[name]
		}
		if len(s.Properties) == 0 {
			return
		}
		if s.AdditionalProperties != false && path != ".global" { // others have theirs there
			t.Errorf("%s takes unknown keys", path)
		}
		object, ok := value.(map[string]any)
		if !ok {
			t.Errorf("%s is not a map in values.yaml", path)
			return
		}
		for key, inner := range s.Properties {
			// Maps that users fill are empty.
			if _, ok := object[key]; !ok && len(object) > 0 {
				t.Errorf("%s.%s is in the schema and not in values.yaml", path, key)
			}
			if inner.Description == "" {
				t.Errorf("%s.%s has no description in the schema", path, key)
			}
			follow(path+"."+key, inner, object[key])
		}
	}
	follow("", root, read[map[string]any](t, chart+"/values.yaml"))
}

// TestDocumentedValuesExist finds each value that a page sets on the command line in values.yaml.
func TestDocumentedValuesExist(t *testing.T) {
	t.Parallel()
	values := map[string]any{}
	leaves("", read[map[string]any](t, chart+"/values.yaml"), values)
	seen := 0
	for _, path := range []string{chart + "/README.md", chart + "/templates/NOTES.txt", "../../docs/guides/digitalocean-bootstrap.md"} {
		content := must.Get(os.ReadFile(path)).Or(t)
		for _, m := range regexp.MustCompile(`--set ([A-Za-z.]+)=`).FindAllStringSubmatch(string(content), -1) {
			seen++
			if _, ok := values[m[1]]; !ok {
				t.Errorf("%s sets %s, which is not a value", path, m[1])
			}
		}
	}
	if seen < 5 {
		t.Errorf("only %d values were looked for", seen)
	}
}
