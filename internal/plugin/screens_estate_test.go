// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"io"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	estatecmd "github.com/mooring-dev/mooring/internal/plugin/estate"
)

// screenEstateReport is a cluster with one load balancer, a firewall and a volume; in trouble with something of each state.
func screenEstateReport(ill bool) estate.Report {
	held := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "front", UID: "u"}}
	held.Status.Conditions = []metav1.Condition{{Type: loadbalancer.ConditionHeld, Status: metav1.ConditionTrue, Message: "4de7ac8b-495b-4884-9a69-1050c6793cd6"}}
	balancer := func(id, name, kind string, age time.Duration, droplets ...int) loadbalancer.Observed {
		return loadbalancer.Observed{ID: id, Name: name, Type: kind, SizeUnit: 2, Tags: []string{"k8s:production"}, DropletIDs: droplets, CreatedAt: earlier(age)}
	}
	w := estate.World{
		Now: screenTime(), Cluster: loadbalancer.Cluster{ID: "production"}, Machines: []int{1}, Services: []*corev1.Service{held},
		Firewall: firewall.Config{Name: "production-public", Tags: []string{"k8s:production"}}, Controller: "Deployment kube-system/digitalocean-cloud-controller-manager",
		LoadBalancers: estate.Listed([]loadbalancer.Observed{balancer("4de7ac8b-495b-4884-9a69-1050c6793cd6", "a8dd1cc3a1e64b1c8a0b8e4f2d7c5b11", "REGIONAL", time.Hour, 1)}, nil),
		Firewalls:     estate.Listed([]firewall.Observed{{ID: "bb4b2611-3d72-467b-8602-280330ecd65c", Name: "production-public", Tags: []string{"k8s:production"}}}, nil),
		Certificates:  estate.List[loadbalancer.Certificate]{Read: true},
		Droplets:      estate.Listed([]instance.Droplet{{ID: 1, Size: "s", Tags: []string{"k8s:production"}}}, nil), Sizes: map[string]int{"s": 2400},
		Storage: []estate.Stored{{
			Kind: estate.Volume, Name: "pvc-6ba7b810-9dad-11d1-80b4-00c04fd430c8", ID: "506f78a4-e098-11e5-ad9f-000f53306ae1", GiB: 100, State: estate.Referenced,
			ReferencedBy: []string{"PersistentVolume pvc-6ba7b810-9dad-11d1-80b4-00c04fd430c8", "claim shop/data"},
		}},
	}
	if ill {
		w.LoadBalancers.Items = append(w.LoadBalancers.Items, balancer("a1", "left", "REGIONAL_NETWORK", time.Hour, 1), balancer("a2", "new", "REGIONAL", time.Minute),
			balancer("a3", "elsewhere", "REGIONAL", time.Hour, 9))
		w.Droplets.Items = append(w.Droplets.Items, instance.Droplet{ID: 9, Size: "retired", Tags: []string{"k8s:production"}})
		w.Certificates = estate.Listed([]loadbalancer.Certificate{{ID: "892071a0-bb95-49bc-8021-3afd67a210bf", Name: loadbalancer.ManagedName([]string{"a.example.com"})}}, nil)
		w.Storage = append(w.Storage, estate.Stored{
			Kind: estate.Snapshot, Name: "clone-pvc-f47ac10b-58cc-4372-a567-0e02b2c3d479", ID: "fbe805e8-866b-11e6-96bf-000f53315a41", GiB: 2.34, State: estate.Unreferenced,
			Why: "no VolumeSnapshotContent has it",
		})
		w.NotRead = []string{"volumes: VolumeSnapshotContents: forbidden"}
	}
	return estate.Judge(w)
}

func screenEstate(ill bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		output := screen.NewFormat(screen.Text)
		prints(t, estatecmd.Print(screenEstateReport(ill), &output, to))
	}
}

// screenEstateRemove is what would be removed: in trouble without a price.
func screenEstateRemove(ill bool) view {
	return func(t *testing.T, to io.Writer) {
		t.Helper()
		all := screenEstateReport(true).In(estate.Unreferenced)
		o := all[len(all)-1]
		if ill {
			o = all[0]
		}
		estatecmd.Preview(o, to)
	}
}
