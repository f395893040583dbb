// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// BGPEtcd is Calico's BGP configuration in the etcdv3 datastore, and its Calico Nodes. It follows what is there from [BGPEtcd.Start] on, by
// watches of the few kinds that route reflectors need, so that a look costs no request; and it writes by transactions, each of which holds
// only if the object is as it was seen, Calico's datastore is open for writes, and it is bound to this cluster.
type BGPEtcd struct {
	etcd    *Etcd
	cluster string
	clock   clock.PassiveClock

	mu       sync.Mutex // guards what follows
	objects  map[string]bgpObject
	synced   bool
	revision int64
	// trouble is why the observed state is not followed at present, nil while it is.
	trouble error
	tell    []func()
}

// bgpObject is what stands under a key: a pointer to one of Calico's types, a *routereflector.CalicoNode, or why it could not be read.
type bgpObject struct {
	object any
	failed error
}

// BGPView is Calico's side of what a plan is made of.
type BGPView struct {
	Peers          []apiv3.BGPPeer
	Configurations []apiv3.BGPConfiguration
	Informations   []apiv3.ClusterInformation
	Statuses       []apiv3.CalicoNodeStatus
	// Filters are the names of the BGPFilters.
	Filters []string
	// Nodes are the Calico Nodes.
	Nodes []routereflector.CalicoNode
	// Unread are sentences about objects that could not be read, sorted.
	Unread []string

	// revision is the store revision up to which all changes of Calico Nodes are in the view, keys how many there are, readable or not.
	revision int64
	keys     int64
}

// Recorded is the UID of kube-system of the cluster that the datastore belongs to by its own record, "" if none stands there.
func (v BGPView) Recorded() string {
	if info := v.Information(); info != nil {
		return info.Annotations[routereflector.BindingAnnotation]
	}
	return ""
}

// ErrNotSynced reports that Calico's etcd has not been read yet.
var ErrNotSynced = errors.New("Calico's etcd has not been read yet") //nolint:staticcheck // Calico is a name

// NewBGPEtcd makes the adapter on an open connection. cluster is the UID of the namespace kube-system, by which a datastore is bound to its cluster.
// Nothing is read before Start.
func NewBGPEtcd(etcd *Etcd, cluster string, c clock.PassiveClock) *BGPEtcd {
	return &BGPEtcd{etcd: etcd, cluster: cluster, clock: c}
}

// Cluster is the UID of the cluster for which it writes.
func (b *BGPEtcd) Cluster() string { return b.cluster }

// bgpPrefixes are where the kinds stand in etcd. They MUST match Calico's, and keys_test.go compares them with what libcalico-go computes.
func bgpPrefixes() map[string]string {
	const root = assumed.CalicoResources
	return map[string]string{
		libapiv3.KindNode: nodePrefix, apiv3.KindBGPPeer: root + "bgppeers/", apiv3.KindBGPConfiguration: root + "bgpconfigurations/",
		apiv3.KindCalicoNodeStatus: root + "caliconodestatuses/", apiv3.KindClusterInformation: root + "clusterinformations/",
		apiv3.KindBGPFilter: root + "bgpfilters/",
	}
}

func bgpKey(kind, name string) string { return bgpPrefixes()[kind] + name }

// OnChange lets f be called after each change that a plan can depend on. f must not block.
func (b *BGPEtcd) OnChange(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tell = append(b.tell, f)
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: a replica that waits follows as well, to know when it takes over.
func (b *BGPEtcd) NeedLeaderElection() bool { return false }

// refollow bounds the pause after a broken watch: it grows from the first to the second.
const (
	refollowLeast = 100 * time.Millisecond
	refollowMost  = 10 * time.Second
)

// Start reads everything and follows it until the context ends. When a watch breaks, since etcd is away or has compacted what was to come next,
// everything is read again. It implements manager.Runnable.
func (b *BGPEtcd) Start(ctx context.Context) error {
	pause := refollowLeast
	for ctx.Err() == nil {
		began := b.clock.Now()
		b.fell(b.follow(ctx))
		if b.clock.Since(began) > refollowMost {
			pause = refollowLeast
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, refollowMost)
	}
	return nil
}

// fell remembers why nothing is followed for now.
func (b *BGPEtcd) fell(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble = err
}

// follow reads everything at one revision and watches from there. It returns when a watch breaks.
func (b *BGPEtcd) follow(ctx context.Context) error {
	revision, err := b.readAll(ctx)
	if err != nil {
		return err
	}
	return b.watch(ctx, revision)
}

// watch takes in what changes after a revision, until a watch breaks.
func (b *BGPEtcd) watch(ctx context.Context, revision int64) error {
	client, err := b.etcd.connection()
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(clientv3.WithRequireLeader(ctx))
	for kind, prefix := range bgpPrefixes() {
		group.Go(func() error {
			for answer := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(revision+1)) {
				if err := answer.Err(); err != nil {
					return fmt.Errorf("watching Calico's %s objects: %w", kind, err)
				}
				b.take(kind, answer.Events)
			}
			return fmt.Errorf("watching Calico's %s objects: %w", kind, errWatchEnded)
		})
	}
	return group.Wait()
}

var errWatchEnded = errors.New("the watch has ended")

func (b *BGPEtcd) readAll(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	kinds := slices.Sorted(maps.Keys(bgpPrefixes()))
	ops := make([]clientv3.Op, 0, len(kinds))
	for _, kind := range kinds {
		ops = append(ops, clientv3.OpGet(bgpPrefixes()[kind], clientv3.WithPrefix()))
	}
	txn, err := b.etcd.txn(ctx)
	if err != nil {
		return 0, err
	}
	resp, err := txn.Then(ops...).Commit()
	if err != nil {
		return 0, fmt.Errorf("reading Calico's BGP configuration from etcd at %s: %w", b.etcd.endpoints, err)
	}
	objects := map[string]bgpObject{}
	for i, kind := range kinds {
		for _, kv := range resp.Responses[i].GetResponseRange().GetKvs() {
			objects[string(kv.Key)] = readBGP(kind, kv)
		}
	}
	b.mu.Lock()
	b.objects, b.synced, b.revision, b.trouble = objects, true, resp.Header.Revision, nil
	b.mu.Unlock()
	b.told()
	return resp.Header.Revision, nil
}

// Look reads everything once, all of it as it was at one moment, for commands that do not follow what comes. What is in the view must not be changed.
// The error is one sentence that names the endpoints.
func (b *BGPEtcd) Look(ctx context.Context) (BGPView, error) {
	if _, err := b.readAll(ctx); err != nil {
		return BGPView{}, err
	}
	return b.View()
}

// take takes in what a watch has brought.
func (b *BGPEtcd) take(kind string, events []*clientv3.Event) {
	changed := false
	b.mu.Lock()
	for _, e := range events {
		key := string(e.Kv.Key)
		before, had := b.objects[key]
		if e.Type == mvccpb.DELETE {
			delete(b.objects, key)
			changed = changed || had
		} else {
			after := readBGP(kind, e.Kv)
			b.objects[key] = after
			changed = changed || !had || matters(before, after)
		}
		if kind == libapiv3.KindNode {
			b.revision = max(b.revision, e.Kv.ModRevision)
		}
	}
	b.mu.Unlock()
	if changed {
		b.told()
	}
}

// matters reports whether a change can change a plan: every start of a calico-node writes its Node again.
func matters(before, after bgpObject) bool {
	was, isNode := before.object.(*routereflector.CalicoNode)
	is, stillNode := after.object.(*routereflector.CalicoNode)
	if !isNode || !stillNode {
		return true
	}
	a, b := *was, *is
	a.ResourceVersion, b.ResourceVersion = "", ""
	return !reflect.DeepEqual(a, b)
}

func (b *BGPEtcd) told() {
	b.mu.Lock()
	tell := slices.Clone(b.tell)
	b.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// readBGP reads a value through libcalico-go's data model, and keeps of it what is needed.
func readBGP(kind string, kv *mvccpb.KeyValue) bgpObject {
	name := strings.TrimPrefix(string(kv.Key), bgpPrefixes()[kind])
	fail := func(err error) bgpObject {
		return bgpObject{failed: fmt.Errorf("%s %s cannot be read, and nor can Calico: %w", kind, name, err)}
	}
	if kind == libapiv3.KindNode {
		n, err := parseCalicoNode(name, kv.Value)
		if err != nil {
			return fail(err)
		}
		return bgpObject{object: bgpNode(n, kv.ModRevision)}
	}
	parsed, err := model.ParseValue(model.ResourceKey{Kind: kind, Name: name}, kv.Value)
	if err != nil {
		return fail(err)
	}
	object, ok := parsed.(metav1.Object)
	if !ok || object.GetName() != name {
		return fail(errors.New("its value is not the object of that name"))
	}
	object.SetResourceVersion(strconv.FormatInt(kv.ModRevision, 10))
	switch o := parsed.(type) {
	case *apiv3.CalicoNodeStatus:
		if o.Labels[v1alpha1.TopologyLabel] == "" { // those of others may hold every route of a node
			o.Annotations, o.Status = nil, apiv3.CalicoNodeStatusStatus{}
		}
	case *apiv3.BGPFilter:
		o.Spec = apiv3.BGPFilterSpec{}
	}
	return bgpObject{object: parsed}
}

// bgpNode keeps of a Calico Node what plans are made of.
func bgpNode(n *libapiv3.Node, revision int64) *routereflector.CalicoNode {
	out := &routereflector.CalicoNode{
		Name: n.Name, UID: string(n.UID), ResourceVersion: strconv.FormatInt(revision, 10), Labels: n.Labels,
	}
	for _, ref := range n.Spec.OrchRefs {
		if ref.Orchestrator == nodesync.OrchestratorKubernetes && out.Kubernetes == "" {
			out.Kubernetes = ref.NodeName
		}
		out.Foreign = out.Foreign || ref.Orchestrator != nodesync.OrchestratorKubernetes
	}
	if bgp := n.Spec.BGP; bgp != nil {
		out.IPv4, out.IPv6 = bgpAddress(bgp.IPv4Address), bgpAddress(bgp.IPv6Address)
		if bgp.ASNumber != nil {
			out.ASNumber = uint32(*bgp.ASNumber)
		}
		if id, err := netip.ParseAddr(bgp.RouteReflectorClusterID); err == nil && id.Is4() {
			out.ClusterID = id.String()
		} else {
			out.InvalidID = bgp.RouteReflectorClusterID
		}
	}
	return out
}

// bgpAddress reads an address with or without the length of its network; the zero Addr if it is neither.
func bgpAddress(text string) netip.Addr {
	if p, err := netip.ParsePrefix(text); err == nil {
		return p.Addr()
	}
	a, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return a
}

// View is what was last seen, without a request. What is in it is shared, and must not be changed. The error is [ErrNotSynced] until everything has
// been read once.
func (b *BGPEtcd) View() (BGPView, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.synced {
		if b.trouble != nil {
			return BGPView{}, fmt.Errorf("%w: %w", ErrNotSynced, b.trouble)
		}
		return BGPView{}, ErrNotSynced
	}
	v := BGPView{revision: b.revision}
	for key, o := range b.objects {
		if strings.HasPrefix(key, nodePrefix) {
			v.keys++
		}
		switch object := o.object.(type) {
		case *routereflector.CalicoNode:
			v.Nodes = append(v.Nodes, *object)
		case *apiv3.BGPPeer:
			v.Peers = append(v.Peers, *object)
		case *apiv3.BGPConfiguration:
			v.Configurations = append(v.Configurations, *object)
		case *apiv3.ClusterInformation:
			v.Informations = append(v.Informations, *object)
		case *apiv3.CalicoNodeStatus:
			v.Statuses = append(v.Statuses, *object)
		case *apiv3.BGPFilter:
			v.Filters = append(v.Filters, object.Name)
		default:
			v.Unread = append(v.Unread, o.failed.Error())
		}
	}
	slices.Sort(v.Unread)
	return v, nil
}
