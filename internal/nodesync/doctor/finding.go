// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// The checks, in the order in which they are made. The values stand in JSON and MUST NOT change.
const (
	CheckSettings           = "settings"
	CheckKubernetes         = "kubernetes"
	CheckDatastore          = "datastore"
	CheckCertificates       = "certificates"
	CheckClusterInformation = "cluster-information"
	CheckCalicoNode         = "calico-node"
	CheckKubeControllers    = "kube-controllers"
	CheckNames              = "names"
	CheckDrift              = "drift"
	CheckRights             = "rights"
	CheckInstallations      = "installations"
	CheckPredecessor        = "predecessor"
)

func checks() []finding.Check[Evidence] {
	return []finding.Check[Evidence]{
		{Name: CheckSettings, Find: settings},
		{Name: CheckKubernetes, Find: kubernetes},
		{Name: CheckDatastore, Find: datastore},
		{Name: CheckCertificates, Find: certificates},
		{Name: CheckClusterInformation, Find: clusterInformation},
		{Name: CheckCalicoNode, Find: calicoNode},
		{Name: CheckKubeControllers, Find: kubeControllers},
		{Name: CheckNames, Find: names},
		{Name: CheckDrift, Find: drift},
		{Name: CheckRights, Find: rights},
		{Name: CheckInstallations, Find: installations},
		{Name: CheckPredecessor, Find: predecessor},
	}
}

// Findings makes every check, or, among all doctors, those that are no other doctor's. The worst findings come first, then the order of the checks holds; equal
// evidence gives equal findings.
func Findings(e Evidence) []finding.Finding {
	made := checks()
	if e.Among {
		made = slices.DeleteFunc(made, func(c finding.Check[Evidence]) bool {
			return slices.Contains([]string{CheckKubeControllers, CheckInstallations, CheckPredecessor}, c.Name)
		})
	}
	return finding.Make(made, e)
}

// notMade is the finding about a check that could not be made.
func notMade[T any](a Answer[T], deed string) finding.Finding {
	if a.Forbidden {
		return finding.Finding{
			Severity: finding.Note, Unread: true, What: "not checked, because of the missing right to " + deed,
			Why: "there may be problems that were not checked", Do: "run doctor with an account that has this right: " + a.Failure,
		}
	}
	return finding.Finding{
		Severity: finding.Warning, Unread: true, What: fmt.Sprintf("not checked: it failed to %s: %s", deed, a.Failure),
		Why: "there may be problems that were not checked", Do: "run doctor again; if it persists, check what the error names",
	}
}
