// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// Droplets become Nodes and load balancers follow; one that is off keeps its Node, one that is deleted does not. The parts go on from each other.
func TestStory(t *testing.T) {
	t.Parallel()
	s := newSite(t, "--nodes=3", "--zones=2", "--calico-datastore=none")
	for _, d := range s.droplets() {
		if d.Node != (d.Name != "control-plane") {
			t.Errorf("droplet %s is a machine of the cluster: %t", d.Name, d.Node)
		}
		if lack := s.initialized(d); d.Node && lack != "" {
			t.Errorf("the lab was said to be ready, and Node %s: %s", d.Name, lack)
		}
	}
	begin := time.Now()
	s.service("web")
	testkit.Eventually(t, "the address of the Service", func() string { return s.served("web") })
	t.Logf("the Service has its address after %s", since(begin))

	begin = time.Now()
	s.run("droplet", "create", "late", "--zone=zone-b")
	testkit.Eventually(t, "the Node of the new droplet", func() string { return s.initialized(s.droplet("late")) })
	testkit.Eventually(t, "the new target", func() string { return s.served("web") })
	t.Logf("a droplet is a target after %s", since(begin))

	offAndOn(t, s)
	goes(t, s)
	refusals(t, s)
}

// offAndOn switches a droplet off and on again: its Node has the shutdown taint meanwhile, and is the same afterwards.
func offAndOn(t *testing.T, s *site) {
	t.Helper()
	const name, shutdown = "node-1", "node.cloudprovider.kubernetes.io/shutdown"
	node := func() *corev1.Node {
		node, err := s.client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		s.must(err)
		return node
	}
	before := node()
	s.run("droplet", "power-off", name)
	if out := s.run("droplet", "power-off", name); !strings.Contains(out, "switched off already") {
		t.Errorf("switched off twice: %s", out)
	}
	testkit.Eventually(t, "the shutdown taint", func() string {
		if n := node(); ready(n) == corev1.ConditionTrue || !slices.Contains(taints(n), shutdown) {
			return fmt.Sprint(ready(n), taints(n))
		}
		return ""
	})
	if out := s.run("node", "list"); !strings.Contains(out, "off") {
		t.Errorf("node list: %s", out)
	}
	s.run("droplet", "power-on", name)
	testkit.Eventually(t, "the machine to boot", func() string {
		if n := node(); ready(n) != corev1.ConditionTrue || slices.Contains(taints(n), shutdown) {
			return fmt.Sprint(ready(n), taints(n))
		}
		return ""
	})
	if after := node(); after.UID != before.UID {
		t.Error("the Node of a droplet that was off is another one")
	}
}

// goes deletes a droplet: its Node goes, and no other, because the component finds that the droplet does not exist.
func goes(t *testing.T, s *site) {
	t.Helper()
	begin, gone := time.Now(), s.droplet("node-2")
	s.run("droplet", "delete", "node-2")
	testkit.Eventually(t, "the Node to go", func() string {
		if _, err := s.client.CoreV1().Nodes().Get(t.Context(), "node-2", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint("it is there: ", err)
		}
		return ""
	})
	t.Logf("the Node went after %s", since(begin))
	testkit.Eventually(t, "the targets to follow", func() string { return s.served("web") })
	nodes, err := s.client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	s.must(err)
	if len(nodes.Items) != 3 {
		t.Errorf("%d Nodes are left of 4", len(nodes.Items))
	}
	if out := s.run("logs", manager); !strings.Contains(out, fmt.Sprintf(`"msg":"Node will be deleted, its droplet is gone","node":"node-2","droplet":%d`, gone.ID)) {
		t.Error("the component does not say that it gave the Node up")
	}
	s.must(s.client.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{}))
	testkit.Eventually(t, "the load balancer to go", func() string { return s.served() })
}

// refusals are one sentence each, with the way out in it, and change nothing.
func refusals(t *testing.T, s *site) {
	t.Helper()
	before := fmt.Sprint(s.droplets())
	for command, want := range map[string]string{
		"droplet delete node-9":           "there is no droplet node-9; there are: control-plane, node-1, ",
		"droplet power-off node-9":        "there is no droplet node-9; there are: ",
		"droplet create node-1":           "there is a droplet node-1 already; choose another name or delete it first",
		"droplet create Node_1":           `"Node_1" cannot be the name of a node: `,
		"droplet create x --zone=a/b":     `"a/b" cannot be the name of a zone: `,
		"droplet create x --size=huge":    `size "huge" is not available`,
		"droplet delete control-plane":    "control-plane is the machine that this cluster's control plane runs on; choose another droplet",
		"droplet power-off control-plane": "choose another droplet",
		"node add node-1":                 "there is a machine node-1 already; choose another name or remove it first",
		"node remove node-9":              "there is no such machine as node-9; there are: node-1, ",
		"node freeze node-9":              "there is no such machine as node-9; there are: node-1, ",
		"kill kube-proxy":                 "it has: ",
	} {
		out, err := s.try(strings.Fields(command)...)
		if err == nil || !strings.Contains(out, want) || strings.Count(out, "\n") != 1 {
			t.Errorf("lab %s: %v, %s", command, err, out)
		}
	}
	if after := fmt.Sprint(s.droplets()); after != before {
		t.Errorf("droplets are %s, were %s", after, before)
	}
	s.run("down")
	if out, err := s.try("droplet", "list"); err == nil || !strings.Contains(out, "no lab runs in") {
		t.Errorf("droplets of a lab that does not run: %v, %s", err, out)
	}
}
