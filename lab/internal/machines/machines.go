// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// State reports whether anything is heard of a machine.
type State string

// The states of a machine that exists. One that does not is not in the list.
const (
	Running State = "running"
	// Frozen means that nothing is heard of the machine, although it is still there: after a while its Node becomes NotReady.
	Frozen State = "frozen"
	// Off means that the droplet of the machine is switched off.
	Off State = "off"
)

// Machine is one machine.
type Machine struct {
	Name string `json:"name"`
	Zone string `json:"zone"`
	// Address is that of its network card, in Network.
	Address netip.Addr `json:"address"`
	State   State      `json:"state"`
	// ExternalCloudProvider makes its Node wait, with a taint, for a cloud controller manager.
	ExternalCloudProvider bool `json:"externalCloudProvider,omitempty"`
	// Droplet is the ID of the droplet that the machine is; 0 in a lab without a cloud.
	Droplet int `json:"droplet,omitempty"`
	// Real reports that it is not simulated: it has a kubelet and a containerd of its own.
	Real bool `json:"real,omitempty"`
}

// Same reports whether two descriptions are of one machine, whatever state it is in.
func (m Machine) Same(other Machine) bool {
	m.State, other.State = "", ""
	return m == other
}

// List is the content of machines.json.
type List struct {
	Machines []Machine `json:"machines"`
}

// ErrUnknown reports that there is no machine of that name.
var ErrUnknown = errors.New("there is no such machine")

// Network is where machines have their addresses. Only in a lab with a BGP network does anything answer there; else addresses are only said.
func Network() netip.Prefix { return netip.MustParsePrefix("172.30.0.0/16") }

// NetworkV6 is where machines of a BGP network have their IPv6 addresses, and IPv6 the one of the machine with an address of Network.
func NetworkV6() netip.Prefix { return netip.MustParsePrefix("fd00:172:30::/64") }

// IPv6 is the IPv6 address of the machine with an address of Network: the same host in [NetworkV6].
func IPv6(address netip.Addr) netip.Addr {
	from, to := address.As4(), NetworkV6().Addr().As16()
	to[14], to[15] = from[2], from[3]
	return netip.AddrFrom16(to)
}

// Seed lists node-1 … node-N spread over zones zone-a, zone-b, … in turn, of which the first are real.
func Seed(nodes, zones, realNodes int) List {
	var list List
	address := firstAddress()
	for i := range nodes {
		list.Machines = append(list.Machines, Machine{
			Name: "node-" + strconv.Itoa(i+1), Zone: Zone(i % zones), Address: address, State: Running, Real: i < realNodes,
		})
		address = address.Next()
	}
	return list
}

// Zone is the name of zone number i, counted from 0.
func Zone(i int) string { return "zone-" + string(rune('a'+i)) }

// Find returns the machine of that name.
func (l List) Find(name string) (Machine, bool) {
	i := l.index(name)
	if i < 0 {
		return Machine{}, false
	}
	return l.Machines[i], true
}

// Add returns the list with a further machine. An empty zone means the one that has the fewest machines so far.
func (l List) Add(name, zone string, externalCloudProvider, isReal bool) (List, error) {
	if err := CheckNames(name, zone); err != nil {
		return l, err
	}
	if l.index(name) >= 0 {
		return l, fmt.Errorf("there is a machine %s already; choose another name or remove it first", name)
	}
	if zone == "" {
		zone = l.EmptiestZone()
	}
	address := l.freeAddress()
	if !address.IsValid() {
		return l, fmt.Errorf("no address is left in %s; remove a machine first", Network())
	}
	l.Machines = append(slices.Clone(l.Machines), Machine{
		Name: name, Zone: zone, Address: address, State: Running, ExternalCloudProvider: externalCloudProvider, Real: isReal,
	})
	return l, nil
}

// ValidName reports whether a Node can have the name.
func ValidName(name string) bool { return len(validation.IsDNS1123Subdomain(name)) == 0 }

// CheckNames returns what is wrong with the names of a new machine and of its zone, in one sentence. An empty zone is chosen later.
func CheckNames(name, zone string) error {
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a node: %s", name, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(zone); len(problems) > 0 {
		return fmt.Errorf("%q cannot be the name of a zone: %s", zone, strings.Join(problems, "; "))
	}
	return nil
}

// Remove returns the list without the machine.
func (l List) Remove(name string) (List, error) {
	i := l.index(name)
	if i < 0 {
		return l, l.unknown(name)
	}
	l.Machines = slices.Delete(slices.Clone(l.Machines), i, i+1)
	return l, nil
}

// SetState returns the list with the machine in that state.
func (l List) SetState(name string, state State) (List, error) {
	i := l.index(name)
	if i < 0 {
		return l, l.unknown(name)
	}
	if l.Machines[i].State == Off {
		return l, fmt.Errorf("machine %s is switched off; switch it on with `lab droplet power-on %s`", name, name)
	}
	l.Machines = slices.Clone(l.Machines)
	l.Machines[i].State = state
	return l, nil
}

// Include returns the list with every machine of other that is not in it yet.
func (l List) Include(other List) List {
	for _, machine := range other.Machines {
		if l.index(machine.Name) < 0 {
			machine.Address = l.freeAddress()
			l.Machines = append(slices.Clone(l.Machines), machine)
		}
	}
	return l
}

// Names lists the names in order.
func (l List) Names() []string {
	names := make([]string, 0, len(l.Machines))
	for _, machine := range l.Machines {
		names = append(names, machine.Name)
	}
	return names
}

func (l List) unknown(name string) error {
	if len(l.Machines) == 0 {
		return fmt.Errorf("%w as %s; the lab has none, add one with `lab node add NAME`", ErrUnknown, name)
	}
	return fmt.Errorf("%w as %s; %s", ErrUnknown, name, Instead(name, l.Names()))
}

func (l List) index(name string) int {
	return slices.IndexFunc(l.Machines, func(m Machine) bool { return m.Name == name })
}

// freeAddress returns the lowest address that no machine has, as a cloud may do which gives the address of a machine that is gone to the next.
// It is invalid if none is left.
func (l List) freeAddress() netip.Addr {
	taken := make(map[netip.Addr]bool, len(l.Machines))
	for _, machine := range l.Machines {
		taken[machine.Address] = true
	}
	for address := firstAddress(); Network().Contains(address); address = address.Next() {
		if !taken[address] {
			return address
		}
	}
	return netip.Addr{}
}

// firstAddress leaves out the address of the network itself and that of its router.
func firstAddress() netip.Addr { return Network().Addr().Next().Next() }

// EmptiestZone is the zone with the fewest machines.
func (l List) EmptiestZone() string {
	counts := map[string]int{}
	var zones []string
	for _, machine := range l.Machines {
		if counts[machine.Zone] == 0 {
			zones = append(zones, machine.Zone)
		}
		counts[machine.Zone]++
	}
	if len(zones) == 0 {
		return Zone(0)
	}
	slices.Sort(zones)
	return slices.MinFunc(zones, func(a, b string) int { return counts[a] - counts[b] })
}
