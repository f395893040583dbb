// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"path/filepath"
	"strings"
	"testing"
)

const planDefaults = `service.beta.kubernetes.io/do-loadbalancer-size-unit: "2"
service.beta.kubernetes.io/do-loadbalancer-allow-rules: cidr:10.0.0.0/8
service.beta.kubernetes.io/do-loadbalancer-project-id: 4de7ac8b-495b-4884-9a69-1050c6793cd6
service.beta.kubernetes.io/do-loadbalancer-certificate-domains: example.com
`

const plainService = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {type: LoadBalancer, ports: [{port: 443, nodePort: 30443}]}
`

// The plan of a cluster with defaults is that of its controller.
func TestPlansWithDefaults(t *testing.T) {
	t.Parallel()
	folder := planFiles(t, map[string]string{
		"services.yaml": plainService, "nodes.yaml": nodes, "defaults.yaml": planDefaults, "wrong.yaml": "service.beta.kubernetes.io/do-loadbalancer-name: x\n",
	})
	file := func(name string) string { return filepath.Join(folder, name) }
	lb := []string{"plan", "loadbalancer", "-f", file("services.yaml"), "--nodes", file("nodes.yaml"), "--region", "nyc1", "--droplet", "node-2=102", "--default-type", "REGIONAL"}
	code, stdout, stderr := runWith(t, "", append(lb, "--defaults", file("defaults.yaml"))...)
	for _, want := range []string{
		"option          size 2\n", "allows          cidr:10.0.0.0/8\n", "option          project 4de7ac8b-495b-4884-9a69-1050c6793cd6\n",
		"https:443 → http:30443 with certificate (mooring-a379a6f6eeafb9a55e378c118034e275)\n",
	} {
		if code != 0 || !strings.Contains(stdout, want) {
			t.Errorf("%q is not in it: %d, %s\n%s", want, code, stderr, stdout)
		}
	}
	_, stdout, _ = runWith(t, "", append(lb, "--defaults", file("defaults.yaml"), "--certificate", "mooring-a379a6f6eeafb9a55e378c118034e275=known")...)
	if !strings.Contains(stdout, "with certificate known\n") {
		t.Error(stdout)
	}
	fw := []string{"plan", "firewall", "-f", file("services.yaml"), "--name", "k8s-public", "--tag", "k8s:worker"}
	if code, stdout, stderr := runWith(t, "", append(fw, "--defaults", file("defaults.yaml"))...); code != 0 || !strings.Contains(stdout, "tcp 443 from 10.0.0.0/8\n") {
		t.Errorf("%d, %s\n%s", code, stderr, stdout)
	}
	const refused = "annotation service.beta.kubernetes.io/do-loadbalancer-name cannot have a default: names are unique in an account"
	for _, args := range [][]string{append(lb, "--defaults", file("wrong.yaml")), append(fw, "--defaults", file("wrong.yaml"))} {
		if code, _, stderr := runWith(t, "", args...); code != 1 || !strings.Contains(stderr, "--defaults "+file("wrong.yaml")+": "+refused) {
			t.Errorf("%d, %s", code, stderr)
		}
		args[len(args)-1] += "x"
		if code, _, stderr := runWith(t, "", args...); code != 1 || !strings.Contains(stderr, "reading defaults for annotations: open ") {
			t.Errorf("%d, %s", code, stderr)
		}
	}
	for command, input := range map[string]string{
		"loadbalancer": `{"region":"nyc1","defaults":{"service.beta.kubernetes.io/do-loadbalancer-%s":"3"},"services":[{"metadata":{"name":"web"},"spec":{"type":"LoadBalancer","ports":[{"port":80,"protocol":"TCP"}]}}],` +
			`"nodes":[{"metadata":{"name":"n"},"spec":{"providerID":"digitalocean://1"},"status":{"addresses":[{"type":"ExternalIP","address":"192.0.2.1"}]}}]}`,
		"firewall": `{"name":"f","tags":["t"],"defaults":{"service.beta.kubernetes.io/do-loadbalancer-%s":"3"},"services":[]}`,
	} {
		code, stdout, stderr := runWith(t, strings.ReplaceAll(input, "%s", "size-unit"), "plan", command)
		if code != 0 || command == "loadbalancer" && !strings.Contains(stdout, `"size_unit": 3`) || stderr != "" {
			t.Errorf("%s: %d, %s\n%s", command, code, stderr, stdout)
		}
		if code, _, stderr := runWith(t, strings.ReplaceAll(input, "%s", "name"), "plan", command); code != 1 || !strings.Contains(stderr, "defaults: "+refused) {
			t.Errorf("%s: %d, %s", command, code, stderr)
		}
	}
}
