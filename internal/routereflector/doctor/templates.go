// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
)

// templates reports on how many nodes the patched BIRD templates are in force, where there are reflectors. Without
// them all works; a dead neighbor is lost later.
func templates(x examined) []finding.Finding {
	if x.NoTemplates != "" && len(x.reflectors) > 0 {
		return []finding.Finding{finding.Note.Say("whether patched BIRD templates are in force is unknown: %s", x.NoTemplates).AsUnread()}
	}
	if x.Templates == nil || len(x.reflectors) == 0 {
		return nil
	}
	nodes := x.Templates.Nodes()
	missing, why, names := birdtemplates.Summary(nodes)
	switch {
	case len(nodes) == 0:
		return nil
	case missing == 0:
		return []finding.Finding{finding.OK.Say("patched BIRD templates are in force on %s (%s, sha256 %s)", prose.Plural(len(nodes), "node"),
			x.Templates.Name(), x.Templates.Hash())}
	case missing == len(nodes) && x.Templates.Data == nil:
		return []finding.Finding{finding.Note.Say("Calico's own BIRD templates are in force on all nodes").
			Because("a reflector that falls silent is lost by its peers after up to 240 s").
			Advise("see `kubectl mooring bird-templates --help`")}
	}
	return []finding.Finding{finding.Warning.Say("patched BIRD templates are not in force on %d of %s: %s (%s)", missing, prose.Plural(len(nodes), "node"), why,
		finding.Few(names)).
		Because("a session is lost within seconds only where both of its ends have them").
		Advise("see `kubectl mooring bird-templates --check`, and roll them out to the end")}
}
