// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/waiting"
)

// confirmStage is a namespace of Mooring's with the state of a calico-node-sync, as its own code writes it.
type confirmStage struct {
	*testing.T
	cluster   *controlplane.Cluster
	namespace string
	state     *nodesynccontroller.ConfigMapState
	config    nodesync.Config
}

func newConfirmStage(t *testing.T, namespace string) *confirmStage {
	t.Helper()
	s := &confirmStage{T: t, cluster: controlplane.Shared(t), namespace: namespace, config: nodesync.DefaultConfig()}
	_, err := s.cluster.Client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cluster.Client.CoreV1().ConfigMaps(namespace).Delete(context.WithoutCancel(t.Context()), nodesynccontroller.StateName, metav1.DeleteOptions{})
	})
	s.state = s.stateIn(namespace)
	return s
}

func (s *confirmStage) stateIn(namespace string) *nodesynccontroller.ConfigMapState {
	s.Helper()
	live, err := nodesynccontroller.NewLive(s.cluster.Config)
	if err != nil {
		s.Fatal(err)
	}
	return &nodesynccontroller.ConfigMapState{Client: live, Namespace: namespace, Name: nodesynccontroller.StateName}
}

// world has ten machines, of which some are gone since an hour, and nobody watched.
func (s *confirmStage) world(gone int, memory nodesync.Memory, confirmation string, now time.Time) nodesync.World {
	w := nodesync.World{
		Now: now, Memory: memory, Confirmation: confirmation, Kubernetes: nodesync.Kubernetes{Synced: true},
		Calico: nodesync.Calico{Ready: true, Binding: nodesync.Binding{Implied: true}},
	}
	for i := range 10 {
		name := fmt.Sprintf("node-%d", i)
		w.Calico.Nodes = append(w.Calico.Nodes, nodesync.CalicoNode{
			Name: name, Revision: 1, OrchRefs: []nodesync.OrchRef{{Orchestrator: nodesync.OrchestratorKubernetes, NodeName: name}},
		})
		if i >= gone {
			w.Kubernetes.Nodes = append(w.Kubernetes.Nodes, nodesync.KubernetesNode{Name: name, UID: name})
			continue
		}
		w.Kubernetes.Lookups = append(w.Kubernetes.Lookups, nodesync.Lookup{Node: name, Verdict: nodesync.VerdictGone})
		w.Kubernetes.RunningPods = append(w.Kubernetes.RunningPods, nodesync.RunningPods{Node: name})
		w.Calico.Hosts = append(w.Calico.Hosts, nodesync.Host{Name: name})
	}
	return w
}

// save plans and saves what the plan remembers, as a round does; it returns what waits.
func (s *confirmStage) save(gone int) nodesync.Awaiting {
	s.Helper()
	memory, confirmation, err := s.state.Read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	now := time.Now()
	memory = nodesync.MakePlan(s.world(gone, memory, confirmation, now), s.config).Memory
	memory.SavedAt = now
	if err := s.state.Save(s.Context(), memory); err != nil {
		s.Fatal(err)
	}
	return memory.Awaiting
}

// cleaned plans with what is saved and confirmed now, when every grace period is over, and counts the machines with steps.
func (s *confirmStage) cleaned(gone int) int {
	s.Helper()
	memory, confirmation, err := s.state.Read(s.Context())
	if err != nil {
		s.Fatal(err)
	}
	hosts := map[string]bool{}
	for _, step := range nodesync.MakePlan(s.world(gone, memory, confirmation, time.Now().Add(s.config.Grace+time.Second)), s.config).Steps {
		hosts[step.Subject().Host] = true
	}
	return len(hosts)
}

func (s *confirmStage) args(more ...string) []string {
	return append([]string{"--kubeconfig", s.cluster.Kubeconfig, "--mooring-namespace", s.namespace, "confirm"}, more...)
}

// What a controller holds back is shown with its hash; confirmed, the controller's next plan lets just that pass, and then nothing waits.
func TestConfirmNodes(t *testing.T) {
	t.Parallel()
	for name, gone := range map[string]int{"mass-guard": 4, "overlap": 8} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newConfirmStage(t, "confirm-"+name)
			expect(t, 0, "", s.args(), "nothing waits for a confirmation\n")
			expect(t, 1, "", s.args("nodes", "0123456789ab"), "error: nothing of calico-node-sync waits for a confirmation in the namespaces confirm-"+name+" (--mooring-namespace)\n")
			waits := s.save(gone)
			out := expect(t, 2, "", s.args(), fmt.Sprintf("%d machines are held back by the gate %s of calico-node-sync\n", gone, name),
				"which:      node-0, node-1, node-2", "ago by calico-node-sync in namespace confirm-"+name+"\n", "to confirm: kubectl mooring confirm nodes "+waits.Hash+"\n")
			if strings.Contains(out, "has not saved its state") || s.cleaned(gone) != 0 {
				t.Errorf("%d are cleaned:\n%s", s.cleaned(gone), out)
			}
			expect(t, 1, "", s.args("nodes", "0123456789ab"),
				fmt.Sprintf(`error: "0123456789ab" is not the current one, which is %s, for %d machines: 'kubectl mooring confirm' lists them`, waits.Hash, gone))
			for _, bad := range []string{"59s", "24h1m", "-1h"} {
				expect(t, 1, "", s.args("nodes", waits.Hash, "--for="+bad), "it must be between 1m0s and 24h0m0s, 1h is the default")
			}
			if _, confirmation, err := s.state.Read(t.Context()); err != nil || confirmation != "" {
				t.Errorf("what was refused has left %q (%v)", confirmation, err)
			}
			expect(t, 0, "", s.args("nodes", waits.Hash, "--for=2h"), "Confirmed until ", fmt.Sprintf(": calico-node-sync removes what is left of %d machines (node-0, ", gone))
			if got := s.cleaned(gone); got != gone {
				t.Errorf("%d machines are cleaned after the confirmation, want %d", got, gone)
			}
			expect(t, 0, "", s.args(), "confirmed:  until ", "calico-node-sync has yet to act on it\n")
			if next := s.save(gone); next.Hash != "" {
				t.Errorf("the controller has read it, and %+v waits", next)
			}
			expect(t, 0, "", s.args(), "nothing waits for a confirmation\n")
			expect(t, 1, "", s.args("nodes", waits.Hash), "error: nothing of calico-node-sync waits")
		})
	}
}

// What JSON and YAML have is for programs.
func TestConfirmForPrograms(t *testing.T) {
	t.Parallel()
	s := newConfirmStage(t, "confirm-json")
	waits := s.save(4)
	var got waiting.List
	code, out, errs := run(t, s.args("-o", "json"))
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 2 || errs != "" || len(got.Waits) != 1 {
		t.Fatalf("exit code %d, %v: %s%s", code, err, out, errs)
	}
	v := got.Waits[0]
	at := v.ObservedAt
	if v.ObservedAt, v.Then = (time.Time{}), ""; at.IsZero() || v != (finding.Verdict{
		State: finding.Held, What: "4 machines are held back by the gate mass-guard of calico-node-sync", On: strings.Join(waits.Machines, ", "),
		Why: waits.Why, Source: "calico-node-sync in namespace " + s.namespace, Next: "kubectl mooring confirm nodes " + waits.Hash,
	}) {
		t.Errorf("%+v", v)
	}
	// A confirmation that does not hold is shown with its fault, and counts for nothing.
	mustKubectl(t, s.cluster, "", "-n", s.namespace, "annotate", "configmap", nodesynccontroller.StateName, nodesync.ConfirmAnnotation+"="+waits.Confirmation(time.Now().Add(-time.Hour)))
	expect(t, 2, "", s.args(), "not valid:  the confirmation expired at ", "to confirm: ")
}

// A ConfigMap of that name in any other namespace is not believed, and nothing is written there.
func TestConfirmBelievesNoForgery(t *testing.T) {
	t.Parallel()
	s := newConfirmStage(t, "confirm-real")
	other := newConfirmStage(t, "confirm-forged")
	forged := other.save(8)
	expect(t, 0, "", s.args(), "nothing waits for a confirmation\n")
	expect(t, 1, "", s.args("nodes", forged.Hash), "error: nothing of calico-node-sync waits for a confirmation in the namespaces confirm-real (--mooring-namespace)\n")
	real := s.save(4)
	out := expect(t, 2, "", s.args(), real.Hash)
	if strings.Contains(out, forged.Hash) || strings.Contains(out, "confirm-forged") {
		t.Errorf("the forged state is shown:\n%s", out)
	}
	expect(t, 1, "", s.args("nodes", forged.Hash), fmt.Sprintf("%q is not the current one, which is %s, for 4 machines", forged.Hash, real.Hash))
	// -n is kubectl's, and says nothing about where Mooring is.
	expect(t, 1, "", append(s.args("nodes", forged.Hash), "-n", other.namespace), "is not the current one")
	if _, confirmation, err := other.state.Read(t.Context()); err != nil || confirmation != "" {
		t.Errorf("the forged ConfigMap is annotated with %q (%v)", confirmation, err)
	}
}

// between is a kubeconfig of an API server on whose way a test does something right before each PATCH.
func (s *confirmStage) between(do func(patch int64)) string {
	s.Helper()
	transport, err := rest.TransportFor(s.cluster.Config)
	if err != nil {
		s.Fatal(err)
	}
	target, err := url.Parse(s.cluster.Config.Host)
	if err != nil {
		s.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Transport: transport, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	var patches atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPatch {
			do(patches.Add(1))
		}
		proxy.ServeHTTP(w, r)
	}))
	s.Cleanup(server.Close)
	return write(s.T, "kubeconfig", `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"u"}}],
		"clusters":[{"name":"c","cluster":{"server":"`+server.URL+`"}}],"users":[{"name":"u","user":{}}]}`)
}

// The controller saves between the command's read and its write, which the API server then refuses: what waits by then decides.
func TestConfirmWhatHasChangedMeanwhile(t *testing.T) {
	t.Parallel()
	t.Run("another machine goes", func(t *testing.T) {
		t.Parallel()
		s := newConfirmStage(t, "confirm-more")
		waits := s.save(4)
		kubeconfig := s.between(func(int64) { s.save(5) })
		code, out, errs := run(t, s.args("nodes", waits.Hash, "--kubeconfig", kubeconfig))
		if want := fmt.Sprintf("error: %q is not the current one, which is ", waits.Hash); code != 1 || out != "" || !strings.HasPrefix(errs, want) || !strings.Contains(errs, "for 5 machines") {
			t.Errorf("exit code %d, %s%s", code, out, errs)
		}
		if _, confirmation, _ := s.state.Read(t.Context()); confirmation != "" || s.cleaned(5) != 0 {
			t.Errorf("annotated with %q, %d are cleaned", confirmation, s.cleaned(5))
		}
	})
	t.Run("only the time of the state", func(t *testing.T) {
		t.Parallel()
		s := newConfirmStage(t, "confirm-resync")
		waits := s.save(4)
		patches := int64(0)
		kubeconfig := s.between(func(n int64) {
			if patches = n; n == 1 {
				s.save(4)
			}
		})
		expect(t, 0, "", s.args("nodes", waits.Hash, "--kubeconfig", kubeconfig), "Confirmed until ")
		if patches != 2 || s.cleaned(4) != 4 {
			t.Errorf("after %d writes %d machines are cleaned, want 2 and 4", patches, s.cleaned(4))
		}
	})
	t.Run("again and again", func(t *testing.T) {
		t.Parallel()
		s := newConfirmStage(t, "confirm-storm")
		waits := s.save(4)
		kubeconfig := s.between(func(int64) { s.save(4) })
		expect(t, 1, "", s.args("nodes", waits.Hash, "--kubeconfig", kubeconfig), "error: ConfigMap calico-node-sync-state changes all the time, and nothing was confirmed: try again\n")
	})
	t.Run("the ConfigMap is another", func(t *testing.T) {
		t.Parallel()
		s := newConfirmStage(t, "confirm-new")
		waits := s.save(4)
		kubeconfig := s.between(func(int64) {
			mustKubectl(t, s.cluster, "", "-n", s.namespace, "delete", "configmap", nodesynccontroller.StateName, "--ignore-not-found")
		})
		expect(t, 1, "", s.args("nodes", waits.Hash, "--kubeconfig", kubeconfig), "error: annotating ConfigMap confirm-new/calico-node-sync-state: ")
	})
}

// Rights: get and patch on the one ConfigMap are enough for its confirmation; without them what is missing is named, and nothing is called settled.
func TestConfirmNeedsFewRights(t *testing.T) {
	t.Parallel()
	s := newConfirmStage(t, "confirm-rights")
	waits := s.save(4)
	as := func(user string, more ...string) []string {
		return append([]string{"--as=" + user}, s.args(more...)...)
	}
	for user, verbs := range map[string]string{"confirm-reader": "get", "confirm-writer": "get,patch"} {
		mustKubectl(t, s.cluster, "", "-n", s.namespace, "create", "role", user, "--verb="+verbs, "--resource=configmaps", "--resource-name="+nodesynccontroller.StateName)
		mustKubectl(t, s.cluster, "", "-n", s.namespace, "create", "rolebinding", user, "--role="+user, "--user="+user)
	}
	expect(t, 1, "", as("confirm-nobody"), "note: not read: reading ConfigMap confirm-rights/calico-node-sync-state: ", "whether something waits there is unknown (--mooring-namespace says in which namespaces to look)\n")
	expect(t, 1, "", as("confirm-nobody", "nodes", waits.Hash), "error: reading ConfigMap confirm-rights/calico-node-sync-state: ", "forbidden")
	expect(t, 2, "", as("confirm-reader"), "to confirm: kubectl mooring confirm nodes "+waits.Hash)
	expect(t, 1, "", as("confirm-reader", "nodes", waits.Hash), "error: annotating ConfigMap confirm-rights/calico-node-sync-state: ", "cannot patch")
	expect(t, 0, "", as("confirm-writer", "nodes", waits.Hash), "Confirmed until ")
}

func TestConfirmRefusals(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		args []string
		want string
	}{
		"no hash":           {[]string{"nodes"}, "kubectl mooring confirm nodes needs HASH, as 'kubectl mooring confirm' shows; see 'kubectl mooring confirm nodes --help'"},
		"two hashes":        {[]string{"nodes", "a", "b"}, "kubectl mooring confirm nodes needs HASH, "},
		"no word":           {[]string{"topology", "main"}, "kubectl mooring confirm topology needs NAME WORD, "},
		"no kind of thing":  {[]string{"node-1"}, `unknown command "node-1" for "kubectl mooring confirm"`},
		"no duration":       {[]string{"nodes", "a", "--for=soon"}, `invalid value "soon" for --for`},
		"no kubeconfig":     {[]string{"--kubeconfig", "/no/such/file"}, "reading the kubeconfig, pass --kubeconfig or --context to choose another"},
		"an unknown format": {[]string{"-o", "table"}, "use one of text, json, yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, out, errs := run(t, append([]string{"confirm"}, test.args...))
			if code != 1 || out != "" || !strings.Contains(errs, test.want) || strings.Count(errs, "\n") != 1 {
				t.Errorf("exit code %d, %q, %q; want %q", code, out, errs, test.want)
			}
		})
	}
}

// What a person reads, at 80 and 120 columns.
func TestConfirmTexts(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 3, 0, 0, 0, time.UTC)
	for _, columns := range []int{80, 120} {
		golden(t, fmt.Sprintf("confirm-%d", columns), confirmText(now, columns))
	}
}

// confirmTopologies: a topology that is frozen is confirmed by its word, and the operator's annotation has it.
func confirmTopologies(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	args := func(more ...string) []string {
		return append([]string{"--kubeconfig", cluster.Kubeconfig, "--mooring-namespace", "default", "confirm"}, more...)
	}
	expect(t, 0, "", args(), "nothing waits for a confirmation\n")
	expect(t, 1, "", args("topology", "main", "5d0c77aa"), "error: RouteReflectorTopology main waits for no confirmation\n")
	expect(t, 1, "", args("topology", "nope", "5d0c77aa"), "error: there is no RouteReflectorTopology \"nope\"\n")
	frozen := func(nodes int) {
		t.Helper()
		status := map[string]any{"status": map[string]any{
			"baseline": map[string]any{"time": "2026-01-31T02:00:00Z", "newest": "2026-01-01T00:00:00Z", "nodes": nodes, "clients": nodes, "candidates": nodes, "reflectors": 3, "selectors": "abc"},
			"conditions": []any{map[string]any{
				"type": "Frozen", "status": "True", "reason": "NodesVanished", "message": "half of the Nodes are gone", "lastTransitionTime": "2026-01-31T02:00:00Z",
			}},
		}}
		text, err := json.Marshal(status)
		if err != nil {
			t.Fatal(err)
		}
		mustKubectl(t, cluster, "", "patch", "rrt", "other", "--subresource=status", "--type=merge", "-p", string(text))
	}
	frozen(20)
	out := expect(t, 2, "", args(), "RouteReflectorTopology other waits: NodesVanished\n", "why:        half of the Nodes are gone\n")
	_, word, _ := strings.Cut(out, "to confirm: kubectl mooring confirm topology other ")
	word, _, _ = strings.Cut(word, "\n")
	// Status shows the same, and anyone who may not read it is not shown that nothing waits.
	status := append([]string{"status"}, args()[:4]...)
	expect(t, 2, "", status, "\nWaits for a person  bad       1 confirmation awaited\n", "  ! RouteReflectorTopology other waits: NodesVanished: half of the Nodes are gone\n",
		"    to confirm: kubectl mooring confirm topology other "+word+"\n", "\nDoctor ")
	expect(t, 1, "", args("topology", "other", "0badc0de"), `error: "0badc0de" is not what RouteReflectorTopology other waits for now, which is `+word+` (NodesVanished)`)
	if _, completed, _ := run(t, append([]string{"__complete"}, args("topology", "")...)); !strings.HasPrefix(completed, "other\n:") {
		t.Errorf("completes %q", completed)
	}
	frozen(21) // the operator has looked again
	expect(t, 1, "", args("topology", "other", word), "is not what RouteReflectorTopology other waits for now")
	frozen(20)
	expect(t, 0, "", args("topology", "other", word), "Confirmed: calico-route-reflector-operator goes on with the Nodes and labels that there are now.\n")
	is, err := kubectl(t, cluster, "", "get", "rrt", "other", "-o", "jsonpath={.metadata.annotations}")
	if want := fmt.Sprintf(`{%q:%q}`, v1alpha1.ConfirmAnnotation, word); err != nil || is != want {
		t.Errorf("annotated with %s (%v), want %s", is, err, want)
	}
	expect(t, 0, "", args(), "confirmed:  calico-route-reflector-operator has yet to act on it\n")
	mustKubectl(t, cluster, "", "annotate", "rrt", "other", v1alpha1.ConfirmAnnotation+"-")
	mustKubectl(t, cluster, "", "patch", "rrt", "other", "--subresource=status", "--type=merge", "-p", `{"status":{"baseline":null,"conditions":null}}`)
	if !slices.Equal([]string{word}, strings.Fields(word)) || len(word) != 8 {
		t.Errorf("the word is %q", word)
	}
}

// confirmText is what a list of one thing of each kind looks like.
func confirmText(now time.Time, columns int) string {
	held := nodesync.Awaiting{
		Hash: "3f2a9c01d4be", Gate: nodesync.GateMass, Count: 12, Why: "12 nodes are gone whose deletion was not watched, including removals of the last 1h0m0s; the mass guard allows 4 of 40",
		Machines: []string{"node-00", "node-01", "node-02", "node-03", "node-04", "node-05", "node-06", "node-07", "node-08", "node-09"},
	}
	old := nodesync.Awaiting{
		Hash: "5a5a5a5a5a5a", Gate: nodesync.GateOverlap, Count: 1, Machines: []string{"a\x1b[2J"}, Why: "only 0 of 1 Calico Nodes have their Kubernetes Node, less than 50 % (--min-overlap-percent): " +
			"check that this is the right cluster and the right datastore",
	}
	given := held.Confirmation(now.Add(time.Hour))
	in := func(confirmation string) finding.Verdict {
		return waiting.Nodes("mooring-system", held, now.Add(-40*time.Second), confirmation, now)
	}
	return prose.Printable(waiting.List{
		Waits: []finding.Verdict{
			in(""), in("0123456789ab/2026-01-31T04:00:00Z"), in(given), waiting.Nodes("kube-system", old, now.Add(-3*time.Hour), "", now),
			waiting.Topology("main", routereflector.Awaiting{Reason: "NodesVanished", Why: "of 20 Nodes there are 8 left", Word: "5d0c77aa"}),
			waiting.Topology("old", routereflector.Awaiting{Reason: "MeshNotManaged", Why: "the topology is being deleted", Word: "MeshNotManaged"}),
			waiting.Topology("rack", routereflector.Awaiting{
				Reason: "SelectorMatchesNothing", Why: "spec.clientSelector selects none of the 20 Nodes", Word: "aabbccdd", Given: true,
			}),
		},
		Unread: []string{"reading ConfigMap kube-system/calico-node-sync-state: configmaps is forbidden"},
	}.Text(now, columns))
}
