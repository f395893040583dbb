// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package predecessor_test

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
)

// dropletVectors is droplet-vectors.json.
type dropletVectors struct {
	Vectors []dropletVector `json:"vectors"`
}

type dropletVector struct {
	Name    string          `json:"name"`
	Node    json.RawMessage `json:"node"`
	Droplet struct {
		ID       int             `json:"id"`
		Name     string          `json:"name"`
		Status   instance.Status `json:"status"`
		SizeSlug string          `json:"size_slug"`
		Region   struct {
			Slug string `json:"slug"`
		} `json:"region"`
		Networks map[string][]dropletNetwork `json:"networks"`
	} `json:"droplet"`
	Metadata *struct {
		ProviderID    string
		InstanceType  string
		NodeAddresses []corev1.NodeAddress
		Zone          string
		Region        string
	} `json:"metadata"`
	Error         string `json:"error"`
	Exists        *bool  `json:"exists"`
	ExistsError   string `json:"exists_error"`
	Shutdown      *bool  `json:"shutdown"`
	ShutdownError string `json:"shutdown_error"`
}

type dropletNetwork struct {
	Address netip.Addr `json:"ip_address"`
	Type    string     `json:"type"`
}

func dropletName(v dropletVector) string { return "droplet: " + v.Name }

func loadDropletVectors(t *testing.T) dropletVectors {
	t.Helper()
	var v dropletVectors
	load(t, "droplet-vectors.json", &v)
	if len(v.Vectors) == 0 {
		t.Fatal("droplet-vectors.json is empty")
	}
	return v
}

// droplet is the vector's droplet as the pure functions take it.
func (v dropletVector) droplet() instance.Droplet {
	d := instance.Droplet{ID: v.Droplet.ID, Name: v.Droplet.Name, Status: v.Droplet.Status, Size: v.Droplet.SizeSlug, Region: v.Droplet.Region.Slug}
	for _, family := range []string{"v4", "v6"} {
		for _, n := range v.Droplet.Networks[family] {
			d.Networks = append(d.Networks, instance.Network{Address: n.Address, Public: n.Type == "public"})
		}
	}
	return d
}

// Every vector: the same metadata, existence and shutdown, or an error where the upstream project has one.
func TestDroplets(t *testing.T) {
	t.Parallel()
	j := &judge{t: t}
	for _, vector := range loadDropletVectors(t).Vectors {
		j.say(dropletName(vector), waived(vector), compareDroplet(t, vector))
	}
	j.end("droplets")
}

func compareDroplet(t *testing.T, v dropletVector) string {
	t.Helper()
	node, d := decode[corev1.Node](t, v.Node), v.droplet()
	matched, err := instance.Match(node, []instance.Droplet{d})
	var metadata instance.Metadata
	if err == nil {
		metadata, err = instance.Describe(matched)
	}
	if (err != nil) != (v.Error != "") {
		return "metadata: " + text(err) + ", want error " + v.Error
	}
	if err == nil {
		want := instance.Metadata{
			ProviderID: v.Metadata.ProviderID, InstanceType: v.Metadata.InstanceType, Region: v.Metadata.Region, Addresses: v.Metadata.NodeAddresses,
		}
		if diff := cmp.Diff(want, metadata); diff != "" || v.Metadata.Zone != "" {
			return "metadata (-want +got):\n" + diff
		}
	}
	return compareExistence(node, d, v)
}

// compareExistence asks about a cluster of this one Node whose list has the droplet. An error of the upstream project is a verdict of unknown.
func compareExistence(node *corev1.Node, d instance.Droplet, v dropletVector) string {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	account := instance.Account{UUID: "a"}
	decision := instance.MakePlan(instance.World{
		Now: now, Recorded: account, Current: account, Nodes: []*corev1.Node{node}, List: instance.List{At: now, Complete: true, Droplets: []int{d.ID}},
	}, instance.DefaultConfig())
	verdict, _ := decision.Verdict(node.Name)
	switch {
	case v.ExistsError != "" && verdict.Existence != instance.Unknown:
		return "existence: " + string(verdict.Existence) + ", want an error: " + v.ExistsError
	case v.Exists != nil && *v.Exists != (verdict.Existence == instance.Exists):
		return "existence: " + string(verdict.Existence)
	case v.Shutdown != nil && *v.Shutdown != instance.IsShutdown(d):
		return "shutdown differs"
	}
	return ""
}

func text(err error) string {
	if err == nil {
		return "no error"
	}
	return err.Error()
}
