// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// The variables of the old operator that say what to do. MUST NOT change: they are in users' manifests.
const (
	ClusterID          = "ROUTE_REFLECTOR_CLUSTER_ID"
	Min                = "ROUTE_REFLECTOR_MIN"
	Max                = "ROUTE_REFLECTOR_MAX"
	Ratio              = "ROUTE_REFLECTOR_RATIO"
	NodeLabel          = "ROUTE_REFLECTOR_NODE_LABEL"
	ZoneLabel          = "ROUTE_REFLECTOR_ZONE_LABEL"
	IncompatibleLabels = "ROUTE_REFLECTOR_INCOMPATIBLE_NODE_LABELS"
	TopologyName       = "ROUTE_REFLECTOR_TOPOLOGY"
	WaitTimeout        = "ROUTE_REFLECTOR_WAIT_TIMEOUT"
)

// Variable is one of them with the default that the old operator had for it.
type Variable struct{ Name, Default string }

// Variables lists them, in the order of the old operator's README.
func Variables() []Variable {
	return []Variable{
		{ClusterID, "224.0.0.0"},
		{Min, "3"},
		{Max, "10"},
		{Ratio, "0.005"},
		{NodeLabel, "calico-route-reflector="},
		{ZoneLabel, ""},
		{IncompatibleLabels, ""},
		{TopologyName, "simple"},
		{WaitTimeout, "0"},
	}
}

// label is one of a node. Any says that every value will do.
type label struct {
	key, value string
	any        bool
}

// Settings are the variables, read. The zero value is of no use: see [Read].
type Settings struct {
	multi        bool
	clusterID    string // an IPv4 address, with "%d" for octets that each reflector had its own of
	min, max     int
	ratio        int // reflectors for a million nodes
	ratioText    string
	nodeLabel    label
	zoneLabel    string
	incompatible []label
	wait         int // seconds
}

const (
	million  = 1_000_000
	permille = million / 1000
)

// Read reads the variables. getenv is as os.Getenv. set says that at least one of the variables is there; each problem is a sentence that names a
// variable, its value and what it must be.
func Read(getenv func(string) string) (s Settings, set bool, problems []string) {
	value := map[string]string{}
	for _, v := range Variables() {
		given := strings.TrimSpace(getenv(v.Name))
		set = set || given != ""
		if given == "" {
			given = v.Default
		}
		value[v.Name] = given
	}
	wrong := func(name, must string) {
		problems = append(problems, fmt.Sprintf("%s %q: must be %s", name, value[name], must))
	}
	whole := func(name string, least, most int) int {
		n, err := strconv.Atoi(value[name])
		if err != nil || n < least || n > most {
			wrong(name, fmt.Sprintf("a whole number from %d to %d", least, most))
		}
		return n
	}
	s.min, s.max, s.wait = whole(Min, 1, 50), whole(Max, 5, 50), whole(WaitTimeout, 0, 86400)
	if len(problems) == 0 && s.min > s.max {
		wrong(Min, fmt.Sprintf("at most %s, which is %d", Max, s.max))
	}
	s.ratioText = value[Ratio]
	if f, err := strconv.ParseFloat(s.ratioText, 64); err != nil || !(f >= 0.001 && f <= 0.05) {
		wrong(Ratio, "a number from 0.001 to 0.05")
	} else {
		s.ratio = int(math.Round(f * million))
	}
	switch value[TopologyName] {
	case "simple":
	case "multi":
		s.multi = true
	default:
		wrong(TopologyName, "simple or multi")
	}
	s.readLabels(value, wrong)
	s.readClusterID(value[ClusterID], wrong)
	return s, set, problems
}

func (s *Settings) readLabels(value map[string]string, wrong func(name, must string)) {
	var ok bool
	if s.nodeLabel, ok = readLabel(value[NodeLabel]); !ok {
		wrong(NodeLabel, "a label such as calico-route-reflector= or key=value")
	}
	s.nodeLabel.any = false // without "=" the old one did not start
	if s.zoneLabel = value[ZoneLabel]; s.zoneLabel != "" && len(validation.IsQualifiedName(s.zoneLabel)) > 0 {
		wrong(ZoneLabel, "the key of a label, such as topology.kubernetes.io/zone")
	}
	if value[IncompatibleLabels] == "" {
		return
	}
	for part := range strings.SplitSeq(value[IncompatibleLabels], ",") {
		l, ok := readLabel(strings.TrimSpace(part))
		if !ok {
			wrong(IncompatibleLabels, "labels with commas between them: key=value, key= for an empty value, or key for any")
			return
		}
		s.incompatible = append(s.incompatible, l)
	}
}

func readLabel(text string) (label, bool) {
	key, value, has := strings.Cut(text, "=")
	return label{key, value, !has}, len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0
}

// readClusterID reads the ID. In a multi topology the old one had a "%d" for each ".0", which it filled in for each reflector.
func (s *Settings) readClusterID(text string, wrong func(name, must string)) {
	if s.multi {
		text = strings.ReplaceAll(text, ".0", ".%d")
	} else if strings.Contains(text, "%") {
		wrong(ClusterID, "an IPv4 address; %d is for "+TopologyName+" multi alone")
		return
	}
	a, err := netip.ParseAddr(strings.ReplaceAll(text, "%d", "1"))
	if err != nil || !a.Is4() || a.IsUnspecified() {
		wrong(ClusterID, "an IPv4 address other than 0.0.0.0, such as 224.0.0.0, or with multi one with %d in it, such as 224.%d.%d.%d")
	}
	s.clusterID = text
}

// oneID is the cluster ID of all reflectors where each had its own: the octets that were filled in are 0, and the last of them 1.
func (s Settings) oneID() string {
	last := strings.LastIndex(s.clusterID, "%d")
	if last < 0 {
		return s.clusterID
	}
	return strings.ReplaceAll(s.clusterID[:last], "%d", "0") + "1" + s.clusterID[last+len("%d"):]
}
