// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// certificateNotice is how long before its end a certificate is a warning.
const certificateNotice = 14 * 24 * time.Hour

// kubernetes reports whether the API server answers and which version it has.
func kubernetes(e Evidence) []finding.Finding {
	a := e.KubernetesVersion
	switch {
	case !a.Asked:
		return nil
	case a.Forbidden:
		return []finding.Finding{notMade(a, "read /version of the API server")}
	case a.Failure != "":
		what := "the API server does not respond: " + a.Failure
		if e.KubernetesURL != "" {
			what = fmt.Sprintf("the API server at %s does not respond: %s", e.KubernetesURL, a.Failure)
		}
		return []finding.Finding{{
			Severity: finding.Problem, What: what,
			Why: "nothing can be removed while the existing machines are unknown; what Kubernetes runs was not checked either",
			Do:  "check --kubeconfig, or the Pod's service account and network, then run doctor again",
		}}
	}
	return []finding.Finding{supports(ProductKubernetes, a.Value)}
}

// datastore reports whether Calico's datastore answers, and how the members of etcd are.
func datastore(e Evidence) []finding.Finding {
	a := e.Datastore
	if !a.Asked {
		return nil
	}
	if a.Forbidden {
		return []finding.Finding{notMade(a, "read Calico's datastore")}
	}
	if a.Failure != "" {
		return append(members(e), finding.Finding{
			Severity: finding.Problem, What: a.Failure,
			Why: "nothing can be read or removed while the datastore does not respond; its content was not checked either",
			Do:  "check the address and the certificates, and that no firewall in between drops the connection",
		})
	}
	if e.Settings.Kind == kindKubernetes {
		return []finding.Finding{{Severity: finding.OK, What: "Calico's datastore is the Kubernetes API, which responds"}}
	}
	return members(e)
}

// members tells of each etcd endpoint. One that does not respond is told if another does: otherwise it is told of the datastore as a whole.
func members(e Evidence) []finding.Finding {
	var out []finding.Finding
	versions := map[string]bool{}
	some := slices.ContainsFunc(e.Members, func(m Member) bool { return m.Failure == "" })
	for _, m := range e.Members {
		if m.Failure != "" {
			if some {
				out = append(out, finding.Finding{
					Severity: finding.Warning, What: fmt.Sprintf("etcd at %s does not respond: %s", m.Endpoint, m.Failure),
					Why: "etcd works while more than half of its members do; it tolerates one failure less", Do: "repair the member, or take it out of ETCD_ENDPOINTS if it is gone for good",
				})
			}
			continue
		}
		versions[m.Version] = true
		if len(m.Alarms) > 0 {
			out = append(out, finding.Finding{
				Severity: finding.Problem, What: fmt.Sprintf("etcd at %s reports an alarm: %s", m.Endpoint, strings.Join(m.Alarms, ", ")),
				Why: "with the alarm NOSPACE it accepts no writes, with CORRUPT its data cannot be trusted; neither Calico nor calico-node-sync can work",
				Do:  "NOSPACE: compact, defragment, then `etcdctl alarm disarm`; CORRUPT: replace the member",
			})
		}
	}
	for v := range versions {
		out = append(out, supports(ProductEtcd, v))
	}
	return out
}

// certificates returns which end soon.
func certificates(e Evidence) []finding.Finding {
	var out []finding.Finding
	var first *Certificate
	good := 0
	for _, c := range slices.SortedFunc(slices.Values(e.Certificates), func(a, b Certificate) int { return cmp.Compare(a.name(), b.name()) }) {
		if f, bad := badCertificate(c, e.Now); bad {
			out = append(out, f)
			continue
		}
		good++
		if first == nil || c.NotAfter.Before(first.NotAfter) {
			first = &c
		}
	}
	if first != nil {
		out = append(out, finding.Finding{Severity: finding.OK, What: fmt.Sprintf("%s valid; the first to expire is %s at %s",
			prose.Are(good, "certificate"), first.name(), stamp(first.NotAfter))})
	}
	return out
}

func badCertificate(c Certificate, now time.Time) (f finding.Finding, bad bool) {
	const renewed = "it; a running controller reloads client certificates by itself, but not the CA"
	f = finding.Finding{Severity: finding.Problem, Why: "without it the datastore or the API server cannot be reached, and nothing is removed"}
	switch {
	case c.Failure != "":
		f.What, f.Do = fmt.Sprintf("%s cannot be used: %s", c.name(), c.Failure), "put a valid certificate there"
	case !now.Before(c.NotAfter):
		f.What, f.Do = fmt.Sprintf("%s ended at %s", c.name(), stamp(c.NotAfter)), "replace "+renewed
	case now.Before(c.NotBefore):
		f.What, f.Do = fmt.Sprintf("%s is not valid before %s", c.name(), stamp(c.NotBefore)), "check the clock of this machine, and of the one that issued it"
	case c.NotAfter.Sub(now) < certificateNotice:
		f.Severity, f.Do = finding.Warning, "renew "+renewed
		f.What = fmt.Sprintf("%s ends at %s, in %s", c.name(), stamp(c.NotAfter), days(c.NotAfter.Sub(now)))
	default:
		return f, false
	}
	return f, true
}

func (c Certificate) name() string {
	if c.File == "" {
		return c.Name
	}
	return c.Name + " (" + c.File + ")"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func days(d time.Duration) string {
	if d < 48*time.Hour {
		return prose.Plural(int(d.Hours()), "hour")
	}
	return prose.Plural(int(d.Hours()/24), "day")
}

// clusterInformation reports whether the datastore may be written, and whose it is.
func clusterInformation(e Evidence) []finding.Finding {
	a := e.ClusterInformation
	switch {
	case !a.Asked:
		return nil
	case a.Failure != "":
		return []finding.Finding{notMade(a, "read Calico's ClusterInformation")}
	case !a.Value.Exists:
		return []finding.Finding{{
			Severity: finding.Problem, What: "the datastore holds no ClusterInformation",
			Why: "no calico-node has ever started with this datastore, or it is another one; nothing is removed",
			Do:  "check that the endpoints are those of calico-node; if the cluster is new, start calico-node first",
		}}
	}
	out := []finding.Finding{readiness(a.Value)}
	if e.Settings.Kind == kindEtcd {
		out = append(out, binding(e))
	}
	if v := a.Value.Version; v != "" {
		return append(out, supports(ProductCalico, v))
	}
	return append(out, finding.Finding{Severity: finding.Note, What: "ClusterInformation does not report the version of Calico"})
}

func readiness(info ClusterInformation) finding.Finding {
	if info.Ready {
		return finding.Finding{Severity: finding.OK, What: "ClusterInformation reports that the datastore is ready"}
	}
	return finding.Finding{
		Severity: finding.Problem, What: "ClusterInformation does not report datastoreReady: the datastore is locked",
		Why: "a migration or upgrade is in progress or was interrupted; nothing is removed until it ends, and Calico assigns no pod addresses either",
		Do: "wait for the migration; if there is none, `calicoctl datastore migrate unlock`; if a DatastoreMigration is Converged or Complete " +
			"(`kubectl get datastoremigrations`), Calico's data is in native projectcalico.org/v3 resources, which are not supported: uninstall calico-node-sync",
	}
}

// binding returns which cluster the datastore belongs to.
func binding(e Evidence) finding.Finding {
	bound, uid := e.ClusterInformation.Value.BoundTo, e.ClusterUID
	switch {
	case uid.Asked && !uid.known():
		return notMade(uid, "get namespace kube-system, whose UID identifies the cluster")
	case !uid.Asked:
		return finding.Finding{Severity: finding.Note, What: "not checked whether the datastore belongs to this cluster: the API server did not respond"}
	case bound == "":
		return finding.Finding{
			Severity: finding.Note, What: "no cluster is recorded in this datastore yet",
			Why: "the first run of calico-node-sync records this one, if Calico Nodes there have their Kubernetes Nodes here",
		}
	case bound != uid.Value:
		return finding.Finding{
			Severity: finding.Problem, What: fmt.Sprintf("the datastore belongs to the cluster whose kube-system has UID %s, and this one's has %s", bound, uid.Value),
			Why: "compared with this cluster, every machine of the other would seem gone; nothing is removed",
			Do: "check --kubeconfig and ETCD_ENDPOINTS; if the cluster was created again on purpose, remove the annotation " + nodesync.BindingAnnotation + " from " +
				"ClusterInformation default",
		}
	}
	return finding.Finding{Severity: finding.OK, What: "the datastore is recorded to belong to this cluster"}
}
