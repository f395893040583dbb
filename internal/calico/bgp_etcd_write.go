// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// errClosed reports that Calico's datastore may not be written to.
var errClosed = errors.New("Calico's ClusterInformation says datastoreReady=false, its datastore must not be written to") //nolint:staticcheck // Calico is a name

// DatastoreReady reads ClusterInformation live. Without one it is false: no calico-node has started yet. It is an error as well if what is there
// cannot be followed at present.
func (b *BGPEtcd) DatastoreReady(ctx context.Context) (bool, error) {
	b.mu.Lock()
	trouble := b.trouble
	b.mu.Unlock()
	if trouble != nil {
		return false, trouble
	}
	resp, err := b.etcd.get(ctx, clusterInformationKey)
	if err != nil {
		return false, fmt.Errorf("reading Calico's ClusterInformation: %w", err)
	}
	var s Snapshot
	for _, kv := range resp.Kvs {
		s.readClusterInformation(kv.Value, kv.ModRevision)
	}
	return s.DatastoreReady, nil
}

// Bind records in the datastore which cluster it belongs to, if ClusterInformation still is as it was seen. Nothing else can be written before.
func (b *BGPEtcd) Bind(ctx context.Context, seen *apiv3.ClusterInformation) error {
	revision, err := strconv.ParseInt(seen.ResourceVersion, 10, 64)
	if err != nil {
		return fmt.Errorf("binding Calico's etcd to this cluster: its resourceVersion: %w", err)
	}
	return wrapWrite("binding Calico's etcd to this cluster",
		b.etcd.AnnotateClusterInformation(ctx, revision, nodesync.BindingAnnotation, b.cluster))
}

// open reads an object and ClusterInformation at one moment. seen are the revisions that a transaction must still find, so that it holds only while
// the datastore is open and this cluster's. kv is nil if there is no such object.
func (b *BGPEtcd) open(ctx context.Context, key string) (kv *mvccpb.KeyValue, seen map[string]int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txn, err := b.etcd.txn(ctx)
	if err != nil {
		return nil, nil, err
	}
	resp, err := txn.Then(clientv3.OpGet(key), clientv3.OpGet(clusterInformationKey)).Commit()
	if err != nil {
		return nil, nil, err
	}
	var s Snapshot
	for _, info := range resp.Responses[1].GetResponseRange().GetKvs() {
		s.readClusterInformation(info.Value, info.ModRevision)
	}
	if !s.DatastoreReady {
		return nil, nil, errClosed
	}
	if bound := s.ClusterInformation.Annotations[nodesync.BindingAnnotation]; bound != b.cluster || bound == "" {
		return nil, nil, fmt.Errorf("this etcd is bound to the cluster with UID %q and not to this one, %q", bound, b.cluster)
	}
	seen = map[string]int64{clusterInformationKey: s.ClusterInformation.Revision, key: 0}
	for _, found := range resp.Responses[0].GetResponseRange().GetKvs() {
		kv, seen[key] = found, found.ModRevision
	}
	return kv, seen, nil
}

// create puts an object that is not there. One of that name that exists is a conflict.
func (b *BGPEtcd) create(ctx context.Context, kind, name string, labels, annotations map[string]string, spec any) error {
	key := bgpKey(kind, name)
	_, seen, err := b.open(ctx, key)
	if err != nil {
		return err
	}
	if seen[key] != 0 {
		return &ConflictError{Key: kind + " " + name, Detail: "somebody else created it meanwhile"}
	}
	metadata := metav1.ObjectMeta{
		Name: name, UID: uuid.NewUUID(), CreationTimestamp: metav1.NewTime(b.clock.Now()), Labels: labels, Annotations: annotations,
	}
	if kind == apiv3.KindCalicoNodeStatus {
		metadata.ResourceVersion = noRevision
	}
	value, err := json.Marshal(map[string]any{"kind": kind, "apiVersion": apiv3.GroupVersionCurrent, "spec": spec, "metadata": metadata})
	if err != nil {
		return err
	}
	_, err = b.etcd.commit(ctx, nil, seen, clientv3.OpPut(key, string(value)))
	return err
}

// edit changes an object that is still as it was seen. What change does not touch stays as it is, fields that this program does not know included.
func (b *BGPEtcd) edit(ctx context.Context, kind, name, resourceVersion string, change func(object map[string]json.RawMessage) error) error {
	key := bgpKey(kind, name)
	kv, seen, err := b.at(ctx, key, resourceVersion)
	if err != nil {
		return err
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(kv.Value, &object); err != nil {
		return err
	}
	if err := change(object); err != nil {
		return err
	}
	value, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = b.etcd.commit(ctx, nil, seen, clientv3.OpPut(key, string(value)))
	return err
}

// at is [BGPEtcd.open] for an object that must be at a resourceVersion.
func (b *BGPEtcd) at(ctx context.Context, key, resourceVersion string) (*mvccpb.KeyValue, map[string]int64, error) {
	kv, seen, err := b.open(ctx, key)
	if err != nil {
		return nil, nil, err
	}
	if kv == nil || strconv.FormatInt(kv.ModRevision, 10) != resourceVersion {
		return nil, nil, &ConflictError{Key: key, Detail: fmt.Sprintf("it is at %s, not revision %s", revisionText(seen[key]), resourceVersion)}
	}
	return kv, seen, nil
}

// delete removes an object that is still as it was seen.
func (b *BGPEtcd) delete(ctx context.Context, kind, name, resourceVersion string) error {
	key := bgpKey(kind, name)
	_, seen, err := b.at(ctx, key, resourceVersion)
	if err != nil {
		return err
	}
	_, err = b.etcd.commit(ctx, nil, seen, clientv3.OpDelete(key))
	return err
}

// within edits a part of an object that is an object itself. A part that becomes empty goes.
func within(object map[string]json.RawMessage, part string, change func(map[string]json.RawMessage) error) error {
	inner := map[string]json.RawMessage{}
	if raw, there := object[part]; there {
		if err := json.Unmarshal(raw, &inner); err != nil {
			return fmt.Errorf("reading its %s: %w", part, err)
		}
	}
	if inner == nil { // null
		inner = map[string]json.RawMessage{}
	}
	if err := change(inner); err != nil {
		return err
	}
	if len(inner) == 0 {
		delete(object, part)
		return nil
	}
	raw, err := json.Marshal(inner)
	object[part] = raw
	return err
}

// put sets a field, or with nil takes it away.
func put(object map[string]json.RawMessage, field string, value any) error {
	if value == nil {
		delete(object, field)
		return nil
	}
	raw, err := json.Marshal(value)
	object[field] = raw
	return err
}

// NodeChange is what one write changes on a node: labels, and the route reflector cluster ID.
type NodeChange struct {
	// Node is the node's name, UID and ResourceVersion those of the World.
	Node, UID, ResourceVersion string
	// Labels are set, or with nil taken away; others stay.
	Labels map[string]*string
	// ClusterID is set, or with "" taken away; nil leaves it.
	ClusterID *string
}

// ChangeNode changes labels and cluster ID of a Calico Node in one compare-and-swap: between two writes the node would have sessions of one kind by
// the label and of another by the ID, and lose both. The label is the Calico Node's alone: kube-controllers, which copies the Kubernetes
// Node's labels there, removes only those that it has itself copied (annotation projectcalico.org/kube-labels), and calico-node none.
func (b *BGPEtcd) ChangeNode(ctx context.Context, c NodeChange) error {
	return wrapWrite("changing Calico Node "+c.Node, b.edit(ctx, libapiv3.KindNode, c.Node, c.ResourceVersion, func(object map[string]json.RawMessage) error {
		err := within(object, "metadata", func(metadata map[string]json.RawMessage) error {
			return within(metadata, "labels", func(labels map[string]json.RawMessage) error {
				for key, value := range c.Labels {
					if value == nil {
						delete(labels, key)
					} else if err := put(labels, key, *value); err != nil {
						return err
					}
				}
				return nil
			})
		})
		if err != nil || c.ClusterID == nil {
			return err
		}
		return within(object, "spec", func(spec map[string]json.RawMessage) error {
			return within(spec, "bgp", func(bgp map[string]json.RawMessage) error {
				if *c.ClusterID == "" {
					return put(bgp, "routeReflectorClusterID", nil)
				}
				if len(bgp) == 0 {
					return errors.New("calico-node has not set BGP up on it")
				}
				return put(bgp, "routeReflectorClusterID", *c.ClusterID)
			})
		})
	}))
}

// Unchanged asks live whether the reflectors are those of the view: nobody has gained or lost a label or cluster ID, and no Calico Node is gone. Only
// what has changed since is read. If something has, the error is a [ConflictError].
func (b *BGPEtcd) Unchanged(ctx context.Context, v BGPView) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txn, err := b.etcd.txn(ctx)
	if err != nil {
		return err
	}
	resp, err := txn.Then(
		clientv3.OpGet(nodePrefix, clientv3.WithPrefix(), clientv3.WithMinModRev(v.revision+1)),
		clientv3.OpGet(nodePrefix, clientv3.WithPrefix(), clientv3.WithCountOnly()),
	).Commit()
	if err != nil {
		return fmt.Errorf("reading again which Calico Nodes are reflectors: %w", err)
	}
	had := make(map[string]routereflector.CalicoNode, len(v.Nodes))
	for _, n := range v.Nodes {
		had[n.Name] = n
	}
	keys := v.keys
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		if kv.CreateRevision > v.revision {
			keys++
		}
		is, _ := readBGP(libapiv3.KindNode, kv).object.(*routereflector.CalicoNode)
		if is == nil {
			return &ConflictError{Key: string(kv.Key), Detail: "it can no longer be read"}
		}
		was := had[is.Name]
		if is.ClusterID != was.ClusterID || is.Labels[v1alpha1.ReflectorLabel] != was.Labels[v1alpha1.ReflectorLabel] {
			return &ConflictError{Key: string(kv.Key), Detail: "the reflectors have changed since the plan was made"}
		}
	}
	if resp.Responses[1].GetResponseRange().GetCount() != keys {
		return &ConflictError{Key: nodePrefix, Detail: "a Calico Node was removed since the plan was made"}
	}
	return nil
}

// CreatePeer creates one of a topology's BGPPeers. One of that name that exists already, no matter whose it is, is a conflict.
func (b *BGPEtcd) CreatePeer(ctx context.Context, p routereflector.Peer) error {
	labels := map[string]string{v1alpha1.TopologyLabel: p.Topology}
	return wrapWrite("creating BGPPeer "+p.Name, b.create(ctx, apiv3.KindBGPPeer, p.Name, labels, nil, p.PeerSpec.Spec()))
}

// UpdatePeer gives a topology's BGPPeer the spec that it shall have, if it still is the one that was read. Fields that it shall not have go.
func (b *BGPEtcd) UpdatePeer(ctx context.Context, p routereflector.Peer, _, resourceVersion string) error {
	wanted, err := fields(p.PeerSpec.Spec())
	if err != nil {
		return err
	}
	return wrapWrite("updating BGPPeer "+p.Name, b.edit(ctx, apiv3.KindBGPPeer, p.Name, resourceVersion, func(object map[string]json.RawMessage) error {
		return within(object, "spec", func(spec map[string]json.RawMessage) error {
			for _, field := range peerFields() {
				if err := put(spec, field, wanted[field]); err != nil {
					return err
				}
			}
			return nil
		})
	}))
}

// DeletePeer deletes a topology's BGPPeer, if it still is the one that was read.
func (b *BGPEtcd) DeletePeer(ctx context.Context, name, _, resourceVersion string) error {
	return wrapWrite("deleting BGPPeer "+name, b.delete(ctx, apiv3.KindBGPPeer, name, resourceVersion))
}

// SetMesh turns the node-to-node mesh on or off, as [BGPKubernetes.SetMesh] does: what Calico refuses while it is off waits in an annotation.
func (b *BGPEtcd) SetMesh(ctx context.Context, have *apiv3.BGPConfiguration, on bool) error {
	deed := map[bool]string{true: "turning the node-to-node mesh on", false: "turning the node-to-node mesh off"}[on]
	if have == nil {
		spec := map[string]any{"nodeToNodeMeshEnabled": on}
		return wrapWrite(deed, b.create(ctx, apiv3.KindBGPConfiguration, "default", nil, nil, spec))
	}
	patch, err := meshPatch(have, on)
	if err != nil {
		return fmt.Errorf("%s: %w", deed, err)
	}
	return wrapWrite(deed, b.edit(ctx, apiv3.KindBGPConfiguration, "default", have.ResourceVersion, func(object map[string]json.RawMessage) error {
		return merge(object, patch)
	}))
}

// merge applies a JSON merge patch (RFC 7396), with nil for what goes.
func merge(object map[string]json.RawMessage, patch map[string]any) error {
	for field, value := range patch {
		inner, isObject := value.(map[string]any)
		if !isObject {
			if text, isText := value.(*string); isText && text == nil {
				value = nil
			}
			if err := put(object, field, value); err != nil {
				return err
			}
			continue
		}
		err := within(object, field, func(part map[string]json.RawMessage) error { return merge(part, inner) })
		if err != nil {
			return err
		}
	}
	return nil
}

// noRevision stands as the resourceVersion in the values of new CalicoNodeStatuses; no key ever has that revision, since the first write of
// an etcd is 2.
//
// calico-node's status reporter takes the objects from a watch of etcd as they are stored, where Calico's own client leaves no
// resourceVersion, and then tries to update them: Calico's client refuses that for lack of one, for ever (v3.31, node/pkg/status/reporter.go
// and libcalico-go lib/clientv3/resources.go). With one that is out of date the reporter learns of a conflict, reads the object again, and
// goes on from there.
const noRevision = "1"

// CreateStatus creates a CalicoNodeStatus, which calico-node fills in and keeps up with what changes as long as it is there.
func (b *BGPEtcd) CreateStatus(ctx context.Context, r StatusRequest) error {
	seconds := uint32(max(r.Period/time.Second, 0)) //nolint:gosec // periods are seconds to minutes
	spec := apiv3.CalicoNodeStatusSpec{Node: r.Node, Classes: r.classes(), UpdatePeriodSeconds: &seconds}
	return wrapWrite("creating CalicoNodeStatus "+r.Name,
		b.create(ctx, apiv3.KindCalicoNodeStatus, r.Name, maps.Clone(r.Labels), maps.Clone(r.Annotations), spec))
}

// deleteTries is how often a CalicoNodeStatus is read again that calico-node writes at the moment in which it is to go.
const deleteTries = 5

// DeleteStatus deletes a CalicoNodeStatus. Its revision does not count, since calico-node writes it all the time.
func (b *BGPEtcd) DeleteStatus(ctx context.Context, name, uid string) error {
	var err error
	for range deleteTries {
		if err = b.deleteStatus(ctx, name, uid); !errors.Is(err, ErrConflict) {
			break
		}
	}
	if errors.Is(err, ErrConflict) {
		err = fmt.Errorf("it changes all the time: %s", err.Error()) // it is there, so nobody else has deleted it
	}
	return wrapWrite("deleting CalicoNodeStatus "+name, err)
}

// deleteStatus tries once. That it is gone, or another one by now, is what was wanted.
func (b *BGPEtcd) deleteStatus(ctx context.Context, name, uid string) error {
	key := bgpKey(apiv3.KindCalicoNodeStatus, name)
	kv, seen, err := b.open(ctx, key)
	if err != nil || kv == nil {
		return err
	}
	var object struct {
		Metadata objectMetadata `json:"metadata"`
	}
	if err := json.Unmarshal(kv.Value, &object); err != nil {
		return err
	}
	if string(object.Metadata.UID) != uid {
		return nil
	}
	_, err = b.etcd.commit(ctx, nil, seen, clientv3.OpDelete(key))
	return err
}
