// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package clusterroutes

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
)

// Encapsulation is how a pool's packets travel between nodes, as far as it decides who may program its routes.
type Encapsulation string

// The encapsulations. A pool with CrossSubnet is one of its encapsulation.
const (
	VXLAN Encapsulation = "VXLAN"
	IPIP  Encapsulation = "IPIP"
	None  Encapsulation = "no encapsulation"
)

// Values of both settings from Calico 3.33 on. Before it FelixConfiguration has [Disabled] and [Enabled] alone, and
// BGPConfiguration has no such setting (projectcalico/api of October 2025, felixconfig.go).
const (
	Disabled           = "Disabled"
	EnabledIPIPOnly    = "EnabledIPIPOnly"
	EnabledNoEncapOnly = "EnabledNoEncapOnly"
	Enabled            = "Enabled"
)

// Pool is an IP pool from which pods get addresses.
type Pool struct {
	Name          string
	Encapsulation Encapsulation
}

// Settings are what decides. Fields are as Calico's resources have them, empty for absent.
type Settings struct {
	// Version is that of the running Calico (ClusterInformation, spec.calicoVersion).
	Version string
	// Felix and BGP are spec.programClusterRoutes of FelixConfiguration and BGPConfiguration default.
	Felix, BGP string
	// Pools are all, disabled ones included: their pods keep their addresses.
	Pools []Pool
}

// Resources of Calico that Settings are made of, by their names in paths.
const (
	Pools        = "ippools"
	Felix        = "felixconfigurations"
	BGP          = "bgpconfigurations"
	Informations = "clusterinformations"
)

// Add takes in a resource's JSON. Others than those that decide are left out.
func (s *Settings) Add(resource string, document []byte) error {
	var d struct {
		Metadata struct{ Name string }
		Spec     struct {
			CalicoVersion, ProgramClusterRoutes, VXLANMode, IPIPMode string
			AllowedUses                                              []string
		}
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return fmt.Errorf("parsing one of Calico's %s: %w", resource, err)
	}
	isDefault := d.Metadata.Name == "default"
	switch {
	case resource == Pools && (len(d.Spec.AllowedUses) == 0 || slices.Contains(d.Spec.AllowedUses, "Workload")):
		s.Pools = append(s.Pools, Pool{d.Metadata.Name, encapsulation(d.Spec.VXLANMode, d.Spec.IPIPMode)})
	case resource == Felix && isDefault:
		s.Felix = d.Spec.ProgramClusterRoutes
	case resource == BGP && isDefault:
		s.BGP = d.Spec.ProgramClusterRoutes
	case resource == Informations && isDefault:
		s.Version = d.Spec.CalicoVersion
	}
	return nil
}

func encapsulation(vxlan, ipip string) Encapsulation {
	on := func(mode string) bool { return mode != "" && mode != "Never" }
	switch {
	case on(vxlan):
		return VXLAN
	case on(ipip):
		return IPIP
	}
	return None
}

// Owners are who programs the routes of a pool.
type Owners struct{ Felix, BIRD bool }

// Verdict is which pools' routes are whose: each pool is in one list, sorted by name.
type Verdict struct {
	// BIRD's are carried by BGP, Felix's are not. Both write routes that overwrite each other, and nobody's have none.
	BIRD, Felix, Both, Nobody []Pool
	// Unknown are those that the version of Calico would decide, which is not known.
	Unknown []Pool
}

// Judge says whose the routes of each pool are.
func (s Settings) Judge() Verdict {
	var v Verdict
	pools := slices.SortedFunc(slices.Values(s.Pools), func(a, b Pool) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range pools {
		owners, known := s.owners(p.Encapsulation)
		list := &v.Nobody
		switch {
		case !known:
			list = &v.Unknown
		case owners.Felix && owners.BIRD:
			list = &v.Both
		case owners.Felix:
			list = &v.Felix
		case owners.BIRD:
			list = &v.BIRD
		}
		*list = append(*list, p)
	}
	return v
}

// Carried reports whether BGP carries routes between nodes, or may do so for all that is known: without a pool nothing
// is known, and routes that nobody programs may have been meant for it.
func (v Verdict) Carried() bool {
	return len(v.BIRD)+len(v.Both)+len(v.Nobody)+len(v.Unknown) > 0 || len(v.Felix) == 0
}

// NotNeeded says in one sentence that route reflectors are not needed, empty if they may be.
func (v Verdict) NotNeeded() string {
	if v.Carried() {
		return ""
	}
	return "route reflectors are not needed: BGP carries no route between nodes, since Felix programs those of IP pools " +
		Describe(v.Felix)
}

// owners are those of an encapsulation. known is false if they depend on a version that cannot be told.
func (s Settings) owners(e Encapsulation) (owners Owners, known bool) {
	running, err := version.ParseGeneric(s.Version)
	if err == nil {
		return s.ownersIn(e, running.AtLeast(version.MustParseGeneric("3.33"))), true
	}
	before, after := s.ownersIn(e, false), s.ownersIn(e, true)
	return after, before == after
}

// ownersIn are those before Calico 3.33, or from then on.
func (s Settings) ownersIn(e Encapsulation, chosen bool) Owners {
	felix, bird := Disabled, Enabled
	switch {
	case chosen:
		felix, bird = valid(s.Felix, EnabledIPIPOnly), valid(s.BGP, EnabledNoEncapOnly)
	case s.Felix == Enabled:
		felix = Enabled
	}
	if e == VXLAN {
		return Owners{Felix: true} // whatever the settings say
	}
	return Owners{Felix: programs(felix, e), BIRD: programs(bird, e)}
}

// valid is a value, or the default if it is none: so do readers that do not know it.
func valid(value, otherwise string) string {
	if slices.Contains([]string{Disabled, EnabledIPIPOnly, EnabledNoEncapOnly, Enabled}, value) {
		return value
	}
	return otherwise
}

func programs(value string, e Encapsulation) bool {
	return value == Enabled || e == IPIP && value == EnabledIPIPOnly || e == None && value == EnabledNoEncapOnly
}

// Describe names pools by their encapsulation, such as "a, b (IPIP)"; at most five.
func Describe(pools []Pool) string {
	const most = 5
	var texts []string
	for _, p := range pools[:min(most, len(pools))] {
		texts = append(texts, fmt.Sprintf("%s (%s)", p.Name, p.Encapsulation))
	}
	if more := len(pools) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
