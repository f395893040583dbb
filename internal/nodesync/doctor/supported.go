// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/version"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Range is the versions of one product that are supported, both ends included, of the form major.minor.
type Range struct {
	Product        string
	Oldest, Newest string
}

// The products of Supported.
const (
	ProductKubernetes = "Kubernetes"
	ProductEtcd       = "etcd"
	ProductCalico     = "Calico"
)

// Supported lists the versions with which calico-node-sync works; documentation is generated from it.
func Supported() []Range {
	return []Range{
		{ProductKubernetes, "1.34", "1.37"},
		{ProductEtcd, "3.5", "3.7"},
		{ProductCalico, "3.28", "3.33"},
	}
}

// supports says how a version stands to what is supported. Anything but major.minor is left out of the comparison.
func supports(product, text string) finding.Finding {
	var r Range
	for _, candidate := range Supported() {
		if candidate.Product == product {
			r = candidate
		}
	}
	supported := fmt.Sprintf("%s to %s are supported", r.Oldest, r.Newest)
	is, err := version.ParseGeneric(text)
	minor := func(v *version.Version) *version.Version { return version.MajorMinor(v.Major(), v.Minor()) }
	switch {
	case err != nil:
		return finding.Note.Say("%s reports version %q, which cannot be compared; %s", product, text, supported)
	case minor(is).LessThan(version.MustParse(r.Oldest)):
		return finding.Warning.Say("%s %s is older than what is supported: %s", product, text, supported).
			Because("it may lack what calico-node-sync relies on, or store it in another form").
			Advise("update " + product + ", or try calico-node-sync with --mode=report first")
	case version.MustParse(r.Newest).LessThan(minor(is)):
		return finding.Warning.Say("%s %s is newer than what is supported: %s", product, text, supported).
			Because("it may store things in a form that calico-node-sync does not know").
			Advise("update calico-node-sync, or try it with --mode=report first")
	}
	return finding.OK.Say("%s %s is supported (%s to %s are)", product, text, r.Oldest, r.Newest)
}
