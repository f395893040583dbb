// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func now() time.Time { return time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC) }

const (
	ours   = "k8s:ours"
	theirs = "k8s:theirs"
)

// world is a cluster with ID ours and two Nodes, and an account with nothing but their droplets.
func world(changes ...func(*estate.World)) estate.World {
	w := estate.World{
		Now: now(), Cluster: loadbalancer.Cluster{ID: "ours"}, Machines: []int{1, 2},
		LoadBalancers: estate.List[loadbalancer.Observed]{Read: true}, Certificates: estate.List[loadbalancer.Certificate]{Read: true},
		Droplets: estate.Listed([]instance.Droplet{
			{ID: 1, Size: "s", Tags: []string{ours}}, {ID: 2, Size: "odd", Tags: []string{}}, {ID: 3, Size: "s", Tags: []string{ours}}, {ID: 9, Size: "s", Tags: []string{theirs}},
		}, nil),
		Sizes: map[string]int{"s": 600},
	}
	for _, change := range changes {
		change(&w)
	}
	return w
}

// balancer is a load balancer of two hours ago that serves a Node.
func balancer(id string, tags ...string) loadbalancer.Observed {
	if tags == nil {
		tags = []string{}
	}
	return loadbalancer.Observed{
		ID: id, Name: "name-" + id, IP: "203.0.113." + id, Type: "REGIONAL", SizeUnit: 2, Tags: tags, DropletIDs: []int{1}, CreatedAt: now().Add(-2 * time.Hour),
	}
}

func with(balancers ...loadbalancer.Observed) func(*estate.World) {
	return func(w *estate.World) { w.LoadBalancers.Items = append(w.LoadBalancers.Items, balancers...) }
}

func services(all ...*corev1.Service) func(*estate.World) {
	return func(w *estate.World) { w.Services = append(w.Services, all...) }
}

func service(name string, change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	change(s)
	return s
}

func condition(kind, reason, message string, at time.Time) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.Conditions = append(s.Status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(at),
		})
	}
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations[name] = value }
}

// certificate is one of Let's Encrypt that was made for a.example.com by an annotation.
func certificate(id string, change func(*loadbalancer.Certificate)) loadbalancer.Certificate {
	c := loadbalancer.Certificate{
		ID: id, Name: loadbalancer.ManagedName([]string{"a.example.com"}), Type: loadbalancer.CertificateLetsEncrypt, State: loadbalancer.CertificateVerified,
	}
	if change != nil {
		change(&c)
	}
	return c
}

func certificates(all ...loadbalancer.Certificate) func(*estate.World) {
	return func(w *estate.World) { w.Certificates.Items = all }
}

// using makes a load balancer use a certificate.
func using(o loadbalancer.Observed, id string) loadbalancer.Observed {
	o.ForwardingRules = []loadbalancer.ForwardingRule{{CertificateID: id}}
	return o
}

// row is an object in few words.
func row(o estate.Object) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", o.Kind, o.ID, o.State, strings.Join(o.ReferencedBy, ", ")))
}

// Each way in which a Service leads, or does not lead, to a load balancer; whose it is by its tags; what was not read.
func TestWhoLeadsToWhat(t *testing.T) {
	t.Parallel()
	const lost, shop = "load balancer 1 unreferenced", "load balancer 1 referenced Service shop/web"
	held := condition(loadbalancer.ConditionHeld, loadbalancer.RecordMade, "1", now())
	for name, test := range map[string]struct {
		world   estate.World
		objects []string
		others  int
		unread  string
	}{
		"left behind":                     {world(with(balancer("1", ours))), []string{lost}, 0, ""},
		"left behind beside another's":    {world(with(balancer("1", ours), balancer("2", theirs))), []string{lost}, 1, ""},
		"held":                            {world(with(balancer("1", ours)), services(service("web", held))), []string{shop}, 0, ""},
		"held without a tag":              {world(with(balancer("1")), services(service("web", held))), []string{shop}, 0, ""},
		"taken over from another cluster": {world(with(balancer("1", theirs)), services(service("web", held))), []string{shop}, 0, ""},
		"attempted just before it was made": {
			world(with(balancer("1", ours)), services(service("web", condition(loadbalancer.ConditionAttempted, "Attempted", "name-1", now().Add(-2*time.Hour))))), []string{shop}, 0, "",
		},
		"attempted long after a person made it": {
			world(with(balancer("1")), services(service("web", condition(loadbalancer.ConditionAttempted, "Attempted", "name-1", now())))), nil, 1, "",
		},
		"by the default name": {
			world(func(w *estate.World) {
				s := service("web", func(*corev1.Service) {})
				o := balancer("1", ours)
				o.Name = loadbalancer.DefaultName(s)
				with(o)(w)
				services(s)(w)
			}), []string{shop}, 0, "",
		},
		"by its address": {
			world(with(balancer("1", ours)), services(service("web", func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "203.0.113.1"}}
			}))), []string{shop}, 0, "",
		},
		"named by an annotation alone": {
			world(with(balancer("1", ours)), services(service("web", annotated(annotation.LoadBalancerID, "1")))),
			[]string{shop + " (by an annotation alone)"}, 0, "",
		},
		"a person's that a Service names": {world(with(balancer("1")), services(service("web", annotated(annotation.LoadBalancerID, "1")))), nil, 1, ""},
		"a person's":                      {world(with(balancer("1"))), nil, 1, ""},
		"another cluster's":               {world(with(balancer("1", theirs))), nil, 1, ""},
		"just made": {world(with(func() loadbalancer.Observed {
			o := balancer("1", ours)
			o.CreatedAt = now().Add(-time.Minute)
			return o
		}())), []string{"load balancer 1 settling"}, 0, ""},
		"serves droplets of others": {world(with(func() loadbalancer.Observed { o := balancer("1", ours); o.DropletIDs = []int{7}; return o }())), []string{"load balancer 1 unknown"}, 0, ""},
		"serves nothing":            {world(with(func() loadbalancer.Observed { o := balancer("1", ours); o.DropletIDs = nil; return o }())), []string{lost}, 0, ""},
		"without an ID of the cluster": {
			world(with(balancer("1", ours)), func(w *estate.World) { w.Cluster.ID = "" }), nil, 0, "tags: the cluster's ID (DO_CLUSTER_ID) is not known",
		},
		"tags are not shown": {
			world(with(func() loadbalancer.Observed { o := balancer("1"); o.Tags = nil; return o }()), func(w *estate.World) { w.Droplets.Items[0].Tags = nil }),
			nil, 0, "tags: DigitalOcean shows no tags with this token",
		},
		"the list fails": {
			world(services(service("web", held)), func(w *estate.World) { w.LoadBalancers = estate.Listed[loadbalancer.Observed](nil, errors.New("503")) }),
			[]string{"load balancer 1 unknown Service shop/web"}, 0, "load balancers: 503",
		},
		"the list lacks it":         {world(services(service("web", held))), []string{"load balancer 1 unknown Service shop/web"}, 0, ""},
		"a certificate nobody uses": {world(certificates(certificate("c", nil))), []string{"certificate c unreferenced"}, 0, ""},
		"a person's certificate":    {world(certificates(certificate("c", func(c *loadbalancer.Certificate) { c.Name = "wildcard" }))), nil, 0, ""},
		"a certificate that is being issued": {
			world(certificates(certificate("c", func(c *loadbalancer.Certificate) { c.State = loadbalancer.CertificatePending }))), []string{"certificate c settling"}, 0, "",
		},
		"a certificate that a Service asks for": {
			world(certificates(certificate("c", nil)), services(service("web", annotated(annotation.CertificateDomains, "a.example.com")))),
			[]string{"certificate c referenced Service shop/web"}, 0, "",
		},
		"a certificate of a load balancer that is left behind": {
			world(certificates(certificate("c", nil)), with(using(balancer("1", ours), "c"))),
			[]string{lost, `certificate c referenced load balancer "name-1" (1)`}, 0, "",
		},
		"another cluster's certificate": {world(certificates(certificate("c", nil)), with(using(balancer("1", theirs), "c"))), nil, 2, ""},
		"a certificate while load balancers cannot be read": {
			world(certificates(certificate("c", nil)), func(w *estate.World) { w.LoadBalancers = estate.Listed[loadbalancer.Observed](nil, errors.New("503")) }),
			[]string{"certificate c unknown"}, 0, "load balancers: 503",
		},
		"certificates cannot be read": {
			world(func(w *estate.World) {
				w.Certificates = estate.Listed[loadbalancer.Certificate](nil, errors.New("403"))
			}), nil, 0, "certificates: 403",
		},
		"the cluster's firewall, and others": {
			world(func(w *estate.World) {
				w.Firewall, w.Controller = firewall.Config{Name: "public", Tags: []string{ours}}, "Deployment kube-system/ccm"
				w.Firewalls = estate.Listed([]firewall.Observed{{ID: "f", Name: "public", Tags: []string{ours}}, {ID: "g", Name: "ssh", Tags: []string{ours}}, {ID: "h"}}, nil)
			}), []string{"firewall f referenced Deployment kube-system/ccm"}, 0, "",
		},
		"a firewall of the same name that is another's": {
			world(func(w *estate.World) {
				w.Firewall = firewall.Config{Name: "public", Tags: []string{ours}}
				w.Firewalls = estate.Listed([]firewall.Observed{{ID: "f", Name: "public", Tags: []string{"db"}}}, nil)
			}), nil, 0, "",
		},
		"volumes and snapshots": {
			world(func(w *estate.World) {
				w.Storage = []estate.Stored{
					{Kind: estate.Snapshot, Name: "clone-pvc-1", ID: "s", GiB: 2.5, State: estate.Unreferenced, Why: "no VolumeSnapshotContent has it"},
					{Kind: estate.Volume, Name: "pvc-1", ID: "v", GiB: 10, State: estate.Referenced, ReferencedBy: []string{"PersistentVolume pvc-1"}},
				}
			}), []string{"snapshot s unreferenced", "volume v referenced PersistentVolume pvc-1"}, 0, "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := estate.Judge(test.world)
			var rows []string
			for _, o := range r.Objects {
				rows = append(rows, row(o))
				if removal := "kubectl mooring estate remove "; (o.State == estate.Unreferenced) != strings.HasPrefix(o.Next, removal) {
					t.Errorf("%s: next is %q", row(o), o.Next)
				}
				if (o.State == estate.Referenced) != (o.Why == "") {
					t.Errorf("%s: why is %q", row(o), o.Why)
				}
			}
			if diff := cmp.Diff(test.objects, rows); diff != "" {
				t.Error(diff)
			}
			unread := strings.Join(r.NotRead, "; ")
			if r.Others != test.others || !strings.HasPrefix(unread, test.unread) || (test.unread == "") != (unread == "") {
				t.Errorf("%d others, not read: %q", r.Others, unread)
			}
		})
	}
}

// Prices are multiplied by nodes and GiB; what has no source has no price.
func TestPrices(t *testing.T) {
	t.Parallel()
	network, global := balancer("2", ours), balancer("3", ours)
	network.Type, global.Type = "REGIONAL_NETWORK", "GLOBAL"
	r := estate.Judge(world(with(balancer("1", ours), network, global), certificates(certificate("c", nil)), func(w *estate.World) {
		w.Storage = []estate.Stored{{Kind: estate.Snapshot, ID: "s", GiB: 2.5}, {Kind: estate.Volume, ID: "v", GiB: 10}}
	}))
	got := map[string]string{}
	for _, o := range r.Objects {
		got[o.ID] = estate.Dollars(o.MonthlyCents)
	}
	want := map[string]string{"1": "$24.00", "2": "unknown", "3": "unknown", "c": "$0.00", "s": "$0.15", "v": "$1.00"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if want := (estate.Droplets{Nodes: 2, Others: 1, MonthlyCents: 1200, Unpriced: 1}); r.Droplets != want {
		t.Errorf("droplets: %+v", r.Droplets)
	}
}

// The doctor warns of what nothing refers to and of what is unknown, and calls only a whole estate well.
func TestFindings(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		world    estate.World
		severity finding.Severity
		unread   bool
	}{
		"well":        {world(), finding.OK, false},
		"left behind": {world(with(balancer("1", ours))), finding.Warning, false},
		"not read":    {world(func(w *estate.World) { w.NotRead = []string{"volumes: 503"} }), finding.Warning, true},
		"unknown":     {world(services(service("web", condition(loadbalancer.ConditionHeld, loadbalancer.RecordMade, "1", now())))), finding.Warning, true},
	} {
		r := estate.Judge(test.world)
		found := r.Findings()
		if len(found) != 1 || found[0].Severity != test.severity || found[0].Unread != test.unread || r.NeedsAttention() != (test.severity != finding.OK) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// Of random accounts: what nothing refers to has this cluster's tag and no other's proof, is not new, and was in a list
// that was read; what a Service holds is never unreferenced; no order matters.
func TestNobodyIsProven(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		w := world()
		pick := func(label string, from ...string) string { return rapid.SampledFrom(from).Draw(t, label) }
		for i := range rapid.IntRange(0, 6).Draw(t, "balancers") {
			o := balancer(fmt.Sprint(i))
			o.Tags = rapid.SampledFrom([][]string{nil, {}, {ours}, {theirs}, {ours, theirs}, {"web"}}).Draw(t, "tags")
			o.DropletIDs = rapid.SampledFrom([][]int{nil, {1}, {7}, {1, 7}}).Draw(t, "droplets")
			o.CreatedAt = now().Add(-time.Duration(rapid.SampledFrom([]int{0, 5, 60}).Draw(t, "age")) * time.Minute)
			with(using(o, pick("uses", "", "c0", "c1")))(&w)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "services") {
			id := fmt.Sprint(rapid.IntRange(0, 6).Draw(t, "id"))
			services(service(fmt.Sprint(i), rapid.SampledFrom([]func(*corev1.Service){
				func(*corev1.Service) {}, condition(loadbalancer.ConditionHeld, loadbalancer.RecordMade, id, now()), annotated(annotation.LoadBalancerID, id),
				annotated(annotation.Name, "name-"+id), annotated(annotation.CertificateDomains, "a.example.com"),
			}).Draw(t, "leads")))(&w)
		}
		certificates(certificate("c0", nil), certificate("c1", func(c *loadbalancer.Certificate) { c.Name = "mooring-other" }))(&w)
		if rapid.Bool().Draw(t, "balancers fail") {
			w.LoadBalancers = estate.Listed[loadbalancer.Observed](nil, errors.New("503"))
		}
		r := estate.Judge(w)
		for _, o := range r.In(estate.Unreferenced) {
			proven(t, w, o)
		}
		shuffled := w
		shuffled.Services, shuffled.LoadBalancers.Items = slices.Clone(w.Services), slices.Clone(w.LoadBalancers.Items)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)) //nolint:gosec // an order to try
		random.Shuffle(len(shuffled.Services), func(a, b int) {
			shuffled.Services[a], shuffled.Services[b] = shuffled.Services[b], shuffled.Services[a]
		})
		random.Shuffle(len(shuffled.LoadBalancers.Items), func(a, b int) {
			shuffled.LoadBalancers.Items[a], shuffled.LoadBalancers.Items[b] = shuffled.LoadBalancers.Items[b], shuffled.LoadBalancers.Items[a]
		})
		if diff := cmp.Diff(r, estate.Judge(shuffled)); diff != "" {
			t.Fatalf("another order: %s", diff)
		}
	})
}

// proven fails for an object that may be somebody's.
func proven(t *rapid.T, w estate.World, o estate.Object) {
	if !w.LoadBalancers.Read {
		t.Fatalf("%s, and load balancers were not read", row(o))
	}
	for _, s := range w.Services {
		if loadbalancer.Held(s) == o.ID || s.Annotations[annotation.LoadBalancerID] == o.ID || s.Annotations[annotation.Name] == o.Name {
			t.Fatalf("%s, and Service %s leads to it", row(o), s.Name)
		}
		if o.Kind == estate.Certificate && o.ID == "c0" && s.Annotations[annotation.CertificateDomains] != "" {
			t.Fatalf("%s, and Service %s asks for it", row(o), s.Name)
		}
	}
	for _, lb := range w.LoadBalancers.Items {
		if o.Kind == estate.Certificate && lb.ForwardingRules[0].CertificateID == o.ID {
			t.Fatalf("%s, and %s uses it", row(o), lb)
		}
		isNew := now().Sub(lb.CreatedAt) < 10*time.Minute
		if lb.ID == o.ID && (!slices.Contains(lb.Tags, ours) || isNew || slices.Equal(lb.DropletIDs, []int{7})) {
			t.Fatalf("%s, which is %+v", row(o), lb)
		}
	}
}
