// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// at is when everything here is looked at.
func at() time.Time { return time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC) }

// deployment runs one image in two ready pods, with leader election.
func deployment(where, image string, changes ...func(*doctor.Workload)) doctor.Workload {
	namespace, name, _ := strings.Cut(where, "/")
	w := doctor.Workload{
		Kind: "Deployment", Namespace: namespace, Name: name, Wanted: 2, Ready: 2, Images: []string{image}, Args: []string{"--leader-elect"}, Account: name,
		Labels: map[string]string{}, Env: map[string]doctor.Variable{},
	}
	for _, change := range changes {
		change(&w)
	}
	return w
}

func pods(wanted, ready int) func(*doctor.Workload) {
	return func(w *doctor.Workload) { w.Wanted, w.Ready = wanted, ready }
}

func args(all ...string) func(*doctor.Workload) {
	return func(w *doctor.Workload) { w.Args = all }
}

func env(name string, value doctor.Variable) func(*doctor.Workload) {
	return func(w *doctor.Workload) { w.Env[name] = value }
}

// made are the labels of our manifests; of the chart, if a release is named.
func made(component, release string) func(*doctor.Workload) {
	return func(w *doctor.Workload) {
		w.Labels["app.kubernetes.io/name"], w.Labels["app.kubernetes.io/part-of"] = component, "mooring"
		if release != "" {
			w.Labels["app.kubernetes.io/instance"] = release
		}
	}
}

func runs(workloads ...doctor.Workload) doctor.ControllerEvidence {
	return doctor.ControllerEvidence{Now: at(), Namespaces: []string{"mooring-system"}, Workloads: workloads}
}

// led is e with Leases that are held, by the names "namespace/name".
func led(e doctor.ControllerEvidence, leases ...string) doctor.ControllerEvidence {
	for _, l := range leases {
		namespace, name, _ := strings.Cut(l, "/")
		e.Leases = append(e.Leases, doctor.Lease{Namespace: namespace, Name: name, Holder: "pod-1", Renewed: at().Add(-time.Second)})
	}
	return e
}

// said are findings in one line each, but for those that are well.
func said(findings []finding.Finding) []string {
	var out []string
	for _, f := range findings {
		if f.Severity != finding.OK {
			out = append(out, string(f.Severity)+" "+f.Check+": "+f.What)
		}
	}
	return out
}

const (
	syncImage    = "example.com/mooring/calico-node-sync:v1"
	cloudImage   = "example.com/mooring/digitalocean-cloud-controller-manager:v1"
	storageImage = "example.com/mooring/etcd-storage-operator:v1"
	rrImage      = "example.com/mooring/calico-route-reflector-operator:v1"
	syncLease    = "mooring-system/calico-node-sync.nodes.mooring.dev"
	cloudLease   = "kube-system/cloud-controller-manager"
	storageLease = "kube-apiserver-storage/etcd-storage-operator.etcd.mooring.dev"
	rrLease      = "mooring-system/calico-route-reflector-operator.bgp.mooring.dev"
)

func nodeSync(changes ...func(*doctor.Workload)) doctor.Workload {
	return deployment("mooring-system/calico-node-sync", syncImage, changes...)
}

func cloudManager(changes ...func(*doctor.Workload)) doctor.Workload {
	return deployment("kube-system/digitalocean-cloud-controller-manager", cloudImage, changes...)
}

func TestControllers(t *testing.T) {
	t.Parallel()
	kubeControllers := func(changes ...func(*doctor.Workload)) doctor.Workload {
		return deployment("kube-system/calico-kube-controllers", "quay.io/calico/kube-controllers:v3.31.0", changes...)
	}
	for name, test := range map[string]struct {
		evidence doctor.ControllerEvidence
		want     []string
	}{
		"nothing of ours": {runs(deployment("a/b", "nginx")), []string{"note components: no component of Mooring runs in this cluster"}},
		"programs outside of the cluster": {led(runs(deployment("a/b", "nginx")), syncLease, cloudLease),
			[]string{"note components: of Mooring only Leases were found, no workload: digitalocean-cloud-controller-manager, calico-node-sync"}},
		"one that works": {led(runs(nodeSync()), syncLease), nil},
		"DigitalOcean's own alongside ours": {
			led(runs(cloudManager(), deployment("do/ccm", "docker.io/digitalocean/digitalocean-cloud-controller-manager:v0.1.68")), cloudLease),
			[]string{"problem fighting: Deployment do/ccm is DigitalOcean's own digitalocean-cloud-controller-manager, and runs alongside Deployment kube-system/digitalocean-cloud-controller-manager"},
		},
		"ours, from a mirror with their name": {
			led(runs(deployment("kube-system/c", "m/digitalocean/digitalocean-cloud-controller-manager:v1", made("digitalocean-cloud-controller-manager", ""))), cloudLease), nil,
		},
		"DigitalOcean's own, stopped": {led(runs(cloudManager(), deployment("do/ccm", "digitalocean/digitalocean-cloud-controller-manager", pods(0, 0))), cloudLease), nil},
		"DigitalOcean's own alone": {
			runs(deployment("kube-system/digitalocean-cloud-controller-manager", "digitalocean/digitalocean-cloud-controller-manager:v0.1.68", pods(1, 0))),
			[]string{"note components: no component of Mooring runs in this cluster"},
		},
		"kube-calico-controller": {
			led(runs(nodeSync(), deployment("kube-system/kube-calico-controller", "wish/kube-calico-controller:0.0.3")), syncLease),
			[]string{"warning fighting: Deployment kube-system/kube-calico-controller is the old kube-calico-controller, and runs alongside Deployment mooring-system/calico-node-sync"},
		},
		"kube-calico-controller's Deployment with our image": {
			led(runs(deployment("kube-system/kube-calico-controller", syncImage)), "kube-system/calico-node-sync.nodes.mooring.dev"), nil,
		},
		"kube-controllers with etcd": {
			led(runs(nodeSync(), kubeControllers()), syncLease),
			[]string{"warning fighting: Deployment kube-system/calico-kube-controllers runs its node controller with the etcdv3 datastore, and removes Calico Nodes itself"},
		},
		"kube-controllers without node": {led(runs(nodeSync(), kubeControllers(env("ENABLED_CONTROLLERS", doctor.Variable{Value: "policy, namespace"}))), syncLease), nil},
		"kube-controllers with node among others": {
			led(runs(nodeSync(), kubeControllers(env("ENABLED_CONTROLLERS", doctor.Variable{Value: "policy, node"}))), syncLease),
			[]string{"warning fighting: Deployment kube-system/calico-kube-controllers runs its node controller with the etcdv3 datastore, and removes Calico Nodes itself"},
		},
		"kube-controllers with Kubernetes": {led(runs(nodeSync(), kubeControllers(env("DATASTORE_TYPE", doctor.Variable{Value: "kubernetes"}))), syncLease), nil},
		"kube-controllers that nobody knows": {
			led(runs(nodeSync(), kubeControllers(env("ENABLED_CONTROLLERS", doctor.Variable{Elsewhere: true}))), syncLease),
			[]string{"note fighting: not read: Deployment kube-system/calico-kube-controllers takes ENABLED_CONTROLLERS from another object"},
		},
		"the old route reflector operator": {
			led(runs(deployment("mooring-system/calico-route-reflector-operator", rrImage),
				deployment("calico-route-reflector-operator-system/calico-route-reflector-operator-controller-manager", "controller:latest")), rrLease),
			[]string{"problem fighting: Deployment calico-route-reflector-operator-system/calico-route-reflector-operator-controller-manager is the calico-route-reflector-operator of 2020, " +
				"and runs alongside Deployment mooring-system/calico-route-reflector-operator"},
		},
		"etcdproxy-controller": {
			led(runs(deployment("kube-apiserver-storage/etcd-storage-operator", storageImage), deployment("kube-apiserver-storage/etcdproxy-controller-deployment", "x/y:1")), storageLease),
			[]string{"problem fighting: Deployment kube-apiserver-storage/etcdproxy-controller-deployment is etcdproxy-controller, and runs alongside Deployment kube-apiserver-storage/etcd-storage-operator"},
		},
		"two of ours": {
			led(runs(nodeSync(), deployment("other/sync", "mirror/renamed@sha256:00", made("calico-node-sync", ""))), syncLease, "other/calico-node-sync.nodes.mooring.dev"),
			[]string{"warning installed-twice: 2 workloads run calico-node-sync: Deployment mooring-system/calico-node-sync and Deployment other/sync"},
		},
		"many proxies": {runs(deployment("s/etcd-a", "m/etcd-storage-proxy:v1", args()), deployment("s/etcd-b", "m/etcd-storage-proxy:v1", args())), nil},
		"no ready pod": {led(runs(nodeSync(pods(2, 0))), syncLease), []string{"problem replicas: Deployment mooring-system/calico-node-sync: no pod of 2 pods is ready"}},
		"one of two":   {led(runs(nodeSync(pods(2, 1))), syncLease), []string{"warning replicas: Deployment mooring-system/calico-node-sync: 1 of 2 pods are ready"}},
		"stopped":      {runs(nodeSync(pods(0, 0))), []string{"warning replicas: Deployment mooring-system/calico-node-sync: it is scaled to 0"}},
		"no Lease": {
			runs(nodeSync()),
			[]string{"problem leader: Deployment mooring-system/calico-node-sync: there is no Lease mooring-system/calico-node-sync.nodes.mooring.dev, with which it elects its leader"},
		},
		"a Lease in vain": {
			doctor.ControllerEvidence{
				Now: at(), Workloads: runs(cloudManager()).Workloads,
				Leases: []doctor.Lease{{Namespace: "kube-system", Name: "cloud-controller-manager", Holder: "gone", Renewed: at().Add(-time.Hour)}},
			},
			[]string{"problem leader: Deployment kube-system/digitalocean-cloud-controller-manager: its Lease is no longer renewed"},
		},
		"a Lease of nobody": {
			doctor.ControllerEvidence{
				Now: at(), Workloads: runs(nodeSync()).Workloads,
				Leases: []doctor.Lease{{Namespace: "mooring-system", Name: "calico-node-sync.nodes.mooring.dev", Renewed: at()}},
			},
			[]string{"note leader: Deployment mooring-system/calico-node-sync: its leader has just released Lease mooring-system/calico-node-sync.nodes.mooring.dev"},
		},
		"another Lease": {led(runs(nodeSync(args("-leader-elect=true", "--leader-election-id=x", "--leader-election-namespace=y"))), "y/x"), nil},
		"flags with values behind": {
			led(runs(nodeSync(args("--leader-election-id", "x", "--leader-election-namespace", "y", "--leader-elect", "/bin/other"))), "y/x"), nil,
		},
		"no election":             {runs(nodeSync(args())), []string{"problem leader: Deployment mooring-system/calico-node-sync: it has 2 replicas and elects no leader"}},
		"no election of one":      {runs(nodeSync(args("--leader-elect=false"), pods(1, 1))), nil},
		"the cloud elects itself": {led(runs(cloudManager(args())), cloudLease), nil},
		"versions of one release": {
			led(runs(nodeSync(made("calico-node-sync", "m")), deployment("mooring-system/calico-route-reflector-operator", strings.Replace(rrImage, "v1", "v2", 1), made("calico-route-reflector-operator", "m"))),
				syncLease, rrLease),
			[]string{"warning versions: images of one release differ in version: Deployment mooring-system/calico-node-sync has v1, Deployment mooring-system/calico-route-reflector-operator has v2"},
		},
		"versions of two releases": {
			led(runs(nodeSync(made("calico-node-sync", "m")), deployment("mooring-system/calico-route-reflector-operator", strings.Replace(rrImage, "v1", "v2", 1), made("calico-route-reflector-operator", "n"))),
				syncLease, rrLease), nil,
		},
		"a proxy of another version": {
			led(runs(deployment("kube-apiserver-storage/etcd-storage-operator", storageImage, args("--leader-elect", "--etcd-proxy-image=example.com/etcd-storage-proxy:v0"))), storageLease),
			[]string{"warning versions: images of one release differ in version: Deployment kube-apiserver-storage/etcd-storage-operator (--etcd-proxy-image) has v0, " +
				"Deployment kube-apiserver-storage/etcd-storage-operator has v1"},
		},
		"a registry with a port, and digests": {
			led(runs(deployment("kube-apiserver-storage/etcd-storage-operator", "r:5000/etcd-storage-operator@sha256:11", args("--leader-elect", "--etcd-proxy-image=x@sha256:00"))), storageLease), nil,
		},
		"lists that may not be read": {
			doctor.ControllerEvidence{Now: at(), LeaseProblem: "no", Unread: []finding.Side{{Name: "Deployments", Problem: "forbidden"}}},
			[]string{"warning leader: not read: Leases: no", "warning components: not read: Deployments: forbidden"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, said(doctor.Controllers(test.evidence))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A finding that needs attention says what to do, and where.
func TestEachFindingSaysWhereAndWhatToDo(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		for _, f := range doctor.Controllers(anything(t)) {
			if (f.Severity == finding.Problem || f.Severity == finding.Warning) && (f.Where == "" || f.Why == "" || f.Do == "") {
				t.Fatalf("%+v", f)
			}
		}
	})
}

func anything(t *rapid.T) doctor.ControllerEvidence {
	name := rapid.SampledFrom([]string{
		"calico-node-sync", "calico-kube-controllers", "kube-calico-controller", "digitalocean-cloud-controller-manager", "etcd-storage-operator", "etcdproxy-controller-deployment",
		"calico-route-reflector-operator", "calico-route-reflector-operator-controller-manager", "other",
	})
	image := rapid.SampledFrom([]string{
		syncImage, cloudImage, storageImage, rrImage, "digitalocean/digitalocean-cloud-controller-manager", "x/kube-calico-controller", "x/etcdproxy-controller:v2", "", ":", "@", "/",
		"a:1/etcd-storage-proxy",
	})
	namespace := rapid.SampledFrom([]string{"kube-system", "mooring-system", "a"})
	arg := rapid.SampledFrom([]string{"--leader-elect", "--leader-elect=no", "--leader-election-id=x", "-leader-election-namespace=a", "--etcd-proxy-image=p:v9", "", "-", "--"})
	e := doctor.ControllerEvidence{Now: at(), LeaseProblem: rapid.SampledFrom([]string{"", "", "no"}).Draw(t, "no leases")}
	seen := map[string]bool{}
	for range rapid.IntRange(0, 8).Draw(t, "workloads") {
		w := deployment(namespace.Draw(t, "namespace")+"/"+name.Draw(t, "name"), image.Draw(t, "image"), pods(rapid.IntRange(0, 3).Draw(t, "wanted"), rapid.IntRange(0, 3).Draw(t, "ready")),
			args(rapid.SliceOfN(arg, 0, 3).Draw(t, "args")...), env("ENABLED_CONTROLLERS", doctor.Variable{Value: rapid.SampledFrom([]string{"", "node", "x"}).Draw(t, "enabled")}))
		if rapid.Bool().Draw(t, "labels") {
			made(name.Draw(t, "component"), rapid.SampledFrom([]string{"", "m"}).Draw(t, "release"))(&w)
		}
		if !seen[w.String()] {
			seen[w.String()] = true
			e.Workloads = append(e.Workloads, w)
		}
	}
	for _, l := range []string{syncLease, cloudLease, storageLease, rrLease, "a/x"} {
		switch rapid.IntRange(0, 2).Draw(t, l) {
		case 1:
			e = led(e, l)
		case 2:
			e = led(e, l)
			e.Leases[len(e.Leases)-1].Renewed = at().Add(-24 * time.Hour)
		}
	}
	return e
}

// Nothing hangs on the order in which things were read.
func TestControllersAreOrderBlind(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		e := anything(t)
		want := doctor.Controllers(e)
		shuffle(t, e.Workloads)
		shuffle(t, e.Leases)
		if diff := cmp.Diff(want, doctor.Controllers(e)); diff != "" {
			t.Fatal(diff)
		}
	})
}

func shuffle[T any](t *rapid.T, all []T) {
	seed := rapid.Uint64().Draw(t, "seed")
	random := rand.New(rand.NewPCG(seed, seed)) //nolint:gosec // no secret
	random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}

// What is scaled to 0, or somebody else's, is nobody's fight.
func TestWhatIsStoppedDoesNotFight(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		e := anything(t)
		for i := range e.Workloads {
			e.Workloads[i].Wanted = 0
		}
		if slices.ContainsFunc(doctor.Controllers(e), func(f finding.Finding) bool {
			return f.Check == "fighting" || f.Check == "installed-twice"
		}) {
			t.Fatalf("%v", said(doctor.Controllers(e)))
		}
	})
}

func TestCoreAuthorities(t *testing.T) {
	t.Parallel()
	e := runs(deployment("a/etcd-storage-operator", storageImage), deployment("b/x", storageImage, args("--namespace=c", "--etcd-core-ca-configmap=d")), nodeSync())
	want := []v1alpha1.Destination{{Namespace: "a", Name: "etcd-coreserving-ca"}, {Namespace: "c", Name: "d"}}
	if diff := cmp.Diff(want, doctor.CoreAuthorities(e.Workloads)); diff != "" {
		t.Error(diff)
	}
}

// What runs of Mooring: by its workloads, else by its Lease in one of Mooring's namespaces.
func TestComponents(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	workload := func(name string, ready int, args ...string) doctor.Workload {
		return doctor.Workload{Kind: "Deployment", Namespace: "mooring-system", Name: name, Wanted: 2, Ready: ready, Images: []string{"example.com/" + name + ":v1.2.3"}, Args: args}
	}
	lease := func(namespace, name, holder string, age time.Duration) doctor.Lease {
		return doctor.Lease{Namespace: namespace, Name: name, Holder: holder, Renewed: now.Add(-age)}
	}
	got := doctor.Components(doctor.ControllerEvidence{
		Now: now, Namespaces: []string{"mooring-system"},
		Workloads: []doctor.Workload{
			workload("calico-node-sync", 2, "--leader-elect"), workload("etcd-storage-operator", 0), workload("etcd-storage-proxy", 2),
		},
		Leases: []doctor.Lease{
			lease("mooring-system", "calico-node-sync.nodes.mooring.dev", "a", 2*time.Second),
			lease("kube-system", "cloud-controller-manager", "b", time.Hour),
			lease("forged", "calico-route-reflector-operator.bgp.mooring.dev", "c", time.Second),
		},
	})
	var lines []string
	for _, c := range got {
		lines = append(lines, strings.Join([]string{c.Name, c.Namespace, c.Workload, c.Version, fmt.Sprintf("%d/%d", c.Ready, c.Wanted), c.Leader, c.Problem}, " "))
	}
	want := []string{
		"digitalocean-cloud-controller-manager kube-system   0/0 b its Lease is no longer renewed",
		"calico-node-sync mooring-system deployment/calico-node-sync v1.2.3 2/2 a ",
		"etcd-storage-operator mooring-system deployment/etcd-storage-operator v1.2.3 0/2  no pod of 2 pods is ready",
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
}

// A Lease is judged by how long it lasts, and one that was given back is nobody's for as long as another replica needs.
func TestLeasesLastAsLongAsTheySay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		age, duration time.Duration
		holder        string
		want          string
	}{
		"renewed in time":         {14 * time.Second, 15 * time.Second, "a", ""},
		"frozen for 21 s":         {21 * time.Second, 15 * time.Second, "a", "its Lease is no longer renewed"},
		"frozen, a short Lease":   {18 * time.Second, 12 * time.Second, "a", "its Lease is no longer renewed"},
		"lasts a minute":          {50 * time.Second, time.Minute, "a", ""},
		"released a moment ago":   {10 * time.Second, time.Second, "", ""},
		"released, and not taken": {time.Minute, time.Second, "", "its Lease has no holder"},
	} {
		e := runs(nodeSync())
		e.Leases = []doctor.Lease{{
			Namespace: "mooring-system", Name: "calico-node-sync.nodes.mooring.dev", Holder: test.holder,
			Renewed: at().Add(-test.age), Duration: test.duration,
		}}
		if got := doctor.Components(e); len(got) != 1 || got[0].Problem != test.want {
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
		alone := e
		alone.Workloads = nil
		if got := doctor.Components(alone); test.holder == "" && test.want != "" && len(got) != 0 {
			t.Errorf("%s, and no workload: it was stopped in good order: %+v", name, got)
		}
	}
}

// A rival outside Mooring's namespaces is named, since it does harm there as well; it is not judged, since anybody who may
// edit a namespace can make one.
func TestRivalsElsewhereAreNoted(t *testing.T) {
	t.Parallel()
	rival := doctor.Workload{Kind: "Deployment", Namespace: "operators", Name: "calico-route-reflector-operator-controller-manager", Wanted: 1, Ready: 1}
	other := doctor.Workload{Kind: "Deployment", Namespace: "shop", Name: "web", Wanted: 1, Ready: 1}
	ours, elsewhere := doctor.Trust([]doctor.Workload{rival, other}, []string{"mooring-system"})
	if len(elsewhere) != 1 || elsewhere[0].Name != rival.Name || len(ours) != 0 {
		t.Fatalf("elsewhere %+v, judged %+v", elsewhere, ours)
	}
	e := doctor.ControllerEvidence{
		Now: at(), Namespaces: []string{"mooring-system"}, Workloads: ours, Elsewhere: elsewhere,
		Traces: map[string]string{doctor.Reflectors: "RouteReflectorTopology main"},
	}
	var said []string
	for _, f := range doctor.Controllers(e) {
		said = append(said, string(f.Severity)+": "+f.What+"; "+f.Do)
	}
	text := strings.Join(said, "\n")
	for _, want := range []string{
		"note: not trusted and not judged, outside Mooring's namespaces: Deployment operators/" + rival.Name + "; ",
		"nothing that runs it in namespaces mooring-system; if it runs in another namespace, name that with --mooring-namespace; else install it",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not said:\n%s", want, text)
		}
	}
}

// What is left of a component that is gone is a problem; one that is scaled to 0 is none of those if another runs in its
// place.
func TestComponentsThatAreGone(t *testing.T) {
	t.Parallel()
	said := func(e doctor.ControllerEvidence, check string) (out []string) {
		for _, f := range doctor.Controllers(e) {
			if f.Check == check && f.Severity != finding.OK {
				out = append(out, string(f.Severity)+": "+f.What)
			}
			if f.Severity == finding.Problem && f.Do == "" {
				t.Errorf("nothing to do: %+v", f)
			}
		}
		return out
	}
	e := doctor.ControllerEvidence{Now: at(), Namespaces: []string{"mooring-system"}, Leases: []doctor.Lease{{
		Namespace: "mooring-system", Name: "calico-node-sync.nodes.mooring.dev", Holder: "a", Renewed: at().Add(-time.Hour),
	}}}
	const left = "problem: calico-node-sync, of which there is only a Lease in namespace mooring-system: its Lease is no longer renewed"
	if got := said(e, "components"); !slices.Equal(got, []string{left}) {
		t.Errorf("only a Lease is left: %q", got)
	}
	e.Leases, e.Traces = nil, map[string]string{doctor.NodeSync: "ConfigMap mooring-system/calico-node-sync-state"}
	const trace = "problem: calico-node-sync: there is ConfigMap mooring-system/calico-node-sync-state, and nothing that runs it in " +
		"namespaces mooring-system"
	if got := said(e, "components"); !slices.Equal(got, []string{trace}) {
		t.Errorf("only its state is left: %q", got)
	}
	stopped := nodeSync(pods(0, 0))
	stopped.Name = "old"
	const old = "Deployment mooring-system/old: it is scaled to 0"
	if got := said(runs(stopped), "replicas"); !slices.Equal(got, []string{"warning: " + old}) {
		t.Errorf("scaled to 0: %q", got)
	}
	if got := said(runs(stopped, nodeSync()), "replicas"); !slices.Equal(got, []string{"note: " + old}) {
		t.Errorf("scaled to 0, and another runs: %q", got)
	}
}
