// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/ipam"
	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

var updateBeside = flag.Bool("update-leftovers", false, "write docs/components/calico-node-sync-leftovers.md")

// bed is a datastore of 2,000 machines in which leftovers are planted, each kind on a machine of its own.
type bed struct {
	*testing.T
	api    *controlplane.Cluster
	etcd   *testkit.Etcd
	calico *caliconode.Datastore
	clock  *clocktesting.FakeClock
	// dead are machines whose kubelet renews no Lease.
	dead map[string]bool
	live []string
}

// planted is one kind of leftover.
type planted struct {
	what string
	// gone reports that the machine's Kubernetes Node is deleted afterwards.
	gone bool
	// plant leaves it on a machine and returns by what it is known in the datastore and in what calicoctl prints.
	plant func(b *bed, agent *caliconode.Agent) []string
	// stays reports that it must be there in the end, whatever is asked for.
	stays bool
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (b *bed) pod(agent *caliconode.Agent, name string) *corev1.Pod {
	host := agent.Host().Name
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name + "-of-" + host + "-1", UID: types.UID(name + host)},
		Spec:       corev1.PodSpec{NodeName: host, ServiceAccountName: "default"},
	}
}

// add connects a pod and returns its handle and address.
func (b *bed) add(agent *caliconode.Agent, pod *corev1.Pod) []string {
	b.Helper()
	addresses, err := agent.PodNetwork().Add(b.Context(), pod)
	b.must(err)
	return []string{caliconode.HandleID(pod), addresses[0].String()}
}

// drop deletes the keys that contain both.
func (b *bed) drop(path, name string) {
	b.Helper()
	for key, value := range b.etcd.Dump(b.T) {
		if strings.Contains(key, path) && (strings.Contains(key, name) || strings.Contains(value, `"pod":"`+name+`"`)) {
			_, err := b.etcd.Client.Delete(b.Context(), key)
			b.must(err)
		}
	}
}

// put writes an object about a machine, and returns its name.
func (b *bed) put(plural, kind, host, spec, labels string) []string {
	b.Helper()
	name := "about-" + host
	if strings.HasSuffix(kind, "Configuration") {
		name = "node." + host
	}
	_, err := b.etcd.Client.Put(b.Context(), "/calico/resources/v3/projectcalico.org/"+plural+"/"+name, fmt.Sprintf(
		`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"labels":{%s}},"spec":{%s}}`, kind, name, labels, spec))
	b.must(err)
	return []string{"/" + plural + "/" + name}
}

// create makes the pod in Kubernetes.
func (b *bed) create(pod *corev1.Pod, change func(*corev1.Pod)) {
	b.Helper()
	pod = pod.DeepCopy()
	pod.UID, pod.Spec.Containers = "", []corev1.Container{{Name: "c", Image: "i"}}
	if change != nil {
		change(pod)
	}
	_, err := b.api.Client.CoreV1().Pods(pod.Namespace).Create(b.Context(), pod, metav1.CreateOptions{})
	b.must(err)
}

func resource(plural, kind, spec, labels string) func(b *bed, agent *caliconode.Agent) []string {
	return func(b *bed, agent *caliconode.Agent) []string {
		return b.put(plural, kind, agent.Host().Name, strings.ReplaceAll(spec, "HOST", agent.Host().Name), labels)
	}
}

// onGoneMachines are the kinds of leftovers of machines that are gone.
func onGoneMachines() []planted {
	whole := func(b *bed, agent *caliconode.Agent) []string {
		for _, name := range []string{"a", "b"} {
			b.add(agent, b.pod(agent, name))
		}
		return []string{agent.Host().Name}
	}
	without := func(paths ...string) func(b *bed, agent *caliconode.Agent) []string {
		return func(b *bed, agent *caliconode.Agent) []string {
			whole(b, agent)
			for _, path := range paths {
				b.drop(path, agent.Host().Name)
			}
			return []string{agent.Host().Name}
		}
	}
	return []planted{
		{what: "all that a machine held", plant: whole},
		{what: "the same without its Calico Node", plant: without("/nodes/")},
		{what: "the same without its Calico Node and affinities", plant: without("/nodes/", "/ipam/v2/host/")},
		{what: "its block alone, without affinity key", plant: without("/nodes/", "/ipam/v2/host/", "/workloadendpoints/", "/felixconfigurations/")},
		{what: "a workload endpoint alone", plant: without("/nodes/", "/ipam/v2/host/", "/assignment/", "/felixconfigurations/")},
		{what: "the address of its tunnel", plant: func(_ *bed, agent *caliconode.Agent) []string { return []string{agent.Host().Name} }},
		{what: "an affinity to a block that does not exist", plant: func(b *bed, agent *caliconode.Agent) []string {
			block, err := agent.LeaveAffinityWithoutBlock(b.Context())
			b.must(err)
			return []string{strings.ReplaceAll(block.String(), "/", "-")}
		}},
		{what: "an affinity that was never confirmed", plant: func(b *bed, agent *caliconode.Agent) []string {
			block, err := agent.LeavePendingAffinity(b.Context())
			b.must(err)
			return []string{strings.ReplaceAll(block.String(), "/", "-")}
		}},
		{what: "an address in the block of an existing machine", plant: func(b *bed, agent *caliconode.Agent) []string {
			lender := b.start("lender")
			b.add(lender, b.pod(lender, "own"))
			pod := b.pod(agent, "guest")
			address, err := agent.BorrowAddress(b.Context(), pod, lender)
			b.must(err)
			return []string{caliconode.HandleID(pod), address.String()}
		}},
		{what: "an endpoint whose address was released", plant: func(b *bed, agent *caliconode.Agent) []string {
			_, err := agent.LeaveStaleEndpoint(b.Context(), b.pod(agent, "stale"))
			b.must(err)
			return []string{agent.Host().Name}
		}},
		{what: "an automatic HostEndpoint", plant: resource("hostendpoints", "HostEndpoint", `"node":"HOST","interfaceName":"*"`, `"projectcalico.org/created-by":"calico-kube-controllers"`)},
		{what: "a user's HostEndpoint", plant: resource("hostendpoints", "HostEndpoint", `"node":"HOST","interfaceName":"eth0"`, "")},
		{what: "a BGPPeer", plant: resource("bgppeers", "BGPPeer", `"node":"HOST","peerIP":"192.0.2.1","asNumber":64512`, "")},
		{what: "a CalicoNodeStatus", plant: resource("caliconodestatuses", "CalicoNodeStatus", `"node":"HOST","classes":["BGP"],"updatePeriodSeconds":10`, "")},
		{what: "a user's FelixConfiguration", plant: resource("felixconfigurations", "FelixConfiguration", `"logSeverityScreen":"Debug"`, "")},
		{what: "a BGPConfiguration", plant: resource("bgpconfigurations", "BGPConfiguration", `"logSeverityScreen":"Debug"`, "")},
	}
}

// onLivingMachines are the kinds of leftovers of pods, and what looks like one, on existing machines.
func onLivingMachines() []planted {
	gone := func(b *bed, agent *caliconode.Agent) []string { return b.add(agent, b.pod(agent, "gone")) }
	return []planted{
		{what: "address, handle and endpoint of a pod that is gone", plant: gone},
		{what: "an address without its endpoint", plant: func(b *bed, agent *caliconode.Agent) []string {
			marks := gone(b, agent)
			b.drop("/workloadendpoints/", b.pod(agent, "gone").Name)
			return marks
		}},
		{what: "an endpoint without its address", plant: func(b *bed, agent *caliconode.Agent) []string {
			pod := b.pod(agent, "stale")
			_, err := agent.LeaveStaleEndpoint(b.Context(), pod)
			b.must(err)
			return []string{pod.Name}
		}},
		{what: "the address of a pod that has finished", plant: func(b *bed, agent *caliconode.Agent) []string {
			pod := b.pod(agent, "job")
			marks := b.add(agent, pod)
			b.create(pod, nil)
			stored, err := b.api.Client.CoreV1().Pods("default").Get(b.Context(), pod.Name, metav1.GetOptions{})
			b.must(err)
			stored.Status.Phase = corev1.PodSucceeded
			_, err = b.api.Client.CoreV1().Pods("default").UpdateStatus(b.Context(), stored, metav1.UpdateOptions{})
			b.must(err)
			return marks
		}},
		{what: "an address in the block of another machine", plant: func(b *bed, agent *caliconode.Agent) []string {
			lender := b.start("second-lender")
			b.add(lender, b.pod(lender, "own"))
			pod := b.pod(agent, "guest")
			address, err := agent.BorrowAddress(b.Context(), pod, lender)
			b.must(err)
			return []string{caliconode.HandleID(pod), address.String()}
		}},
		{what: "an IPAM handle of no address", plant: func(b *bed, agent *caliconode.Agent) []string {
			b.add(agent, b.pod(agent, "own"))
			b.create(b.pod(agent, "own"), nil)
			handle, err := agent.LeaveOrphanedHandle(b.Context())
			b.must(err)
			return []string{handle}
		}},
		{what: "a pod that lives", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			b.create(b.pod(agent, "lives"), nil)
			return b.add(agent, b.pod(agent, "lives"))
		}},
		{what: "a pod that is being deleted", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			pod := b.pod(agent, "ends")
			b.create(pod, func(p *corev1.Pod) { p.Finalizers = []string{"mooring.dev/test"} })
			now := int64(0)
			b.must(b.api.Client.CoreV1().Pods("default").Delete(b.Context(), pod.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
			return b.add(agent, pod)
		}},
		{what: "a static pod whose mirror the API server lacks", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			pod := b.pod(agent, "static")
			pod.Name = "proxy-" + agent.Host().Name
			return b.add(agent, pod)
		}},
		{what: "a pod that is gone, on a Node annotated to be kept", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			b.changeNode(agent, func(n *corev1.Node) { n.Annotations = map[string]string{nodesync.KeepAnnotation: "true"} })
			return gone(b, agent)
		}},
		{what: "a pod that is gone, on a Node that is not Ready", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			b.ready(agent, corev1.ConditionUnknown)
			return gone(b, agent)
		}},
		{what: "a pod deleted by force, on a Node that is Ready and whose kubelet is dead", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			b.dead[agent.Host().Name] = true
			return gone(b, agent)
		}},
		{what: "an address that another program assigned for a pod", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			handle := "vm." + agent.Host().Name
			assigned, _, err := b.calico.Client().IPAM().AutoAssign(b.Context(), ipam.AutoAssignArgs{
				Num4: 1, HandleID: &handle, Hostname: agent.Host().Name, IntendedUse: "Workload",
				Attrs: map[string]string{"pod": "vm", "namespace": "default", "node": agent.Host().Name, "vmi": "vm"},
			})
			b.must(err)
			return []string{handle, cnet.IP{IP: assigned.IPs[0].IP}.String()}
		}},
		{what: "an address without attributes", stays: true, plant: func(b *bed, agent *caliconode.Agent) []string {
			handle := "by-hand." + agent.Host().Name
			assigned, _, err := b.calico.Client().IPAM().AutoAssign(b.Context(), ipam.AutoAssignArgs{
				Num4: 1, HandleID: &handle, Hostname: agent.Host().Name, IntendedUse: "Workload",
			})
			b.must(err)
			return []string{handle, cnet.IP{IP: assigned.IPs[0].IP}.String()}
		}},
	}
}

// start makes a machine whose Node is Ready, with calico-node.
func (b *bed) start(name string) *caliconode.Agent {
	b.Helper()
	_, err := b.api.Client.CoreV1().Nodes().Create(b.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	b.must(err)
	n := len(b.live) + 1
	agent, err := b.calico.Start(b.Context(), caliconode.Host{
		Name: name, KubernetesNode: name, Address: netip.AddrFrom4([4]byte{172, 31, byte(n >> 7), byte(n&127 + 1)}), IPIP: true,
	})
	b.must(err)
	b.live = append(b.live, name)
	b.ready(agent, corev1.ConditionTrue)
	return agent
}

func (b *bed) ready(agent *caliconode.Agent, status corev1.ConditionStatus) {
	b.Helper()
	nodes := b.api.Client.CoreV1().Nodes()
	node, err := nodes.Get(b.Context(), agent.Host().Name, metav1.GetOptions{})
	b.must(err)
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(b.clock.Now())}}
	_, err = nodes.UpdateStatus(b.Context(), node, metav1.UpdateOptions{})
	b.must(err)
}

func (b *bed) changeNode(agent *caliconode.Agent, change func(*corev1.Node)) {
	b.Helper()
	nodes := b.api.Client.CoreV1().Nodes()
	node, err := nodes.Get(b.Context(), agent.Host().Name, metav1.GetOptions{})
	b.must(err)
	change(node)
	_, err = nodes.Update(b.Context(), node, metav1.UpdateOptions{})
	b.must(err)
}

// beat renews the Leases of the kubelets that are at work.
func (b *bed) beat() {
	b.Helper()
	leases := b.api.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	now := metav1.NewMicroTime(b.clock.Now())
	for _, name := range b.live {
		lease, err := leases.Get(b.Context(), name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
			_, err = leases.Create(b.Context(), lease, metav1.CreateOptions{})
		case err == nil && !b.dead[name]:
			lease.Spec.RenewTime = &now
			_, err = leases.Update(b.Context(), lease, metav1.UpdateOptions{})
		}
		b.must(err)
	}
}

// rounds runs a controller for as long, with all that it may remove named.
func (b *bed) rounds(r *controller.Reconciler, d time.Duration) {
	b.Helper()
	for end := b.clock.Now().Add(d); b.clock.Now().Before(end); {
		b.beat()
		next, err := r.Round(b.Context())
		b.must(err)
		b.clock.Step(next)
	}
}

// there reports whether anything in the datastore still has one of the marks.
func there(dump map[string]string, marks []string) bool {
	for key, value := range dump {
		for _, mark := range marks[:1] {
			if strings.Contains(key, mark) || strings.Contains(value, mark) || strings.Contains(key, strings.ReplaceAll(mark, "-", "--")) {
				return true
			}
		}
	}
	return false
}

// What is planted in a datastore of 2,000 machines is found and removed by calico-node-sync as its page says, alongside what Calico's own
// check finds.
func TestLeftoversBeside(t *testing.T) { //nolint:paralleltest // it needs the machine for itself
	if testing.Short() {
		t.Skip("it takes minutes; make e2e runs it")
	}
	b := &bed{T: t, api: controlplane.New(t), etcd: testkit.NewEtcd(t), clock: clocktesting.NewFakeClock(time.Now()), dead: map[string]bool{}}
	b.api.AllowPods(t, "default", "default")
	crowd := caliconode.Crowd{Machines: 2000}
	b.must(crowd.Fill(t.Context(), b.etcd.Client))
	_, err := b.etcd.Client.Delete(t.Context(), "/calico/resources/v3/projectcalico.org/clusterinformations/default") // Initialize writes Calico's own
	b.must(err)
	config := apiconfig.NewCalicoAPIConfig()
	config.Spec.DatastoreType, config.Spec.EtcdEndpoints = apiconfig.EtcdV3, b.etcd.Endpoint
	b.calico, err = caliconode.Connect(*config)
	b.must(err)
	t.Cleanup(func() { _ = b.calico.Close() })
	b.must(b.calico.Initialize(t.Context(), "172.20.0.0/16"))
	// kube-controllers makes it, and calicoctl does not check without.
	_, err = b.etcd.Client.Put(t.Context(), "/calico/resources/v3/projectcalico.org/kubecontrollersconfigurations/default",
		`{"kind":"KubeControllersConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"controllers":{}}}`)
	b.must(err)
	register(t, b.api, crowd)

	kinds := onGoneMachines()
	for i := range kinds {
		kinds[i].gone = true
	}
	kinds = append(kinds, onLivingMachines()...)
	marks, names := make([][]string, len(kinds)), make([]string, len(kinds))
	for i, kind := range kinds {
		names[i] = fmt.Sprintf("kind%02d", i+1)
		marks[i] = kind.plant(b, b.start(names[i]))
	}
	for i, kind := range kinds {
		if kind.gone {
			b.must(b.api.Client.CoreV1().Nodes().Delete(t.Context(), names[i], metav1.DeleteOptions{}))
		}
	}
	checked := b.check()

	store, err := calico.OpenEtcd(calico.EtcdConfig{Endpoints: []string{b.etcd.Endpoint}})
	b.must(err)
	t.Cleanup(func() { _ = store.Close() })
	live, err := controller.NewLive(b.api.Config)
	b.must(err)
	cluster := controller.ReadOnce(live, b.clock)
	c := nodesync.DefaultConfig()
	c.MaxUnwitnessed = 100 // nobody has watched them go, and a person has said that they are gone
	once := c
	once.OneShot, once.Grace = true, 0
	plan, err := controller.NewOneShot(once, store, cluster, nil, b.clock).Preview(t.Context())
	b.must(err)
	run := func(c nodesync.Config, d time.Duration) map[string]string {
		b.rounds(&controller.Reconciler{
			Datastore: store, Cluster: cluster, Leftovers: true, Config: c, Clock: b.clock, Log: logr.Discard(),
			Metrics: controller.NewMetrics(prometheus.NewRegistry()),
		}, d)
		return b.etcd.Dump(t)
	}
	byDefault := run(c, 10*time.Minute)
	c.AlsoRemove = nodesync.OptionalKinds()
	withAll := run(c, 75*time.Minute)
	for i, kind := range kinds {
		if kind.gone && there(withAll, marks[i]) {
			c.Named = append(c.Named, names[i])
		}
	}
	byName := run(c, time.Minute)

	var rows strings.Builder
	for i, kind := range kinds {
		found := strings.Contains(plan.String(), names[i]) || strings.Contains(plan.String(), marks[i][0])
		last := there(byName, marks[i])
		by := "by name, with `--also-remove`"
		switch {
		case last:
			by = "never"
		case !there(byDefault, marks[i]):
			by = "by itself"
		case !there(withAll, marks[i]):
			by = "with `--also-remove`"
		}
		if last != kind.stays {
			t.Errorf("%s: it is there in the end: %t, want %t (found: %t)", kind.what, last, kind.stays, found)
		}
		where := "lives"
		if kind.gone {
			where = "is gone"
		}
		fmt.Fprintf(&rows, "| %d | %s | %s | %s | %s | %s |\n", i+1, where, kind.what, yes(mentions(checked, marks[i])), yes(found), by)
	}
	compareBeside(t, rows.String())
}

func yes(found bool) string {
	if found {
		return "yes"
	}
	return "no"
}

func mentions(text string, marks []string) bool {
	for line := range strings.Lines(text) {
		problem := slices.ContainsFunc([]string{" leaked;", "doesn't have any active IPs", "has no IPAM allocation", "doesn't exist", "multiple owners"},
			func(words string) bool { return strings.Contains(line, words) })
		for _, mark := range marks {
			whole := regexp.MustCompile(`(^|[^0-9A-Za-z.])` + regexp.QuoteMeta(mark) + `($|[^0-9A-Za-z.])`)
			if problem && whole.MatchString(strings.TrimSpace(line)) {
				return true
			}
		}
	}
	return false
}

// check is what Calico's own check of its IPAM prints of problems.
func (b *bed) check() string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, testkit.Binary(b.T, "calicoctl"), "ipam", "check", "--show-problem-ips", "--allow-version-mismatch", "--kubeconfig", b.api.Kubeconfig)
	command.Env = append(os.Environ(), "DATASTORE_TYPE=etcdv3", "ETCD_ENDPOINTS="+b.etcd.Endpoint)
	out, err := command.CombinedOutput()
	if err != nil {
		b.Fatalf("calicoctl ipam check: %v\n%s", err, out)
	}
	return string(out)
}

// compareBeside compares the table with that of the page.
func compareBeside(t *testing.T, rows string) {
	t.Helper()
	page := filepath.Join(testkit.Root(t), "docs", "components", "calico-node-sync-leftovers.md")
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	const head = "|---|---|---|---|---|---|\n"
	before, rest, ok := strings.Cut(string(text), head)
	if !ok {
		t.Fatalf("%s has no table", page)
	}
	table, after, _ := strings.Cut(rest, "\n\n")
	if *updateBeside {
		if err := os.WriteFile(page, []byte(before+head+strings.TrimSuffix(rows, "\n")+"\n\n"+after), 0o644); err != nil { //nolint:gosec // a page of the repository
			t.Fatal(err)
		}
		return
	}
	if table+"\n" != rows {
		t.Errorf("the table has changed (-update-leftovers writes it):\n%s", rows)
	}
}
