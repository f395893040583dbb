// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// kubernetes reports whether the API server answers and which version it has.
func kubernetes(e Evidence) []finding.Finding {
	a := e.KubernetesVersion
	switch {
	case !a.Asked:
		return nil
	case a.Forbidden:
		return notMade(a, "read /version of the API server")
	case a.Failure != "":
		what := "the API server does not respond: " + a.Failure
		if e.KubernetesURL != "" {
			what = fmt.Sprintf("the API server at %s does not respond: %s", e.KubernetesURL, a.Failure)
		}
		return []finding.Finding{finding.Problem.Say("%s", what).
			Because("nothing can be removed while the existing machines are unknown; what Kubernetes runs was not checked either").
			Advise("check --kubeconfig, or the Pod's service account and network, then run doctor again")}
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
		return notMade(a, "read Calico's datastore")
	}
	if a.Failure != "" {
		return append(members(e), finding.Problem.Say("%s", a.Failure).
			Because("nothing can be read or removed while the datastore does not respond; its content was not checked either").
			Advise("check the address and the certificates, and that no firewall in between drops the connection"))
	}
	if e.Settings.Kind == kindKubernetes {
		return []finding.Finding{finding.OK.Say("Calico's datastore is the Kubernetes API, which responds")}
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
				out = append(out, finding.Warning.Say("etcd at %s does not respond: %s", m.Endpoint, m.Failure).
					Because("etcd works while more than half of its members do; it tolerates one failure less").
					Advise("repair the member, or take it out of ETCD_ENDPOINTS if it is gone for good"))
			}
			continue
		}
		versions[m.Version] = true
		if len(m.Alarms) > 0 {
			out = append(out, finding.Problem.Say("etcd at %s reports an alarm: %s", m.Endpoint, strings.Join(m.Alarms, ", ")).
				Because("with the alarm NOSPACE it accepts no writes, with CORRUPT its data cannot be trusted; neither Calico nor calico-node-sync can work").
				Advise("NOSPACE: compact, defragment, then `etcdctl alarm disarm`; CORRUPT: replace the member"))
		}
	}
	for v := range versions {
		out = append(out, supports(ProductEtcd, v))
	}
	return out
}

// certificates returns which end soon, by the judge of all doctors, with what a running controller does about it.
func certificates(e Evidence) []finding.Finding {
	e.Certificates.Now = e.Now
	out := doctor.Certificates(e.Certificates)
	for i := range out {
		if out[i].Do != "" {
			out[i].Do += "; a running controller reloads client certificates by itself, but not the CA"
		}
	}
	return out
}

// clusterInformation reports whether the datastore may be written, and whose it is.
func clusterInformation(e Evidence) []finding.Finding {
	a := e.ClusterInformation
	switch {
	case !a.known():
		return notMade(a, "read Calico's ClusterInformation")
	case a.Value == nil:
		return []finding.Finding{finding.Problem.Say("the datastore holds no ClusterInformation").
			Because("no calico-node has ever started with this datastore, or it is another one; nothing is removed").
			Advise("check that the endpoints are those of calico-node; if the cluster is new, start calico-node first")}
	}
	out := []finding.Finding{readiness(a.Value)}
	if e.Settings.Kind == kindEtcd {
		out = append(out, binding(e)...)
	}
	if v := a.Value.Spec.CalicoVersion; v != "" {
		return append(out, supports(ProductCalico, v))
	}
	return append(out, finding.Note.Say("ClusterInformation does not report the version of Calico"))
}

func readiness(info *apiv3.ClusterInformation) finding.Finding {
	if ready := info.Spec.DatastoreReady; ready != nil && *ready {
		return finding.OK.Say("ClusterInformation reports that the datastore is ready")
	}
	return finding.Problem.Say("ClusterInformation does not report datastoreReady: the datastore is locked").
		Because("a migration or upgrade is in progress or was interrupted; nothing is removed until it ends, and Calico assigns no pod addresses either").
		Advise("wait for the migration; if there is none, `calicoctl datastore migrate unlock`; if a DatastoreMigration is Converged or Complete " +
			"(`kubectl get datastoremigrations`), Calico's data is in native projectcalico.org/v3 resources, which are not supported: uninstall calico-node-sync")
}

// binding returns which cluster the datastore belongs to.
func binding(e Evidence) []finding.Finding {
	bound, uid := e.ClusterInformation.Value.Annotations[nodesync.BindingAnnotation], e.ClusterUID
	f := finding.OK.Say("the datastore is recorded to belong to this cluster")
	switch {
	case !uid.Asked:
		f = finding.Note.Say("not checked whether the datastore belongs to this cluster: the API server did not respond")
	case !uid.known():
		return notMade(uid, "get namespace kube-system, whose UID identifies the cluster")
	case bound == "":
		f = finding.Note.Say("no cluster is recorded in this datastore yet").
			Because("the first run of calico-node-sync records this one, if Calico Nodes there have their Kubernetes Nodes here")
	case bound != uid.Value:
		f = finding.Problem.Say("the datastore belongs to the cluster whose kube-system has UID %s, and this one's has %s",
			bound, uid.Value).
			Because("compared with this cluster, every machine of the other would seem gone; nothing is removed").
			Advise("check --kubeconfig and ETCD_ENDPOINTS; if the cluster was created again on purpose, remove the annotation " +
				nodesync.BindingAnnotation + " from ClusterInformation default")
	}
	return []finding.Finding{f}
}
