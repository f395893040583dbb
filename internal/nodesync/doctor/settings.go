// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// The kinds of datastore, as Calico spells them.
const (
	kindEtcd       = "etcdv3"
	kindKubernetes = "kubernetes"
)

// settings returns which datastore is meant and who says so.
func settings(e Evidence) []finding.Finding {
	s := e.Settings
	out := ignoredVariables(s)
	if s.Failure != "" {
		return append(out, finding.Problem.Say("%s", s.Failure).
			Because("calico-node-sync does not start with these settings, and the datastore could not be checked").
			Advise("set it as in the DaemonSet calico-node and ConfigMap calico-config, then run doctor again"))
	}
	where := s.Kind
	if s.Kind == kindEtcd {
		where += " at " + strings.Join(s.Endpoints, ", ")
	}
	if s.Flag == "" && s.setBy("DATASTORE_TYPE") == "" {
		return append(out, finding.Note.Say("the datastore is %s, set only by %s", where, cmp.Or(s.setBy("ETCD_ENDPOINTS"), "ETCD_ENDPOINTS")).
			Because("without the variable calico-node-sync does not start, and Calico's own programs silently use the kubernetes datastore").
			Advise("set DATASTORE_TYPE=etcdv3 as well"))
	}
	return append(out, finding.OK.Say("the datastore is %s, as %s", where, s.source()))
}

// setBy is the name by which a variable is set, "" if it is not: the one with CALICO_ before it counts.
func (s Settings) setBy(name string) string {
	for _, by := range []string{"CALICO_" + name, name} {
		if s.Variables[by] != "" {
			return by
		}
	}
	return ""
}

// source says who names the kind of datastore.
func (s Settings) source() string {
	var says []string
	if s.Flag != "" {
		says = append(says, "--datastore-type")
	}
	for _, name := range []string{"DATASTORE_TYPE", "CALICO_DATASTORE_TYPE"} {
		if s.Variables[name] != "" {
			says = append(says, name)
		}
	}
	if len(says) == 1 {
		return says[0] + " says"
	}
	return strings.Join(says, " and ") + " say"
}

// ignoredVariables are variables that somebody has set and that do nothing.
func ignoredVariables(s Settings) []finding.Finding {
	var out []finding.Finding
	var old, idle []string
	for _, name := range slices.Sorted(maps.Keys(s.Variables)) {
		bare := strings.TrimPrefix(name, "CALICO_")
		switch {
		case bare == "ETCD_AUTHORITY" || bare == "ETCD_SCHEME":
			old = append(old, name)
		case s.Kind == kindKubernetes && strings.HasPrefix(bare, "ETCD_"):
			idle = append(idle, name)
		case bare == "KUBECONFIG":
			out = append(out, finding.Note.Say("%s is set and is not read", name).
				Because("calico-node-sync takes the cluster from --kubeconfig or from its Pod alone, so that no other cluster is changed by accident").
				Advise("nothing, if --kubeconfig names the right file"))
		}
	}
	if len(old) > 0 {
		out = append(out, finding.Warning.Say("%s is set, which Calico has not read since version 3", finding.Few(old)).
			Because("it may name another etcd than the one that is used").
			Advise("unset it; ETCD_ENDPOINTS holds URLs, with the scheme"))
	}
	if len(idle) > 0 {
		out = append(out, finding.Note.Say("%s is set and is not used with the kubernetes datastore", finding.Few(idle)).
			Because("it may be a leftover, or the datastore may be meant to be etcd").
			Advise("unset it, or set DATASTORE_TYPE=etcdv3 and ETCD_ENDPOINTS"))
	}
	return out
}
