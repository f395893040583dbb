// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// RightAnswer is whether one Right is there.
type RightAnswer struct {
	Right   nodesync.Right
	Allowed bool
	// Failure is why that could not be found out.
	Failure string
}

// serviceAccounts begins the name that the API server gives to the account of a program.
const serviceAccounts = "system:serviceaccount:"

// rights says what is missing.
func rights(e Evidence) []finding.Finding {
	if len(e.Rights) == 0 {
		return nil
	}
	who := cmp.Or(e.RightsOf, "the user who runs doctor")
	var missing, lesser, uses, unknown, optional []string
	for _, a := range e.Rights {
		switch {
		case a.Failure != "":
			unknown = append(unknown, a.Right.String()+" ("+a.Failure+")")
		case a.Allowed:
		case a.Right.Optional:
			optional = append(optional, a.Right.String())
		case a.Right.For != "":
			lesser, uses = append(lesser, a.Right.String()), append(uses, a.Right.For)
		default:
			missing = append(missing, a.Right.String())
		}
	}
	severity, do := finding.Problem, "apply config/calico-node-sync again, or compare the ClusterRole, the Role and their bindings with it"
	if !strings.HasPrefix(e.RightsOf, serviceAccounts) {
		// A person who looks around need not be able to do the controller's work.
		severity, do = finding.Warning, "nothing, if only the controller should write: check its account with --as="+serviceAccounts+"NAMESPACE:calico-node-sync; else give these rights"
	}
	var out []finding.Finding
	lacks := func(f finding.Finding, may string, rights []string) {
		if f.What = fmt.Sprintf(may, who, strings.Join(rights, ", ")); len(rights) > 0 {
			out = append(out, f)
		}
	}
	lacks(finding.Finding{Severity: severity, Why: "without it nothing is removed", Do: do}, "%s may not %s", missing)
	lacks(finding.Finding{Severity: finding.Warning, Why: "this is for " + finding.Few(uses), Do: do}, "%s may not %s", lesser)
	lacks(finding.Finding{
		Severity: finding.Warning, Unread: true, Why: "rights may be missing that were not checked", Do: "run doctor again, or ask with `kubectl auth can-i`",
	}, "it is unknown whether %s may %s", unknown)
	if len(out) == 0 {
		out = append(out, finding.OK.Say("%s has all %s that calico-node-sync uses", who, prose.Plural(len(e.Rights)-len(optional), "right")))
	}
	lacks(finding.Finding{
		Severity: finding.Note, Why: "`kubectl mooring restore` needs it, and nothing else does; the roles that are shipped leave it out",
		Do: "nothing; to put something back, apply config/calico-node-sync/samples/restore-rights.yaml or set calicoNodeSync.restoreRights of the chart",
	}, "%s may not %s", optional)
	if e.Namespace == "" {
		out = append(out, finding.Note.Say("rights on the Lease and on ConfigMaps were not checked: the controller's namespace is not known").
			Advise("name it with --leader-election-namespace"))
	}
	return out
}
