// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

func TestSeed(t *testing.T) {
	t.Parallel()
	var got []string
	for _, m := range machines.Seed(5, 2, 0).Machines {
		got = append(got, fmt.Sprint(m.Name, " ", m.Zone, " ", m.Address, " ", m.State))
	}
	want := []string{
		"node-1 zone-a 172.30.0.2 running", "node-2 zone-b 172.30.0.3 running", "node-3 zone-a 172.30.0.4 running",
		"node-4 zone-b 172.30.0.5 running", "node-5 zone-a 172.30.0.6 running",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestIPv6FollowsTheAddress(t *testing.T) {
	t.Parallel()
	for from, want := range map[string]string{"172.30.0.2": "fd00:172:30::2", "172.30.255.254": "fd00:172:30::fffe", "172.30.1.0": "fd00:172:30::100"} {
		got := machines.IPv6(netip.MustParseAddr(from))
		if got.String() != want || !machines.NetworkV6().Contains(got) {
			t.Errorf("%s has %s, want %s in %s", from, got, want, machines.NetworkV6())
		}
	}
}

func TestChangesLeaveTheOldListAlone(t *testing.T) {
	t.Parallel()
	before, reference := machines.Seed(3, 1, 0), machines.Seed(3, 1, 0)
	frozen := must.Get(before.SetState("node-2", machines.Frozen)).Or(t)
	smaller := must.Get(frozen.Remove("node-1")).Or(t)
	larger := must.Get(smaller.Add("new", "", true, false)).Or(t)
	if fmt.Sprint(before) != fmt.Sprint(reference) {
		t.Error("a change reached the list it was derived from")
	}
	if got := larger.Names(); !cmp.Equal(got, []string{"node-2", "node-3", "new"}) {
		t.Errorf("machines after the changes: %v", got)
	}
	added, _ := larger.Find("new")
	first, _ := before.Find("node-1")
	if added.Address != first.Address {
		t.Errorf("the address %v of the removed machine was not used again, but %v", first.Address, added.Address)
	}
}

func TestIncludeKeepsWhatIsThere(t *testing.T) {
	t.Parallel()
	list, err := machines.Seed(3, 1, 0).Remove("node-2")
	must.Do(t, err)
	if list, err = list.SetState("node-3", machines.Frozen); err != nil {
		t.Fatal(err)
	}
	list = list.Include(machines.Seed(3, 1, 0))
	if got := list.Names(); !cmp.Equal(got, []string{"node-1", "node-3", "node-2"}) {
		t.Errorf("machines: %v", got)
	}
	if m, _ := list.Find("node-3"); m.State != machines.Frozen {
		t.Error("a frozen machine was thawed")
	}
}

func TestBadChangesSayWhatToDo(t *testing.T) {
	t.Parallel()
	list := machines.Seed(2, 1, 0)
	for name, c := range map[string]struct {
		change func() (machines.List, error)
		want   string
	}{
		"taken":      {func() (machines.List, error) { return list.Add("node-1", "", false, false) }, "choose another name"},
		"not a name": {func() (machines.List, error) { return list.Add("Node_1", "", false, false) }, "cannot be the name of a node"},
		"not a zone": {func() (machines.List, error) { return list.Add("x", "zone/a", false, false) }, "cannot be the name of a zone"},
		"unknown":    {func() (machines.List, error) { return list.Remove("node-9") }, "there are: node-1, node-2"},
		"none":       {func() (machines.List, error) { return machines.List{}.SetState("x", machines.Frozen) }, "lab node add"},
	} {
		if _, err := c.change(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v does not say %q", name, err, c.want)
		}
	}
	if _, err := list.Remove("node-9"); !errors.Is(err, machines.ErrUnknown) {
		t.Errorf("removing a machine that is not there: %v", err)
	}
}

func TestInstead(t *testing.T) {
	t.Parallel()
	if got := machines.Instead("node-9", []string{"a", "b"}); got != "there are: a, b" {
		t.Errorf("of few: %s", got)
	}
	got := machines.Instead("nod-307", machines.Seed(1000, 1, 0).Names())
	if !strings.HasPrefix(got, "of the 1000 that there are, these look most alike: node-307, ") || len(got) > 100 {
		t.Errorf("of many: %s", got)
	}
}

func TestMachinesThatAreOffCannotBeFrozen(t *testing.T) {
	t.Parallel()
	list := machines.Seed(1, 1, 0)
	list.Machines[0].State = machines.Off
	if _, err := list.SetState("node-1", machines.Frozen); err == nil || !strings.Contains(err.Error(), "lab droplet power-on node-1") {
		t.Errorf("error: %v", err)
	}
}

func TestEditLosesNoChange(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "machines.json")
	var group sync.WaitGroup
	const writers = 20
	for i := range writers {
		group.Go(func() {
			err := machines.Edit(path, func(list machines.List) (machines.List, error) {
				return list.Add(fmt.Sprintf("m-%d", i), "", false, false)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	list := must.Get(machines.Load(path)).Or(t)
	addresses := map[string]bool{}
	for _, m := range list.Machines {
		addresses[m.Address.String()] = true
	}
	if len(list.Machines) != writers || len(addresses) != writers {
		t.Errorf("%d machines with %d addresses, want %d of each", len(list.Machines), len(addresses), writers)
	}
}
