// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

func droplet(id int, name, status, address string, tags ...string) digitalocean.Droplet {
	d := digitalocean.Droplet{ID: id, Name: name, Status: status, Tags: &tags}
	if address != "" {
		d.Networks.V4 = []digitalocean.NetworkV4{{IPAddress: "198.18.0.1", Type: "public"}, {IPAddress: address, Type: "private"}}
	}
	return d
}

func show(list machines.List) []string {
	var lines []string
	for _, m := range list.Machines {
		lines = append(lines, fmt.Sprint(m.Name, " ", m.Zone, " ", m.Address, " ", m.State, " ", m.Droplet))
	}
	return lines
}

func TestMachines(t *testing.T) {
	t.Parallel()
	former := machines.List{Machines: []machines.Machine{
		{Name: "frozen", State: machines.Frozen, Droplet: 4, Zone: "zone-x"},
		{Name: "another", State: machines.Frozen, Droplet: 99, Zone: "zone-y"},
	}}
	got := show(Machines(former, []digitalocean.Droplet{
		droplet(1, "control-plane", "active", "10.0.0.1"),
		droplet(2, "plain", "active", "10.0.0.2", "k8s", "k8s:lab", "zone:zone-b"),
		droplet(3, "off", "off", "10.0.0.3", "K8S:LAB", "zone:zone-a"),
		droplet(4, "frozen", "active", "10.0.0.4", "k8s:lab"),
		droplet(5, "another", "active", "10.0.0.5", "k8s:lab"),
		droplet(6, "boots", "new", "10.0.0.6", "k8s:lab"),
		droplet(7, "no-address-yet", "active", "", "k8s:lab"),
		droplet(8, "plain", "active", "10.0.0.8", "k8s:lab"),
		droplet(9, "Upper", "active", "10.0.0.9", "k8s:lab", "zone:zone-c"),
		droplet(10, "others", "active", "10.0.0.10", "k8s:other"),
	}))
	want := []string{
		"plain zone-b 10.0.0.2 running 2", "off zone-a 10.0.0.3 off 3", "frozen zone-x 10.0.0.4 frozen 4", "another zone-a 10.0.0.5 running 5",
		"upper zone-c 10.0.0.9 running 9",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func prepared(t *testing.T, nodes int) blueprint.Layout {
	t.Helper()
	claimed := must.Get(folder.Claim(filepath.Join(t.TempDir(), "lab"))).Or(t)
	must.Do(t, errors.Join(claimed.Populate(), claimed.Release(), Prepare(claimed.Layout, nodes, 2, 0, false)))
	return claimed.Layout
}

// open returns the simulator as the process would have it.
func open(t *testing.T, layout blueprint.Layout) *digitalocean.Simulator {
	t.Helper()
	state, err := readState(layout.CloudState())
	if err != nil || state == nil {
		t.Fatalf("%d bytes of state, %v", len(state), err)
	}
	o := settings("", 0, false)
	o.Changed = func(image func() ([]byte, error)) {
		document, err := image()
		if err := errors.Join(err, folder.WriteFile(layout.CloudState(), document)); err != nil {
			t.Error(err)
		}
	}
	sim := must.Get(digitalocean.Open(o, state)).Or(t)
	return sim
}

// A later start goes on with what is there; only a demo brings back what is missing.
func TestPrepare(t *testing.T) {
	t.Parallel()
	layout := prepared(t, 3)
	list := must.Get(machines.Load(layout.MachinesFile())).Or(t)
	if diff := cmp.Diff([]string{
		"node-1 zone-a 172.30.0.3 running 400000002", "node-2 zone-b 172.30.0.4 running 400000003", "node-3 zone-a 172.30.0.5 running 400000004",
	}, show(list)); diff != "" {
		t.Error(diff)
	}
	token, err := os.ReadFile(layout.CloudToken())
	if err != nil || !strings.HasPrefix(string(token), "dop_v1_") {
		t.Errorf("token %q, %v", token, err)
	}
	if other, err := os.ReadFile(prepared(t, 0).CloudToken()); err != nil || string(other) == string(token) {
		t.Errorf("two labs have one token (%v)", err)
	}
	must.Do(t, open(t, layout).Account(Account).DeleteDroplet("node-2"))
	must.Do(t, Prepare(layout, 3, 2, 1, false))
	if got := len(open(t, layout).Account(Account).Droplets()); got != 3 {
		t.Errorf("%d droplets after a second start, want 3", got)
	}
	must.Do(t, Prepare(layout, 3, 2, 1, true))
	if list, err = machines.Load(layout.MachinesFile()); err != nil {
		t.Fatal(err)
	}
	if m, ok := list.Find("node-2"); !ok || m.Droplet != 400000005 || m.Zone != "zone-b" || m.Real {
		t.Errorf("what was destroyed came back as %+v", m)
	}
	if again, err := os.ReadFile(layout.CloudToken()); err != nil || string(again) != string(token) {
		t.Errorf("the token has changed (%v)", err)
	}
	must.Do(t, os.WriteFile(layout.CloudState(), []byte("{"), 0o600))
	if err := Prepare(layout, 3, 2, 1, false); err == nil || !strings.Contains(err.Error(), "is damaged") || !strings.Contains(err.Error(), "lab down --delete") {
		t.Errorf("a damaged state: %v", err)
	}
}
