// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	keysPerPage = 500
	// bareKeysPerPage is more: with each page etcd counts all keys that are left, which for half a million is more work than the page.
	bareKeysPerPage = 30_000
	// readsPerCall is how many keys or ranges one transaction reads: etcd allows 128 operations by default (--max-txn-ops).
	readsPerCall = 100
)

// Snapshot reads all Calico Nodes, ClusterInformation and whose affinities there are, with quorum, in one transaction and so at one
// revision.
func (d *Etcd) Snapshot(ctx context.Context) (Snapshot, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txn, err := d.txn(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	resp, err := txn.Then(
		clientv3.OpGet(nodePrefix, clientv3.WithPrefix()),
		clientv3.OpGet(clusterInformationKey),
		clientv3.OpGet(affinityPrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return Snapshot{}, fmt.Errorf("reading Calico's Nodes from etcd at %s: %w", d.endpoints, err)
	}
	s := Snapshot{Revision: resp.Header.Revision}
	for _, kv := range resp.Responses[0].GetResponseRange().GetKvs() {
		node, readable := d.nodes.parse(kv)
		if !readable {
			s.Unreadable = append(s.Unreadable, string(kv.Key))
			continue
		}
		s.Nodes = append(s.Nodes, node)
	}
	d.nodes.forget()
	for _, kv := range resp.Responses[1].GetResponseRange().GetKvs() {
		s.readClusterInformation(kv.Value, kv.ModRevision)
	}
	d.noteReady(s)
	s.addImplied(resp.Responses[2].GetResponseRange().GetKvs())
	return s, nil
}

// addImplied adds the hosts that have an affinity to a block and no Node.
func (s *Snapshot) addImplied(affinities []*mvccpb.KeyValue) {
	known := make(map[string]bool, len(s.Nodes))
	for _, n := range s.Nodes {
		known[n.Name] = true
	}
	for _, key := range s.Unreadable {
		known[strings.TrimPrefix(key, nodePrefix)] = true
	}
	for _, kv := range affinities {
		host, _, ok := strings.Cut(strings.TrimPrefix(string(kv.Key), affinityPrefix), "/")
		if ok && host != "" && !known[host] {
			known[host] = true
			s.Nodes = append(s.Nodes, Node{Name: host, Implied: true})
		}
	}
}

func parseNode(key string, value []byte, revision int64) (Node, error) {
	name := strings.TrimPrefix(key, nodePrefix)
	n, err := parseCalicoNode(name, value)
	if err != nil {
		return Node{}, err
	}
	node := Node{Name: name, Revision: revision, Annotations: n.Annotations}
	for _, ref := range n.Spec.OrchRefs {
		node.OrchRefs = append(node.OrchRefs, OrchRef{Orchestrator: ref.Orchestrator, NodeName: ref.NodeName})
	}
	return node, nil
}

func parseCalicoNode(name string, value []byte) (*libapiv3.Node, error) {
	parsed, err := model.ParseValue(model.ResourceKey{Kind: libapiv3.KindNode, Name: name}, value)
	if err != nil {
		return nil, err
	}
	n, ok := parsed.(*libapiv3.Node)
	if !ok || n.Name != name {
		return nil, fmt.Errorf("the value of %s is not the Node of that name", nodeKey(name))
	}
	return n, nil
}

// readClusterInformation reports whether the datastore is ready; whatever cannot be read is not ready.
func (s *Snapshot) readClusterInformation(value []byte, revision int64) {
	parsed, err := model.ParseValue(model.ResourceKey{Kind: apiv3.KindClusterInformation, Name: "default"}, value)
	if err != nil {
		return
	}
	info, ok := parsed.(*apiv3.ClusterInformation)
	if !ok {
		return
	}
	s.DatastoreReady = info.Spec.DatastoreReady != nil && *info.Spec.DatastoreReady
	s.ClusterGUID = info.Spec.ClusterGUID
	s.ClusterInformation = Annotated{Revision: revision, Annotations: info.Annotations}
}

// Hosts reads, at the given store revision, what the datastore holds under the given Calico node names. Endpoints are scanned by key
// alone and only those of the hosts are fetched; blocks are read in pages, and those that have nothing to do with the hosts are dropped
// at once. A host that holds nothing is returned empty. If etcd has compacted the revision the error says so, and a new Snapshot helps.
func (d *Etcd) Hosts(ctx context.Context, revision int64, hostNames []string) ([]Host, error) {
	scan := newHostScan(hostNames)
	if err := d.scanNodes(ctx, revision, scan); err != nil {
		return nil, fmt.Errorf("reading Calico Nodes: %w", err)
	}
	if err := d.scanEndpoints(ctx, revision, scan); err != nil {
		return nil, fmt.Errorf("reading workload endpoints: %w", err)
	}
	if err := d.scanAffinities(ctx, revision, scan); err != nil {
		return nil, fmt.Errorf("reading block affinities: %w", err)
	}
	for kind, prefix := range resourcePrefixes() {
		if err := d.scanResources(ctx, revision, kind, prefix, scan); err != nil {
			return nil, fmt.Errorf("reading %s objects: %w", kind, err)
		}
	}
	if err := d.scanBlocks(ctx, revision, scan); err != nil {
		return nil, fmt.Errorf("reading IPAM blocks: %w", err)
	}
	return scan.result(), nil
}

// Reports reads what the Felix of each of the hosts last reported of itself, as far as one has, at the given store revision: a hundred hosts in one
// call. Felix does so for OpenStack's sake, in etcd alone, and by default under Kubernetes as well (felix/daemon, handleProcessStatusUpdate).
func (d *Etcd) Reports(ctx context.Context, revision int64, hosts []string) ([]Report, error) {
	reads := make([]clientv3.Op, 0, len(hosts))
	for _, host := range hosts {
		reads = append(reads, clientv3.OpGet(reportKey(host), clientv3.WithRev(revision)))
	}
	var reports []Report
	err := d.readMany(ctx, reads, func(read int, kv *mvccpb.KeyValue) {
		reports = append(reports, Report{Host: hosts[read], Revision: kv.ModRevision, At: reportedAt(kv.Value)})
	})
	if err != nil {
		return nil, fmt.Errorf("reading what Felix reports: %w", err)
	}
	return reports, nil
}

// reportedAt is the time in a report of Felix (libcalico-go, lib/backend/model StatusReport), the zero time if it cannot be read.
func reportedAt(value []byte) time.Time {
	var report model.StatusReport
	if json.Unmarshal(value, &report) != nil {
		return time.Time{}
	}
	at, err := time.Parse(time.RFC3339, report.Timestamp)
	if err != nil {
		return time.Time{}
	}
	return at
}

func (d *Etcd) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	client, err := d.connection()
	if err != nil {
		return nil, err
	}
	return client.Get(ctx, key, opts...)
}

func (d *Etcd) scanEndpoints(ctx context.Context, revision int64, scan *hostScan) error {
	var wanted []string
	err := d.eachPage(ctx, revision, endpointPrefix, func(key string, _ []byte, _ int64) {
		if scan.mayOwn(key) && scan.hosts[endpointHost(key)] != nil {
			wanted = append(wanted, key)
		}
	}, clientv3.WithKeysOnly(), clientv3.WithLimit(bareKeysPerPage))
	if err != nil {
		return err
	}
	reads := make([]clientv3.Op, 0, len(wanted))
	for _, key := range wanted {
		reads = append(reads, clientv3.OpGet(key, clientv3.WithRev(revision)))
	}
	return d.readMany(ctx, reads, func(_ int, kv *mvccpb.KeyValue) { scan.addEndpoint(string(kv.Key), kv.Value, kv.ModRevision) })
}

// mayOwn is a cheap test before a WorkloadEndpoint's key is parsed, of which there may be half a million: its name begins with that of a
// host, in which dashes are doubled, and a single one ends it (libcalico-go, lib/names).
func (s *hostScan) mayOwn(key string) bool {
	_, name, _ := strings.Cut(key[min(len(endpointPrefix), len(key)):], "/")
	end := 0
	for end < len(name) {
		if name[end] == '-' {
			if end+1 == len(name) || name[end+1] != '-' {
				break
			}
			end++
		}
		end++
	}
	return s.doubled[name[:min(end, len(name))]]
}

// endpointHost is the node that a WorkloadEndpoint's key names, "" if the key is not of the form that Calico writes.
func endpointHost(key string) string {
	_, name, ok := strings.Cut(strings.TrimPrefix(key, endpointPrefix), "/")
	if !ok {
		return ""
	}
	ids, err := names.ParseWorkloadEndpointName(name)
	if err != nil {
		return ""
	}
	return ids.Node
}

// readMany reads keys or ranges, many in one call, and visits what is found with the number of its read.
func (d *Etcd) readMany(ctx context.Context, reads []clientv3.Op, visit func(read int, kv *mvccpb.KeyValue)) error {
	for start := 0; start < len(reads); start += readsPerCall {
		responses, err := d.readTogether(ctx, reads[start:min(start+readsPerCall, len(reads))])
		if err != nil {
			return err
		}
		for i, kvs := range responses {
			for _, kv := range kvs {
				visit(start+i, kv)
			}
		}
	}
	return nil
}

// readTogether is one transaction of reads, at most etcd's limit of operations.
func (d *Etcd) readTogether(ctx context.Context, reads []clientv3.Op) ([][]*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	txn, err := d.txn(ctx)
	if err != nil {
		return nil, err
	}
	resp, err := txn.Then(reads...).Commit()
	if err != nil {
		return nil, err
	}
	found := make([][]*mvccpb.KeyValue, len(resp.Responses))
	for i, r := range resp.Responses {
		found[i] = r.GetResponseRange().GetKvs()
	}
	return found, nil
}

// scanNodes reads the hosts' Nodes again, since a snapshot keeps only what is decided on, and IPAMConfig with them.
func (d *Etcd) scanNodes(ctx context.Context, revision int64, scan *hostScan) error {
	reads := make([]clientv3.Op, 0, len(scan.names))
	for _, name := range scan.names {
		reads = append(reads, clientv3.OpGet(nodeKey(name), clientv3.WithRev(revision)))
	}
	reads = append(reads, clientv3.OpGet(ipamConfigKey, clientv3.WithRev(revision)))
	var configError error
	err := d.readMany(ctx, reads, func(read int, kv *mvccpb.KeyValue) {
		if read == len(scan.names) {
			scan.cooldown, configError = parseCooldown(kv.Value)
			return
		}
		name := scan.names[read]
		scan.hosts[name].keep(string(kv.Key), kv.Value, kv.ModRevision)
		if node, err := parseCalicoNode(name, kv.Value); err == nil {
			scan.addNode(node)
		}
	})
	return errors.Join(err, configError)
}

func (d *Etcd) scanAffinities(ctx context.Context, revision int64, scan *hostScan) error {
	reads := make([]clientv3.Op, 0, len(scan.names))
	for _, name := range scan.names {
		reads = append(reads, clientv3.OpGet(affinityPrefix+name+"/", clientv3.WithPrefix(), clientv3.WithRev(revision)))
	}
	return d.readMany(ctx, reads, func(read int, kv *mvccpb.KeyValue) {
		scan.addAffinity(scan.names[read], string(kv.Key), kv.Value, kv.ModRevision)
	})
}

func (d *Etcd) scanResources(ctx context.Context, revision int64, kind, prefix string, scan *hostScan) error {
	return d.eachPage(ctx, revision, prefix, func(key string, value []byte, modified int64) {
		scan.addResource(kind, strings.TrimPrefix(key, prefix), key, value, modified)
	})
}

func (d *Etcd) scanBlocks(ctx context.Context, revision int64, scan *hostScan) error {
	return d.eachPage(ctx, revision, blockPrefix, func(key string, value []byte, _ int64) { scan.addBlock(key, value) })
}

// eachPage visits all keys below a prefix at a revision, page by page, so that one answer at a time is in memory.
func (d *Etcd) eachPage(
	ctx context.Context, revision int64, prefix string, visit func(key string, value []byte, modified int64), more ...clientv3.OpOption,
) error {
	from, options := prefix, []clientv3.OpOption{
		clientv3.WithRange(clientv3.GetPrefixRangeEnd(prefix)), clientv3.WithLimit(keysPerPage), clientv3.WithRev(revision),
	}
	options = append(options, more...)
	for {
		resp, err := d.get(ctx, from, options...)
		if err != nil {
			return err
		}
		for _, kv := range resp.Kvs {
			visit(string(kv.Key), kv.Value, kv.ModRevision)
		}
		if !resp.More {
			return nil
		}
		from = string(resp.Kvs[len(resp.Kvs)-1].Key) + "\x00"
	}
}
