// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	calicov3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/routereflector"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
	"github.com/mooring-dev/mooring/lab/internal/bgp/scenario"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// holdTime is for how long BIRD keeps a session of which nothing is heard.
const holdTime = 4 * time.Minute

// frozenFor is for how long the API server does not answer.
const frozenFor = time.Minute

// reflecting starts a lab of nine machines whose mesh is off. Three reflectors are wanted there, of which two are made.
func reflecting(t *testing.T) *lab {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes minutes: -short leaves it out")
	}
	l := startScenarios(t, failing, "--zones", "3")
	l.awaitRoutes()
	l.scenario(scenario.Enable) // which TestScenarios judges
	l.patchTopology(`{"spec":{"redundancy":3}}`)
	return l
}

// aClient is the name of a machine that is no reflector: the last one.
func (l *lab) aClient() string {
	l.t.Helper()
	all, reflectors := l.nodes()
	name := ""
	for other := range all {
		if !slices.Contains(reflectors, other) && other > name {
			name = other
		}
	}
	return name
}

// logOthers logs what the others lost, of which the operator promises nothing: how long that takes says as much of the machine as of it.
func (l *lab) logOthers(what string, r probe.Report) {
	l.t.Helper()
	l.t.Logf("| %s | %d of %d | %d | %v |", what, r.Collateral.Lost, r.Collateral.Sent, r.Collateral.Outages,
		time.Duration(r.Collateral.LongestOutage).Round(10*time.Millisecond))
	if r.Collateral.Sent == 0 {
		l.t.Errorf("%s: no pair kept its roles, so that nothing was measured", what)
	}
}

// TestAKubeletOnBIRD: where no policy refuses it (the policies have a test of their own, test/manifests), a kubelet gives its own Node the label of reflectors,
// their cluster ID, and asks that it be kept; and once more with the label in Calico's annotation, which Calico's
// selectors see as well. Nobody else loses a packet, no reflector goes, and the status names the Node.
func TestAKubeletOnBIRD(t *testing.T) {
	reflecting(t).operated(func(l *lab) {
		// label sets the label to a value in JSON, null for none: the beginning of a Node's metadata.
		own := func(label string) string {
			return fmt.Sprintf(`"labels":{%q:%s},"annotations":{`, v1alpha1.ReflectorLabel, label)
		}
		calicos := func(label string) string {
			if label != "null" {
				label = strconv.Quote(fmt.Sprintf(`{%q:%s}`, v1alpha1.ReflectorLabel, label))
			}
			return fmt.Sprintf(`"annotations":{%q:%s,`, routereflector.LabelsAnnotation, label)
		}
		_ = l.part("its own label", func(l *lab) { l.labelsItself(own) }) &&
			l.part("Calico's annotation", func(l *lab) { l.labelsItself(calicos) })
	})
}

// labelsItself has a kubelet make its Node a reflector. label is the part of the patch that labels it.
func (l *lab) labelsItself(label func(value string) string) {
	l.t.Helper()
	before := l.topology()
	hostile := l.aClient()
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	if err != nil {
		l.t.Fatal(err)
	}
	config.QPS = -1
	config.Impersonate.UserName, config.Impersonate.Groups = "system:node:"+hostile, []string{"system:nodes", "system:authenticated"}
	kubelet, err := kubernetes.NewForConfig(config)
	if err != nil {
		l.t.Fatal(err)
	}
	patch := func(value, id, keep string) {
		text := fmt.Sprintf(`{"metadata":{%s%q:%s,%q:%s}}}`, label(value), routereflector.ClusterIDAnnotation, id, v1alpha1.KeepAnnotation, keep)
		if _, err := kubelet.CoreV1().Nodes().Patch(l.t.Context(), hostile, types.MergePatchType, []byte(text), metav1.PatchOptions{}); err != nil {
			l.t.Fatal(err)
		}
	}
	end := l.begin()
	begun := time.Now()
	patch(strconv.Quote(before.Name), strconv.Quote(before.Spec.ClusterID), `"true"`)
	l.await("the status to name it", func() error {
		if c := meta.FindStatusCondition(l.topology().Status.Conditions, v1alpha1.ConditionForeignMarks); c == nil || c.Status != metav1.ConditionTrue ||
			!strings.Contains(c.Message, hostile) {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	l.t.Logf("named after %v", time.Since(begun).Round(100*time.Millisecond))
	l.pass(30 * time.Second) // BIRD and confd have taken all of it up by then
	patch("null", "null", "null")
	l.await("the status to forget it", func() error {
		if c := meta.FindStatusCondition(l.topology().Status.Conditions, v1alpha1.ConditionForeignMarks); c == nil || c.Status != metav1.ConditionFalse {
			return fmt.Errorf("it is %+v", c)
		}
		return nil
	})
	l.awaitReflectors(nil)
	l.noCollateral(end(hostile))
	if after := l.topology(); !slices.EqualFunc(after.Status.Reflectors, before.Status.Reflectors, func(a, b v1alpha1.ReflectorStatus) bool { return a.Node == b.Node }) {
		l.t.Errorf("the reflectors are %+v, were %+v", after.Status.Reflectors, before.Status.Reflectors)
	}
}

// nft runs nft in the network of a machine.
func (l *lab) nft(node, script string) {
	l.t.Helper()
	pid := strconv.Itoa(l.state().Processes[node+"/bird"])
	c := exec.CommandContext(l.t.Context(), "nsenter", "--net=/proc/"+pid+"/ns/net", "nft", "-f", "-")
	c.Stdin = strings.NewReader(script)
	if out, err := c.CombinedOutput(); err != nil {
		l.t.Fatalf("nft on %s: %v\n%s", node, err, out)
	}
}

// TestPort179IsBlocked: a client whose BGP port is closed to all loses its sessions when its BIRD starts again. Reflectors are replaced all the same, the status
// names the client, and forgets it when the port is open again.
func TestPort179IsBlocked(t *testing.T) {
	if _, err := exec.LookPath("nft"); err != nil {
		testkit.Skip(t, "nft is needed")
	}
	reflecting(t).operated(func(l *lab) {
		jammed := l.aClient()
		l.nft(jammed, "table inet mooring { chain in { type filter hook input priority 0; tcp dport 179 drop; tcp sport 179 drop; }; "+
			"chain out { type filter hook output priority 0; tcp dport 179 drop; tcp sport 179 drop; }; }")
		pid := l.state().Processes[jammed+"/bird"]
		if pid <= 1 { // kill(2) takes 0 for the test's own group
			l.t.Fatalf("the BIRD of %s has process ID %d", jammed, pid)
		}
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			l.t.Fatal(err)
		}
		_, before := l.nodes()
		end, begun := l.begin(), time.Now()
		cordon := func(node, on string) {
			patch := []byte(`{"spec":{"unschedulable":` + on + `}}`)
			if _, err := l.kubernetes().CoreV1().Nodes().Patch(l.t.Context(), node, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
				l.t.Fatal(err)
			}
		}
		cordon(jammed, "true") // which never becomes a reflector then
		cordon(before[0], "true")
		l.awaitFor(holdTime+patience, "the status to name it", func() error {
			for _, c := range l.topology().Status.SilentClients {
				if c.Node == jammed {
					l.t.Logf("named after %v: %s", time.Since(begun).Round(time.Second), c.Reason)
					return nil
				}
			}
			return errors.New("it does not")
		})
		l.awaitFor(holdTime+patience, "the cordoned reflector to be replaced", func() error {
			if _, are := l.nodes(); len(are) != len(before) || slices.Contains(are, before[0]) {
				return fmt.Errorf("they are %v", are)
			}
			return nil
		})
		l.t.Logf("replaced after %v", time.Since(begun).Round(time.Second))
		l.noCollateral(end(jammed))
		l.nft(jammed, "delete table inet mooring")
		cordon(before[0], "false")
		l.awaitRoutes()
		l.await("the status to forget it", func() error {
			if n := len(l.topology().Status.SilentClients); n > 0 {
				return fmt.Errorf("it has %d", n)
			}
			return nil
		})
	})
}

// TestTheAPIServerIsFrozen: the API server does not answer for a minute, between the promotion of one reflector and the demotion of the one that it replaces. The
// operator ends when it cannot renew its Lease, and is started again as a kubelet does it.
func TestTheAPIServerIsFrozen(t *testing.T) {
	l := reflecting(t)
	stop, err := scenario.Operate(t.Context(), operator(), l.Kubeconfig(), filepath.Join(l.BGPNetwork(), operatorLog))
	if err != nil {
		t.Fatal(err)
	}
	before := l.awaitReflectors(nil)
	end := l.begin()
	if _, err := l.kubernetes().CoreV1().Nodes().Patch(t.Context(), before[0], types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	server := l.runningState().Identities[blueprint.APIServer]
	var are []string
	l.await("a promotion", func() error {
		if _, are = l.nodes(); slices.Equal(are, before) {
			return fmt.Errorf("the reflectors are %v", are)
		}
		return nil
	})
	if !slices.Contains(are, before[0]) {
		t.Fatalf("the reflectors are %v: %s has been demoted already, and nothing is under way", are, before[0])
	}
	if err := server.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	l.pass(frozenFor)
	if err := server.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	t.Logf("the operator ended with: %v", stop())
	l.operated(func(l *lab) {
		l.awaitReflectors(before[:1])
		l.observe()
		l.logOthers("the API server frozen for a minute", end())
	})
}

// TestByHand: somebody deletes, edits and relabels what the operator wrote, and it is put right.
func TestByHand(t *testing.T) {
	reflecting(t).operated(func(l *lab) {
		b := newBench(l)
		peer := func(change func(p *calicov3.BGPPeer)) func(*lab) []string {
			return func(l *lab) []string {
				p := &calicov3.BGPPeer{}
				b.must(b.api.Get(l.t.Context(), client.ObjectKey{Name: l.topology().Name + "-clients"}, p))
				change(p)
				b.must(b.api.Update(l.t.Context(), p))
				return nil
			}
		}
		for _, deed := range []struct {
			name string
			do   func(*lab) (involved []string)
		}{
			{"a BGPPeer deleted", func(l *lab) []string {
				b.must(b.api.Delete(l.t.Context(), &calicov3.BGPPeer{ObjectMeta: metav1.ObjectMeta{Name: l.topology().Name + "-clients"}}))
				return nil
			}},
			{"its selector edited", peer(func(p *calicov3.BGPPeer) { p.Spec.NodeSelector = "kubernetes.io/hostname == 'nobody'" })},
			{"its label taken away", peer(func(p *calicov3.BGPPeer) { delete(p.Labels, v1alpha1.TopologyLabel) })},
			{"a reflector's cluster ID taken away", func(l *lab) []string {
				_, are := l.nodes()
				patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, routereflector.ClusterIDAnnotation)
				if _, err := l.kubernetes().CoreV1().Nodes().Patch(l.t.Context(), are[0], types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					l.t.Fatal(err)
				}
				return are[:1]
			}},
			{"the mesh switched on", func(l *lab) []string {
				c := &calicov3.BGPConfiguration{}
				b.must(b.api.Get(l.t.Context(), client.ObjectKey{Name: "default"}, c))
				c.Spec.NodeToNodeMeshEnabled = new(true)
				b.must(b.api.Update(l.t.Context(), c))
				return nil
			}},
		} {
			if !l.part(deed.name, func(l *lab) {
				end := l.begin()
				involved := deed.do(l)
				l.observe() // so that what is awaited is not the state before the deed
				l.undone(b)
				l.awaitReflectors(nil)
				l.observe()
				l.logOthers(deed.name, end(involved...))
			}) {
				return
			}
		}
	})
}

// undone waits until the operator has put right what somebody did. A BGPPeer without its label is somebody else's, and is given back once the status says so.
func (l *lab) undone(b *bench) {
	l.t.Helper()
	name := l.topology().Name
	p := &calicov3.BGPPeer{}
	if err := b.api.Get(l.t.Context(), client.ObjectKey{Name: name + "-clients"}, p); err == nil && p.Labels[v1alpha1.TopologyLabel] == "" {
		l.await("the status to say that it is somebody else's", func() error {
			conditions := l.topology().Status.Conditions
			if !slices.ContainsFunc(conditions, func(c metav1.Condition) bool { return c.Reason == string(routereflector.ReasonConflict) }) {
				return fmt.Errorf("the conditions are %+v", conditions)
			}
			return nil
		})
		metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.TopologyLabel, name)
		b.must(b.api.Update(l.t.Context(), p))
	}
	l.await("it to be put right", func() error {
		p, c := &calicov3.BGPPeer{}, &calicov3.BGPConfiguration{}
		if err := b.api.Get(l.t.Context(), client.ObjectKey{Name: name + "-clients"}, p); err != nil {
			return err
		}
		if err := b.api.Get(l.t.Context(), client.ObjectKey{Name: "default"}, c); err != nil {
			return err
		}
		all, reflectors := l.nodes()
		without := slices.ContainsFunc(reflectors, func(name string) bool { return all[name].Annotations[routereflector.ClusterIDAnnotation] == "" })
		if on := c.Spec.NodeToNodeMeshEnabled; strings.Contains(p.Spec.NodeSelector, "nobody") || on == nil || *on || without {
			return fmt.Errorf("nodeSelector %q, mesh %v, a reflector without a cluster ID: %v", p.Spec.NodeSelector, on, without)
		}
		return nil
	})
}
