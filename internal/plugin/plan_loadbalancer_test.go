// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
)

const nodes = `apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Node
  metadata: {name: node-1}
  spec: {providerID: "digitalocean://101"}
  status: {addresses: [{type: InternalIP, address: 10.0.0.1}, {type: ExternalIP, address: 198.51.100.1}]}
- apiVersion: v1
  kind: Node
  metadata: {name: node-2}
  status: {addresses: [{type: InternalIP, address: 10.0.0.2}, {type: ExternalIP, address: 198.51.100.2}]}
- apiVersion: v1
  kind: Node
  metadata: {name: node-3, labels: {node.kubernetes.io/exclude-from-external-load-balancers: ""}}
  spec: {providerID: "digitalocean://103"}
`

const planServices = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
---
# A draft, as it stands in a repository.
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    service.beta.kubernetes.io/do-loadbalancer-type: REGIONAL
    service.beta.kubernetes.io/do-loadbalancer-certificate-name: web
    service.beta.kubernetes.io/do-loadbalancer-algorithm: fastest
    service.beta.kubernetes.io/do-loadbalancer-ip: 192.0.2.44
    service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-type: cookies
    service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-name: DO-CCM
    service.beta.kubernetes.io/do-loadbalancer-sticky-sessions-cookie-ttl: "300"
    service.beta.kubernetes.io/do-loadbalancer-enable-proxy-protocol: "true"
    service.beta.kubernetes.io/do-loadbalancer-http-idle-timeout-seconds: "90"
    service.beta.kubernetes.io/do-loadbalancer-deny-rules: ip:9.9.9.9
spec:
  type: LoadBalancer
  ports: [{port: 80}, {port: 443}]
  loadBalancerSourceRanges: [10.0.0.0/8]
---
apiVersion: v1
kind: ServiceList
items:
- metadata: {name: dns, namespace: kube-system, uid: 0a1b2c3d-4e5f-6071-8293-a4b5c6d7e8f9, annotations: {service.kubernetes.io/do-loadbalancer-disown: "true"}}
  spec: {type: LoadBalancer, ports: [{port: 53, protocol: UDP, nodePort: 30053}]}
`

const badServices = `apiVersion: v1
kind: Service
metadata: {name: bad, annotations: {service.beta.kubernetes.io/do-loadbalancer-type: GLOBAL, service.beta.kubernetes.io/do-loadbalancer-size-unit: "-1"}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: inner}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: theirs}
spec: {type: LoadBalancer, loadBalancerClass: example.com/theirs, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: good}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`

// planFiles writes the texts into files of a new folder and returns it.
func planFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// runWith is run with something on standard input.
func runWith(t *testing.T, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	root := plugin.NewCommand(plugin.Builtin()...)
	root.SetIn(strings.NewReader(stdin))
	var out, errOut bytes.Buffer
	code = command.Run(t.Context(), root, args, &out, &errOut)
	return code, out.String(), errOut.String()
}

// What a person sees.
func TestPlanLoadBalancerForPeople(t *testing.T) {
	t.Parallel()
	dir := planFiles(t, map[string]string{"nodes.yaml": nodes, "services.yaml": planServices, "bad.yaml": badServices})
	args := func(file string, flags ...string) []string {
		return append([]string{"plan", "loadbalancer", "--nodes", filepath.Join(dir, "nodes.yaml"), "--region", "nyc1", "--cluster-id", "c1", "--vpc-id", "vpc",
			"--certificate", "web=cert-1", "--droplet", "node-2=102", "-f", filepath.Join(dir, file)}, flags...)
	}
	for _, tt := range []struct {
		golden, file string
		flags        []string
		code         int
		stderr       string
	}{
		{"plan-loadbalancer-text", "services.yaml", nil, command.ExitOK, ""},
		{"plan-loadbalancer-yaml", "services.yaml", []string{"-o", "yaml"}, command.ExitOK, ""},
		{"plan-loadbalancer-json", "services.yaml", []string{"-o", "json"}, command.ExitOK, ""},
		{
			"plan-loadbalancer-refused", "bad.yaml", nil, command.ExitError,
			"error: 3 of 4 services cannot have the load balancer that they ask for, see above\n",
		},
	} {
		code, stdout, stderr := runWith(t, "", args(tt.file, tt.flags...)...)
		if code != tt.code || stderr != tt.stderr {
			t.Errorf("%s: exit code %d, stderr %q", tt.golden, code, stderr)
		}
		golden(t, tt.golden, stdout)
	}
}

// The same plan, whichever way it is printed and the Services are read.
func TestPlanLoadBalancerFormats(t *testing.T) {
	t.Parallel()
	dir := planFiles(t, map[string]string{"nodes.yaml": nodes})
	args := []string{"plan", "lb", "--nodes", filepath.Join(dir, "nodes.yaml"), "--droplet", "node-2=102", "--certificate", "web=cert-1", "-f", "-", "-o"}
	_, asYAML, _ := runWith(t, planServices, append(args, "yaml")...)
	_, asJSON, _ := runWith(t, planServices, append(args, "json")...)
	var a, b any
	if err := yaml.Unmarshal([]byte(asYAML), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(asJSON), &b); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("YAML and JSON differ:\n%s", diff)
	}
}

const (
	machineNode    = `{"metadata":{"name":"node-1"},"spec":{"providerID":"digitalocean://101"},"status":{"addresses":[{"type":"ExternalIP","address":"198.51.100.1"}]}}`
	machineService = `{"kind":"Service","metadata":{"name":"web","uid":"ab-c","annotations":{"service.beta.kubernetes.io/do-loadbalancer-ip":" 192.0.2.44 "}},"spec":{"type":"LoadBalancer","ports":[{"protocol":"TCP","port":80,"nodePort":30080}]}}`
)

// What a program sees: one element per Service, in order, and an exit code that says that all were answered.
func TestPlanLoadBalancerForPrograms(t *testing.T) {
	t.Parallel()
	input := `{"region":"nyc1","clusterID":"c1","vpcID":"v","defaultType":"REGIONAL","certificates":[{"id":"cert-1","name":"web"}],"droplets":[{"id":102,"name":"node-2"}],
	 "nodes":[` + machineNode + `,{"metadata":{"name":"node-2"},"status":{"addresses":[{"type":"InternalIP","address":"10.0.0.2"}]}}],
	 "services":[` + machineService + `,
	  {"metadata":{"name":"no-type"},"spec":{"ports":[{"protocol":"TCP","port":80}]}},
	  {"metadata":{"name":"inner"},"spec":{"type":"NodePort"}},
	  {"metadata":{"name":"left","annotations":{"service.kubernetes.io/do-loadbalancer-disown":"true"}},"spec":{"type":"LoadBalancer","ports":[{"protocol":"UDP","port":53}]}}]}`
	code, stdout, stderr := runWith(t, input, "plan", "loadbalancer")
	if code != command.ExitOK || stderr != "" {
		t.Fatalf("exit code %d, stderr %q", code, stderr)
	}
	golden(t, "plan-loadbalancer-machine", stdout)
	if code, stdout, stderr := runWith(t, `{}`, "plan", "loadbalancer"); code != command.ExitOK || stdout != "[]\n" || stderr != "" {
		t.Errorf("nothing: exit code %d, %q, %q", code, stdout, stderr)
	}
	code, stdout, stderr = runWith(t, `{"regoin":"nyc1"}`, "plan", "loadbalancer")
	if want := `note: "regoin" of standard input is not known and has no effect; known are region, clusterID, vpcID, defaultType, defaults, certificates, droplets, nodes, services` + "\n"; code != command.ExitOK || stdout != "[]\n" || stderr != want {
		t.Errorf("exit code %d, %q, stderr\n%s, want\n%s", code, stdout, stderr, want)
	}
}

// Input that cannot be read: one clear sentence, exit code 1.
func TestPlanLoadBalancerErrors(t *testing.T) {
	t.Parallel()
	dir := planFiles(t, map[string]string{
		"nodes.yaml": nodes, "empty.yaml": "---\n", "broken.yaml": "kind: Service\n---\n{", "typo.yaml": "kind: Service\nspec: {ports: 80}\n",
		"text.yaml": "hello", "nokind.yaml": "metadata: {name: x}\n", "item.yaml": "kind: List\nitems: [{kind: Service, spec: []}]\n",
		"odd.yaml": "kind: List\nitems: [3]\n", "service.yaml": badServices,
	})
	file := func(name string) string { return filepath.Join(dir, name) }
	human := func(service string, more ...string) []string {
		return append([]string{"-f", file(service), "--nodes", file("nodes.yaml")}, more...)
	}
	for name, tt := range map[string]struct {
		stdin string
		args  []string
		want  string
	}{
		"nothing on stdin":     {"", nil, "standard input is empty: it must be a JSON object, or give -f FILE"},
		"no JSON":              {"region: nyc1", nil, "standard input must be one JSON object: invalid character 'r' looking for beginning of value"},
		"a list":               {"[]", nil, "standard input must be one JSON object: it is a JSON array"},
		"two objects":          {"{} {}", nil, "standard input must be one JSON object: invalid character '{' after top-level value"},
		"a wrong type":         {`{"region":1}`, nil, "the JSON object on standard input: field region cannot be a JSON number"},
		"a broken node":        {`{"nodes":[{},{"spec":7}]}`, nil, "nodes[1] of standard input: it is not a valid Node: field spec cannot be a JSON number"},
		"a flag without -f":    {"{}", []string{"--region", "nyc1"}, "--region needs -f; without -f everything is in the JSON object on standard input"},
		"a format without -f":  {"{}", []string{"-o", "json"}, "--output needs -f; without -f everything is in the JSON object on standard input"},
		"a wrong format":       {"{}", human("service.yaml", "-o", "table"), `invalid value "table" for --output (format): use one of text, yaml, json; see 'kubectl mooring plan loadbalancer --help'`},
		"no nodes":             {"", []string{"-f", file("service.yaml")}, "give the cluster's nodes with --nodes FILE, as printed by: kubectl get nodes -o yaml"},
		"stdin twice":          {"", []string{"-f", "-", "--nodes", "-"}, "standard input can be read once: give a file for -f or for --nodes"},
		"no such file":         {"", human("nothing.yaml"), "reading Services: open " + file("nothing.yaml") + ": no such file or directory"},
		"a wrong default type": {"", human("service.yaml", "--default-type", "x"), `--default-type is "x", it must be REGIONAL or REGIONAL_NETWORK`},
		"a droplet by name":    {"", human("service.yaml", "--droplet", "a=b"), "--droplet is a=b, it must be the name and the number of a droplet"},
		"no service":           {"", human("nodes.yaml"), "there is no Service in " + file("nodes.yaml")},
		"nothing at all":       {"", human("empty.yaml"), "there is no Service in " + file("empty.yaml")},
		"broken YAML":          {"", human("broken.yaml"), "document 2 of " + file("broken.yaml") + ": it is neither YAML nor JSON: yaml: line 1: did not find expected node content"},
		"a wrong field":        {"", human("typo.yaml"), "document 1 of " + file("typo.yaml") + ": it is not a valid Service: field spec.ports cannot be a JSON number"},
		"plain text":           {"", human("text.yaml"), "document 1 of " + file("text.yaml") + ": it is not a Kubernetes object: it is a JSON string"},
		"no kind":              {"", human("nokind.yaml"), "document 1 of " + file("nokind.yaml") + ": it is not a Kubernetes object: it has no kind"},
		"a broken item":        {"", human("item.yaml"), "document 1 of " + file("item.yaml") + ": item 1: it is not a valid Service: field spec cannot be a JSON array"},
		"an odd item":          {"", human("odd.yaml"), "document 1 of " + file("odd.yaml") + ": item 1 is not a Kubernetes object: it is a JSON number"},
	} {
		code, stdout, stderr := runWith(t, tt.stdin, append([]string{"plan", "loadbalancer"}, tt.args...)...)
		if code != command.ExitError || stdout != "" || stderr != "error: "+tt.want+"\n" {
			t.Errorf("%s: exit code %d, stdout %q, stderr\n%swant\nerror: %s", name, code, stdout, stderr, tt.want)
		}
	}
}

// One Service that cannot be read does not keep the others from being answered, in their order; a default type that means nothing is told and
// passed over, as the controller does.
func TestPlanLoadBalancerForProgramsGoesOn(t *testing.T) {
	t.Parallel()
	input := `{"region":"nyc1","defaultType":"GLOBAL","nodes":[` + machineNode + `],"services":[null,7,{"kind":"Node","metadata":{"name":"n"}},
	 {"metadata":{"name":"odd"},"spec":[]},` + machineService + `,` + machineService + `]}`
	code, stdout, stderr := runWith(t, input, "plan", "loadbalancer")
	if want := "note: defaultType is \"GLOBAL\", it must be REGIONAL or REGIONAL_NETWORK; REGIONAL_NETWORK is used\n"; code != command.ExitOK || stderr != want {
		t.Errorf("exit code %d, stderr %q, want %q", code, stderr, want)
	}
	var answers []struct {
		Name, Error string
		Request     *struct{ Type string }
	}
	if err := json.Unmarshal([]byte(stdout), &answers); err != nil {
		t.Fatal(err)
	}
	want := []struct{ name, problem string }{
		{"", "services[0] of standard input: it is null, it must be a Service"}, {"", "services[1] of standard input: it must be a Service: it is a JSON number"},
		{"n", "services[2] of standard input: it is a Node, it must be a Service"},
		{"odd", "services[3] of standard input: it is not a valid Service: field spec cannot be a JSON array"}, {"web", ""}, {"web", ""},
	}
	if len(answers) != len(want) {
		t.Fatalf("%d answers", len(answers))
	}
	for i, a := range answers {
		if a.Name != want[i].name || a.Error != want[i].problem || (a.Request != nil) != (a.Error == "") {
			t.Errorf("%d: %+v, want %+v", i, a, want[i])
		}
	}
	if r := answers[4].Request; r == nil || r.Type != "REGIONAL_NETWORK" {
		t.Errorf("request %+v", r)
	}
}

// Lists may be null or empty, unknown fields of objects are passed over, and a thousand Services over a thousand Nodes are answered in their order.
func TestPlanLoadBalancerForProgramsTakesWhatThereIs(t *testing.T) {
	t.Parallel()
	for _, input := range []string{
		`{"services":null,"nodes":null,"certificates":null,"droplets":null,"region":null}`, `{"services":[],"nodes":[],"certificates":[],"droplets":[]}`,
	} {
		if code, stdout, stderr := runWith(t, input, "plan", "loadbalancer"); code != command.ExitOK || stdout != "[]\n" || stderr != "" {
			t.Errorf("%s: exit code %d, %q, %q", input, code, stdout, stderr)
		}
	}
	const many = 1000
	services, nodes := make([]string, many), make([]string, many)
	for i := range many {
		services[i] = fmt.Sprintf(`{"metadata":{"name":"s%d","unheard":{"of":1}},"status":{"unheard":[]},"spec":{"type":"LoadBalancer","ports":[{"protocol":"TCP","port":%d,"unheard":true}]}}`, i, i+1)
		nodes[i] = fmt.Sprintf(`{"metadata":{"name":"n%d"},"spec":{"providerID":"digitalocean://%d"},"status":{"addresses":[{"type":"ExternalIP","address":"198.51.100.1"}]}}`, i, i+1)
	}
	input := `{"nodes":[` + strings.Join(nodes, ",") + `],"services":[` + strings.Join(services, ",") + `]}`
	code, stdout, stderr := runWith(t, input, "plan", "loadbalancer")
	var answers []struct {
		Name    string
		Request struct {
			Droplets []int `json:"droplet_ids"`
			Rules    []struct {
				Port int `json:"entry_port"`
			} `json:"forwarding_rules"`
		}
	}
	if err := json.Unmarshal([]byte(stdout), &answers); err != nil || code != command.ExitOK || stderr != "" || len(answers) != many {
		t.Fatalf("exit code %d, %d answers, stderr %q: %v", code, len(answers), stderr, err)
	}
	for i, a := range answers {
		if a.Name != fmt.Sprintf("s%d", i) || len(a.Request.Droplets) != many || a.Request.Droplets[i] != i+1 || a.Request.Rules[0].Port != i+1 {
			t.Fatalf("answer %d is %q with %d droplets", i, a.Name, len(a.Request.Droplets))
		}
	}
}

// A plan that there is not: the plugin's own answer.
func TestUnknownPlan(t *testing.T) {
	t.Parallel()
	code, _, stderr := runWith(t, "", "plan", "loadbalance")
	want := "error: unknown command \"loadbalance\" for \"kubectl mooring plan\" (did you mean \"loadbalancer\"?); see 'kubectl mooring plan --help'\n"
	if code != command.ExitError || stderr != want {
		t.Errorf("exit code %d, %s", code, stderr)
	}
}

// Whatever is on standard input, the command ends with an answer for each Service or with one sentence.
func FuzzPlanLoadBalancer(f *testing.F) {
	f.Add([]byte(`{"nodes":[`+machineNode+`],"services":[`+machineService+`]}`), false)
	f.Add([]byte(`{"services":[null,{}]}`), false)
	f.Add([]byte(planServices), true)
	f.Add([]byte(badServices), true)
	f.Add([]byte("kind: List\nitems: [{kind: Service}, null]"), true)
	dir := f.TempDir()
	path := filepath.Join(dir, "nodes.yaml")
	if err := os.WriteFile(path, []byte(nodes), 0o600); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, stdin []byte, human bool) {
		args := []string{"plan", "loadbalancer"}
		if human {
			args = append(args, "--nodes", path, "-f", "-", "-o", "json")
		}
		code, stdout, stderr := runWith(t, string(stdin), args...)
		errors := 0
		for line := range strings.Lines(stderr) {
			if strings.HasPrefix(line, "error: ") {
				errors++
			}
		}
		if (code == 1) != (errors == 1) || code > 1 {
			t.Errorf("exit code %d, stderr %q", code, stderr)
		}
		if code == 0 && !json.Valid([]byte(stdout)) {
			t.Errorf("not JSON: %q", stdout)
		}
	})
}
