// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func lbName(v loadBalancerVector) string { return fmt.Sprintf("loadbalancer: %d", v.ID) }

// Every vector through the pure function: the same request, byte for byte, or an error where the upstream project has one.
func TestLoadBalancerRequests(t *testing.T) {
	t.Parallel()
	vectors := loadLoadBalancerVectors(t)
	j := &judge{t: t}
	for _, vector := range vectors.Vectors {
		in := vectors.input(t, vector)
		result, err := loadbalancer.Desired(in)
		j.say(lbName(vector), "", compare(t, vector, result.Request, err))
		if name := loadbalancer.NameOf(in.Service); name != vector.LBName {
			t.Errorf("%s: the name is %q, want %q", lbName(vector), name, vector.LBName)
		}
	}
	j.end("pure function")
}

// compare returns what is wrong with an answer, empty for nothing.
func compare(t *testing.T, vector loadBalancerVector, request any, err error) string {
	t.Helper()
	switch {
	case vector.Error != "" && err == nil:
		return fmt.Sprintf("%s (%s, %s): no error, the upstream project says %s", vector.Name, vector.Context, vector.NodeSet, vector.Error)
	case vector.Error == "" && err != nil:
		return fmt.Sprintf("%s (%s, %s): %v, the upstream project sends %s", vector.Name, vector.Context, vector.NodeSet, err, vector.Request)
	case vector.Error != "":
		return ""
	}
	got := must.Get(json.Marshal(request)).Or(t)
	if !sameBytes(t, vector.Request, got) {
		return fmt.Sprintf("%s (%s, %s):\nsends %s\nwant  %s", vector.Name, vector.Context, vector.NodeSet, got, vector.Request)
	}
	return ""
}

// Every vector through the plan command's machine form, a batch per context and set of Nodes.
func TestPlanCommand(t *testing.T) {
	t.Parallel()
	vectors := loadLoadBalancerVectors(t)
	type batch struct{ context, nodeSet string }
	batches := map[batch][]loadBalancerVector{}
	for _, v := range vectors.Vectors {
		key := batch{v.Context, v.NodeSet}
		batches[key] = append(batches[key], v)
	}
	j := &judge{t: t}
	for _, key := range slices.SortedFunc(maps.Keys(batches), func(a, b batch) int { return strings.Compare(a.context+a.nodeSet, b.context+b.nodeSet) }) {
		answers := planBatch(t, vectors, key.context, key.nodeSet, batches[key])
		for i, vector := range batches[key] {
			var err error
			if answers[i].Error != "" {
				err = fmt.Errorf("%s", answers[i].Error)
			}
			j.say(lbName(vector), "", compare(t, vector, answers[i].Request, err))
			checkCreateOnly(t, vector, decode[corev1.Service](t, vectors.Services[vector.Service]), answers[i])
		}
	}
	j.end("plan command")
}

type planAnswer struct {
	Name       string          `json:"name"`
	Request    json.RawMessage `json:"request"`
	CreateOnly map[string]any  `json:"createOnly"`
	Error      string          `json:"error"`
}

// planBatch runs the plan command over some vectors.
func planBatch(t *testing.T, v loadBalancerVectors, context, nodeSet string, batch []loadBalancerVector) []planAnswer {
	t.Helper()
	c := v.Meta.Contexts[context]
	var services []json.RawMessage
	for _, vector := range batch {
		services = append(services, v.Services[vector.Service])
	}
	var certificates, droplets []map[string]any
	for _, cert := range v.Meta.FakeAPI.Certificates {
		certificates = append(certificates, map[string]any{"id": cert.ID, "name": cert.Name})
	}
	for _, d := range v.Meta.FakeAPI.Droplets {
		droplets = append(droplets, map[string]any{"id": d.ID, "name": d.Name})
	}
	input := must.Get(json.Marshal(map[string]any{
		"region": c.Region, "clusterID": c.ClusterID, "vpcID": c.VPC, "defaultType": c.DefaultType,
		"certificates": certificates, "droplets": droplets, "nodes": v.NodeSets[nodeSet], "services": services,
	})).Or(t)
	root := plugin.NewCommand(plugin.Builtin()...)
	root.SetIn(bytes.NewReader(input))
	var stdout, stderr bytes.Buffer
	if code := command.Run(t.Context(), root, []string{"plan", "loadbalancer"}, &stdout, &stderr); code != 0 || stderr.Len() != 0 {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var answers []planAnswer
	must.Do(t, json.Unmarshal(stdout.Bytes(), &answers))
	if len(answers) != len(batch) {
		t.Fatalf("%d answers for %d services", len(answers), len(batch))
	}
	return answers
}

// checkCreateOnly looks for what a POST alone carries, which is not in the vectors: the annotation's address without blanks.
func checkCreateOnly(t *testing.T, vector loadBalancerVector, service *corev1.Service, answer planAnswer) {
	t.Helper()
	if answer.Name != service.Name {
		t.Errorf("%s: the answer is named %q, the service %q", lbName(vector), answer.Name, service.Name)
	}
	want := strings.TrimSpace(service.Annotations[annotation.IP])
	if vector.Error != "" {
		want = ""
	}
	if got, _ := answer.CreateOnly["ip"].(string); got != want {
		t.Errorf("%s: ip %q under createOnly, want %q", lbName(vector), got, want)
	}
}
