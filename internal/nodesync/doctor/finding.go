// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// checks are made in this order. Their names stand in JSON and MUST NOT change.
func checks() []finding.Check[Evidence] {
	return []finding.Check[Evidence]{
		{Name: "settings", Find: settings},
		{Name: "kubernetes", Find: kubernetes},
		{Name: "datastore", Find: datastore},
		{Name: "certificates", Find: certificates},
		{Name: "cluster-information", Find: clusterInformation},
		{Name: "calico-node", Find: calicoNode},
		{Name: "kube-controllers", Find: kubeControllers},
		{Name: "names", Find: names},
		{Name: "drift", Find: drift},
		{Name: "rights", Find: rights},
		{Name: "installations", Find: installations},
		{Name: "predecessor", Find: predecessor},
	}
}

// Findings makes every check, but for those that are other doctors' among all of them, and the one of a program's settings for
// a person. The worst findings come first, then the order of the checks holds; equal evidence gives equal findings.
func Findings(e Evidence) []finding.Finding {
	return finding.Make(slices.DeleteFunc(checks(), func(c finding.Check[Evidence]) bool {
		others := slices.Contains([]string{"kube-controllers", "installations", "predecessor"}, c.Name)
		return e.Among && others || e.ForPerson && c.Name == "settings"
	}), e)
}

// notMade is the finding about a check that could not be made, as what it needs was asked for and not answered; none if it
// was answered, or not asked.
func notMade[T any](a Answer[T], deed string) []finding.Finding {
	switch {
	case !a.Asked || a.known():
		return nil
	case a.Forbidden:
		return []finding.Finding{finding.Note.Say("not checked, because of the missing right to %s", deed).AsUnread().
			Because("there may be problems that were not checked").
			Advise("run doctor with an account that has this right: " + a.Failure)}
	}
	return []finding.Finding{finding.Warning.Say("not checked: it failed to %s: %s", deed, a.Failure).AsUnread().
		Because("there may be problems that were not checked").
		Advise("run doctor again; if it persists, check what the error names")}
}
