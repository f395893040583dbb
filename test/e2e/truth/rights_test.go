// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// right is one that a person may lack, with the parts that cannot be judged without it. What a component is known by from
// another side is good by that, and the whole is not.
type right struct {
	name  string
	path  string
	parts []part
	// needed changes the world into one of which only what may not be read shows what is wrong; nil where it is read of any
	// world.
	needed func(*world)
}

func rights() []right {
	machines := []part{{"machine", "w1"}, {"machine", "w2"}, {"machine", "w3"}}
	service, claim, tenant, topology := part{"service", "shop/front"}, part{"claim", "shop/data"}, part{"tenant", "team-a"}, part{"topology", "main"}
	kept := []part{service, tenant, topology}
	programs := []part{{"component", cloud}, {"component", nodeSync}, {"component", reflectors}, {"component", storage}}
	return []right{
		{"Nodes", `^/api/v1/nodes\b`, machines, nil},
		{"Services", `^/api/v1/services|/services/`, []part{service}, nil},
		{"claims", `/persistentvolumeclaims`, []part{claim}, nil},
		{"PersistentVolumes", `/persistentvolumes`, []part{claim}, nil},
		{"VolumeAttachments", `/volumeattachments`, []part{claim}, nil},
		{"Pods", `/pods`, []part{claim}, nil},
		{"Deployments", `/deployments`, nil, nil},
		{"StatefulSets", `/statefulsets`, []part{{"component", driver}}, nil},
		{"DaemonSets", `/daemonsets`, []part{{"component", driver}}, nil},
		{"CSIDrivers", `/csidrivers`, nil, func(w *world) { // nothing else shows that a driver is missing
			drop[appsv1.StatefulSet](w, system, "csi-do-controller")
			drop[appsv1.DaemonSet](w, system, "csi-do-node")
		}},
		{"Leases", `/leases`, slices.Concat(programs, kept), nil},
		{"EtcdStorages", `/etcdstorages`, []part{tenant}, nil},
		{"RouteReflectorTopologies", `/routereflectortopologies`, []part{topology}, nil},
		{"BGPPeers", `/bgppeers`, nil, nil},
		{"BlockAffinities", `/blockaffinities`, machines, nil},
		{"SubjectAccessReviews", `/subjectaccessreviews`, nil, func(w *world) { // what no role grants may be allowed otherwise
			drop[rbacv1.ClusterRoleBinding](w, "", "mooring-calico-node-sync")
		}},
	}
}

// partial is a person who lacks one right: what was not read for want of it is never good.
func (s *stage) partial(r right) (name string, lies []string) {
	s.Helper()
	path := regexp.MustCompile(r.path)
	if r.needed != nil {
		before := s.world
		w := healthy(s.T, before.now)
		r.needed(w)
		s.set(w)
		defer s.set(before)
	}
	f := newFront(s.T, s.server.Config.Host)
	f.set(0, func(request *http.Request) bool { return path.MatchString(request.URL.Path) })
	s.through(f, func() {
		answers := s.ask(r.parts...)
		for _, a := range answers {
			whole := a.view == "status" || a.view == "page"
			for _, p := range r.parts {
				x, known := a.said[p]
				whole = whole || known && x.state != good && a.view != "version"
				if known && x.state == good && a.view != "version" && a.view != "doctor" { // whose findings are one by one
					lies = append(lies, fmt.Sprintf("green lie: %s says that %s is good, and has not read %s", a.view, p, r.name))
				}
			}
			if whole && a.code == 0 {
				lies = append(lies, fmt.Sprintf("green lie: %s ends with 0, and has not read %s", a.view, r.name))
			}
		}
	})
	return "the person may not read " + r.name, lies
}
