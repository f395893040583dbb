// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
)

// stormDomain is what the full names of machines end with. The product is not told, as in most clusters.
const stormDomain = ".example.com"

// mostLeaks is how many pods leave something on a machine that stays: of all together the product removes without asking.
const mostLeaks = 6

// slot is a machine of the storm, which comes and goes under one of two names, or stays.
type slot struct {
	*storm
	*rand.Rand
	number int
	stays  bool
	// name is the one under which it lives or lived last, as Kubernetes has it.
	name  string
	life  *life
	agent *caliconode.Agent
	pods  []*stormPod
	// dead are, under each of its names, the pods that it had and whose addresses nobody has released.
	dead map[string][]*stormPod
	// lingering are the sandboxes that the kubelet has not taken down yet, although their pods were deleted by force.
	lingering   []*stormPod
	kubeletDead atomic.Bool
}

// stormPod is a pod in a sandbox. Its UID is that of the sandbox; uid is that of the pod.
type stormPod struct {
	*corev1.Pod
	uid  types.UID
	life *podLife
	// lost reports that nobody will ask the CNI plugin to take the sandbox down.
	lost bool
	// borrowed says that its address is out of another machine's block.
	borrowed bool
}

// persist tries something until it works, since servers freeze in the storm. It returns false when the test is over.
func (st *storm) persist(what string, try func(context.Context) error) bool {
	deadline := time.Now().Add(5 * time.Minute)
	for {
		ctx, cancel := context.WithTimeout(st.t.Context(), 30*time.Second)
		err := try(ctx)
		cancel()
		switch {
		case err == nil:
			return true
		case st.t.Context().Err() != nil:
			return false
		case time.Now().After(deadline):
			st.t.Errorf("%s does not work: %v", what, err)
			return false
		}
		st.count("attempts again")
		st.pause(200 * time.Millisecond)
	}
}

// pause waits, and returns false when the storm is over meanwhile.
func (st *storm) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-st.over:
		return false
	}
}

func (sl *slot) between(low, high time.Duration) time.Duration {
	return low + time.Duration(sl.Int64N(int64(high-low)))
}

// one says yes once in n times.
func (sl *slot) one(n int) bool { return sl.IntN(n) == 0 }

func (sl *slot) hostOf(name string) caliconode.Host {
	last := sl.number + 1
	if strings.HasSuffix(name, stormDomain) {
		last += 2 * mostIdle
	}
	host := sl.host("", 0)
	host.Name, host.KubernetesNode, host.Address = name, name, netip.AddrFrom4([4]byte{172, 30, byte(last >> 8), byte(last)})
	v6 := host.AddressV6.As16()
	v6[14], v6[15] = byte(last>>8), byte(last)
	host.AddressV6 = netip.AddrFrom16(v6)
	return host
}

// run lets the machine live its lives until the storm is over.
func (sl *slot) run() {
	name := sl.site.name(fmt.Sprintf("m%02d", sl.number))
	if sl.stays {
		name = sl.site.name(fmt.Sprintf("stays%d", sl.number))
	}
	for sl.join(name) {
		for lived := 0; sl.stays || lived < 4; lived++ {
			if !sl.pause(sl.between(100*time.Millisecond, 2*time.Second)) {
				return
			}
			if sl.one(3) && !sl.stays {
				break
			}
			if sl.stays {
				sl.load.churn(sl)
			} else {
				sl.churn()
			}
		}
		if !sl.leave() {
			return
		}
		// The clean-up is at work from one second after it on, and takes some.
		switch sl.IntN(6) {
		case 0:
			sl.pause(sl.between(4*time.Second, 12*time.Second))
		case 1:
			sl.count("renames")
			if short, full := strings.CutSuffix(name, stormDomain); full {
				name = short
			} else {
				name += stormDomain
			}
			sl.pause(sl.between(0, time.Second))
		default:
			sl.pause(sl.between(0, 5*time.Second))
		}
		select {
		case <-sl.over:
			return
		default:
		}
	}
}

// join registers the machine under a name and starts calico-node, with pods and users' objects.
func (sl *slot) join(name string) bool {
	sl.name = name
	ok := sl.persist("registering "+name, func(ctx context.Context) error { return sl.register(ctx, name) })
	var revision int64
	ok = ok && sl.persist("looking at "+name, func(ctx context.Context) error {
		answer, err := sl.etcd.Client.Get(ctx, sl.traceOf(name), clientv3.WithPrefix(), clientv3.WithLimit(1))
		if err != nil {
			return err
		}
		revision = answer.Header.Revision
		if len(answer.Kvs) > 0 {
			sl.count("rejoins before the clean-up was over")
			if fenced(string(answer.Kvs[0].Value)) {
				sl.count("rejoins behind the fence")
			}
		}
		return nil
	})
	if !ok {
		return false
	}
	sl.life = sl.truth.born(name, revision)
	ok = sl.persist("starting calico-node on "+name, func(ctx context.Context) (err error) {
		sl.agent, err = sl.calico.Start(ctx, sl.hostOf(name))
		return err
	})
	if revision, read := sl.revision(); ok && read {
		sl.truth.with(func() { sl.life.started = revision })
	}
	for range 1 + sl.IntN(3) {
		ok = ok && sl.addPod(sl.newName())
	}
	if ok && sl.one(3) {
		ok = sl.writeUsersObjects()
	}
	sl.lend()
	sl.count("joins")
	return ok
}

// traceOf begins a key that is there until a machine is cleaned up.
func (sl *slot) traceOf(name string) string {
	if sl.kind == apiconfig.Kubernetes {
		return customPrefix + "blockaffinities/" + name + "-10-"
	}
	return nodePrefix + name
}

// register creates the Kubernetes Node, Ready, and, of a machine that stays, the Lease that its kubelet renews.
func (sl *slot) register(ctx context.Context, name string) error {
	nodes := sl.api.Client.CoreV1().Nodes()
	_, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	if err != nil || !sl.stays {
		return err
	}
	if err := sl.setReady(ctx, name, corev1.ConditionTrue); err != nil {
		return err
	}
	return sl.beat(ctx, name)
}

func (sl *slot) setReady(ctx context.Context, name string, status corev1.ConditionStatus) error {
	nodes := sl.api.Client.CoreV1().Nodes()
	node, err := nodes.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Now()}}
	_, err = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	return err
}

func (sl *slot) beat(ctx context.Context, name string) error {
	now := metav1.NewMicroTime(time.Now())
	leases := sl.api.Client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease, err := leases.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		lease = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: coordinationv1.LeaseSpec{RenewTime: &now}}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		return err
	}
	if err == nil {
		lease.Spec.RenewTime = &now
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

// leave destroys the machine: first its Kubernetes Node goes, then, sooner or later, its pods.
func (sl *slot) leave() bool {
	sl.unlend()
	revision, ok := sl.revision()
	if !ok {
		return false
	}
	sl.truth.with(func() {
		sl.life.until = revision
		for _, p := range sl.pods {
			p.life.end(revision)
		}
	})
	sl.count("departures")
	late := sl.one(8)
	if !late {
		ok = sl.collect()
	}
	ok = ok && sl.persist("deleting the Node of "+sl.name, func(ctx context.Context) error {
		return client.IgnoreNotFound(sl.api.Client.CoreV1().Nodes().Delete(ctx, sl.name, metav1.DeleteOptions{}))
	})
	if late {
		sl.pause(sl.between(0, 2*time.Second))
		ok = ok && sl.collect()
	}
	sl.dead[sl.name] = append(sl.dead[sl.name], sl.pods...)
	sl.pods = nil
	return ok
}

// collect deletes the machine's pods, as Kubernetes does for one that is gone.
func (sl *slot) collect() bool {
	for _, p := range sl.pods {
		if !sl.deletePod(p) {
			return false
		}
	}
	return true
}

func (sl *slot) deletePod(p *stormPod) bool {
	now := int64(0)
	return sl.persist("deleting pod "+p.Name, func(ctx context.Context) error {
		err := sl.api.Client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name,
			metav1.DeleteOptions{GracePeriodSeconds: &now, Preconditions: &metav1.Preconditions{UID: &p.uid}})
		if apierrors.IsConflict(err) { // an earlier attempt has worked, and another pod has the name
			return nil
		}
		return client.IgnoreNotFound(err)
	})
}

// churn starts a pod, or ends one: as it should be, or so that something of it is left.
func (sl *slot) churn() {
	if len(sl.pods) < 3 || len(sl.pods) < 8 && sl.one(2) {
		sl.addPod(sl.newName())
		return
	}
	i := sl.IntN(len(sl.pods))
	p := sl.pods[i]
	sl.pods = append(sl.pods[:i:i], sl.pods[i+1:]...)
	sl.end(p, sl.stays && len(sl.dead[sl.name]) < mostLeaks && sl.one(6))
}

// end ends a pod; a killed one leaves its address, its handle and its endpoint.
func (sl *slot) end(p *stormPod, killed bool) bool {
	revision, ok := sl.revision()
	if !ok {
		return false
	}
	sl.truth.with(func() { p.life.end(revision) })
	if killed {
		sl.count("leftovers on machines that stay")
		sl.dead[sl.name] = append(sl.dead[sl.name], p)
		return sl.deletePod(p)
	}
	return sl.release(p) && sl.deletePod(p)
}

// release is the CNI plugin that takes down what a pod has.
func (sl *slot) release(p *stormPod) bool {
	revision, ok := sl.revision()
	sl.truth.with(func() { p.life.taken = revision })
	return ok && sl.persist("disconnecting "+p.Name, func(ctx context.Context) error { return sl.agent.PodNetwork().Del(ctx, p.Pod) })
}

// returnAddresses ends the pods that hold addresses in blocks of others, which keep these, and takes down those that are dead, as a kubelet does.
func (sl *slot) returnAddresses() {
	if sl.life.until != 0 {
		return
	}
	sl.reviveKubelet()
	sl.takeDown()
	if !sl.stays { // what a DEL does not release, since an interrupted clean-up has removed the handle, is a leftover
		sl.persist("marking "+sl.name+" as ready", func(ctx context.Context) error { return sl.setReady(ctx, sl.name, corev1.ConditionTrue) })
	}
	for _, p := range sl.pods {
		if p.borrowed {
			sl.end(p, false)
		}
	}
	sl.dead[sl.name] = slices.DeleteFunc(sl.dead[sl.name], func(p *stormPod) bool { return (p.borrowed || !sl.stays) && sl.release(p) })
}

func (sl *slot) newName() string { return fmt.Sprintf("w-%d", sl.next.Add(1)) }

// addPod starts a pod; some take an address out of the block of another machine.
func (sl *slot) addPod(name string) bool {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: sl.name, ServiceAccountName: "default", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	pods := sl.api.Client.CoreV1().Pods(pod.Namespace)
	ok := sl.persist("creating pod "+pod.Name, func(ctx context.Context) error {
		stored, err := pods.Create(ctx, pod, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			stored, err = pods.Get(ctx, pod.Name, metav1.GetOptions{})
		}
		if err != nil {
			return err
		}
		pod = stored.DeepCopy()
		if sl.one(2) {
			stored.Status.Phase = corev1.PodRunning
			_, err = pods.UpdateStatus(ctx, stored, metav1.UpdateOptions{})
		}
		return err
	})
	if !ok {
		return false
	}
	return sl.connect(&stormPod{Pod: pod, uid: pod.UID, life: &podLife{}})
}

// connect starts the sandbox of a pod.
func (sl *slot) connect(p *stormPod) bool {
	pod := p.Pod
	sl.truth.with(func() { sl.truth.pods[caliconode.HandleID(pod)] = p.life })
	sl.pods = append(sl.pods, p)
	if lender := sl.lender(); lender != nil && sl.one(6) {
		ctx, cancel := context.WithTimeout(sl.t.Context(), 30*time.Second)
		if _, err := sl.agent.BorrowAddress(ctx, pod, lender); err == nil {
			p.borrowed = true
			sl.count("addresses in blocks of other machines")
		}
		cancel()
	}
	ok := p.borrowed || sl.persist("connecting "+pod.Name, func(ctx context.Context) error {
		_, err := sl.agent.PodNetwork().Add(ctx, pod)
		return err
	})
	if revision, read := sl.revision(); ok && read {
		sl.truth.with(func() { p.life.from = revision })
		return true
	}
	return false
}

// lend lets other machines take addresses out of this one's blocks, unlend ends that.
func (sl *slot) lend() {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	sl.lenders[sl.number] = sl.agent
}

func (sl *slot) unlend() {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	delete(sl.lenders, sl.number)
}

func (sl *slot) lender() *caliconode.Agent {
	sl.mu.Lock()
	defer sl.mu.Unlock()
	for number, agent := range sl.lenders {
		if number != sl.number {
			return agent
		}
	}
	return nil
}

// writeUsersObjects is what a user may write about a machine.
func (sl *slot) writeUsersObjects() bool {
	n := sl.next.Add(1)
	endpoint := apiv3.NewHostEndpoint()
	endpoint.Name, endpoint.Spec.Node, endpoint.Spec.InterfaceName = fmt.Sprintf("hep-%d", n), sl.name, "eth0"
	peer := apiv3.NewBGPPeer()
	peer.Name, peer.Spec.Node, peer.Spec.PeerIP, peer.Spec.ASNumber = fmt.Sprintf("peer-%d", n), sl.name, "172.30.0.250", 64512
	return sl.persist("writing users' objects of "+sl.name, func(ctx context.Context) error {
		_, first := sl.calico.Client().HostEndpoints().Create(ctx, endpoint, options.SetOptions{})
		_, second := sl.calico.Client().BGPPeers().Create(ctx, peer, options.SetOptions{})
		return errors.Join(unlessExists(first), unlessExists(second))
	})
}
