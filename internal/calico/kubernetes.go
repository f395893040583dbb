// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// errNotInKubernetes answers calls for objects that this datastore does not have.
var errNotInKubernetes = errors.New("the kubernetes datastore has no such object of its own: a Calico Node is the Kubernetes Node and an " +
	"endpoint is the pod, and neither is ever touched")

// KubernetesAPI is Calico's kubernetes datastore: custom resources of the cluster itself. What is cleaned there is what hosts without a
// Kubernetes Node leave: their share of IPAM (blocks, handles and affinities), and resources about one host alone. It reads and writes live,
// through no cache, and keeps one page of a list in memory at a time.
type KubernetesAPI struct {
	client rest.Interface
	page   int // how many objects one answer of a list has at most
	clock  clock.PassiveClock
	config configMemory
}

// OpenKubernetes makes a client from the configuration that the rest of the program uses, so that both always mean the same cluster.
// It makes no request.
func OpenKubernetes(config *rest.Config) (*KubernetesAPI, error) {
	c, err := newRESTClient(config, crdGroup)
	if err != nil {
		return nil, fmt.Errorf("making a client for Calico's resources: %w", err)
	}
	return &KubernetesAPI{client: c, page: objectsPerPage, clock: clock.RealClock{}}, nil
}

// Close does nothing: there is no connection of its own.
func (d *KubernetesAPI) Close() error { return nil }

// Ping reads ClusterInformation.
func (d *KubernetesAPI) Ping(ctx context.Context) error {
	_, _, err := d.clusterInformation(ctx)
	return err
}

// clusterInformation says not ready when there is none.
func (d *KubernetesAPI) clusterInformation(ctx context.Context) (ready bool, guid string, err error) {
	info, err := d.read(ctx, kindClusterInfo, "default")
	if err != nil {
		return false, "", fmt.Errorf("reading Calico's ClusterInformation: %w", err)
	}
	var spec struct {
		DatastoreReady bool   `json:"datastoreReady"`
		ClusterGUID    string `json:"clusterGUID"`
	}
	if info == nil {
		return false, "", nil
	}
	if err := json.Unmarshal(info.spec, &spec); err != nil {
		return false, "", fmt.Errorf("parsing Calico's ClusterInformation: %w", err)
	}
	return spec.DatastoreReady, spec.ClusterGUID, nil
}

// Snapshot returns the hosts that hold anything in IPAM as implied Nodes: each is a Kubernetes Node by its own name, or was. Hosts that only
// a resource names are kept apart, since a machine that was never a Node may have one.
func (d *KubernetesAPI) Snapshot(ctx context.Context) (Snapshot, error) {
	ready, guid, err := d.clusterInformation(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	hosts := map[string]bool{}
	s := Snapshot{DatastoreReady: ready, ClusterGUID: guid, OwnCluster: true}
	err = d.each(ctx, kindAffinity, func(object *customResource) error {
		host, _, _ := readAffinity(object) // one that cannot be read is its host's all the same; Hosts says so
		hosts[host] = true
		return nil
	})
	if err != nil {
		return Snapshot{}, err
	}
	err = d.eachRaw(ctx, kindBlock, func(raw []byte) error {
		b, _ := sketchCustomBlock(raw) // Hosts names one that cannot be parsed, for the hosts that it may concern
		add := func(name string) {
			if !hosts[name] {
				hosts[strings.Clone(name)] = true
			}
		}
		if !isVirtual(b.Affinity) {
			add(strings.TrimPrefix(b.Affinity, model.IPAMAffinityTypeHost+":"))
		}
		for _, a := range b.Attributes {
			add(a.Owner.Node)
		}
		return nil
	})
	if err != nil {
		return Snapshot{}, err
	}
	delete(hosts, "")
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		s.Nodes = append(s.Nodes, Node{Name: name, Implied: true, OrchRefs: []OrchRef{{Orchestrator: "k8s", NodeName: name}}})
	}
	s.ResourceHosts, err = d.hostsOfResources(ctx, hosts)
	return s, err
}

// Hosts reads what the hosts have left. The revision is not used: this datastore has no reads at a revision over several kinds, and
// every write names the resourceVersion of each object.
func (d *KubernetesAPI) Hosts(ctx context.Context, _ int64, hostNames []string) ([]Host, error) {
	scan := newHostScan(hostNames)
	cool, err := d.cooldown(ctx)
	if err != nil {
		return nil, err
	}
	scan.cooldown = cool.period
	err = d.eachMarked(ctx, kindAffinity, scan.marks(), func(object *customResource) error {
		scan.addCustomAffinity(object)
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := d.scanResources(ctx, scan); err != nil {
		return nil, err
	}
	claimants, marks := make(map[string][]string, len(scan.claimed)), scan.marks()
	for cidr, names := range scan.claimed {
		claimants[resourceName(cidr)] = names
		marks = append(marks, []byte(resourceName(cidr)))
	}
	err = d.eachMarked(ctx, kindBlock, marks, func(object *customResource) error {
		scan.addCustomBlock(object, claimants[object.metadata.Name])
		return nil
	})
	if err != nil {
		return nil, err
	}
	return scan.result(), nil
}

// Reports returns none: Felix reports in etcd alone (felix/daemon, handleProcessStatusUpdate).
func (d *KubernetesAPI) Reports(context.Context, int64, []string) ([]Report, error) { return nil, nil }

// marks are the hosts' names: in an object that is about one of them, the name stands.
func (s *hostScan) marks() [][]byte {
	marks := make([][]byte, 0, len(s.names))
	for _, name := range s.names {
		marks = append(marks, []byte(name))
	}
	return marks
}

// eachMarked visits those objects of a kind in which any of the marks stands, a cheap test before parsing.
func (d *KubernetesAPI) eachMarked(ctx context.Context, kind string, marks [][]byte, visit func(*customResource) error) error {
	return d.eachRaw(ctx, kind, func(raw []byte) error {
		if !slices.ContainsFunc(marks, func(mark []byte) bool { return bytes.Contains(raw, mark) }) {
			return nil
		}
		object, err := parseCustomResource(kind, raw)
		if err != nil {
			return err
		}
		return visit(object)
	})
}

// unreadable holds back each host that the object may be about: those given, and those whose name stands in it.
func (s *hostScan) unreadable(object *customResource, hosts ...string) {
	for _, name := range s.names {
		if slices.Contains(hosts, name) || bytes.Contains(object.raw, []byte(name)) {
			s.hosts[name].Unreadable = append(s.hosts[name].Unreadable, object.String())
		}
	}
}

func (s *hostScan) addCustomAffinity(object *customResource) {
	host, affinity, err := readAffinity(object)
	h := s.hosts[host]
	switch {
	case err != nil && host == "":
		s.unreadable(object)
	case h == nil:
	case err != nil:
		h.Unreadable = append(h.Unreadable, object.String())
	default:
		h.keep(object.key(), object.raw, affinity.Revision)
		h.Affinities = append(h.Affinities, affinity)
		s.claimed[affinity.CIDR] = append(s.claimed[affinity.CIDR], host)
	}
}

func (s *hostScan) addCustomBlock(object *customResource, claimants []string) {
	b, err := readBlock(object)
	if err != nil {
		s.unreadable(object, claimants...)
		return
	}
	s.keepBlock(b)
}

// readAffinity returns an empty host for affinities that are not a host's.
func readAffinity(object *customResource) (host string, a Affinity, err error) {
	var spec struct {
		Node, Type, CIDR, State string
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return "", Affinity{}, fmt.Errorf("parsing %s: %w", object, err)
	}
	if spec.Type != "" && spec.Type != model.IPAMAffinityTypeHost {
		return "", Affinity{}, nil
	}
	cidr, cidrErr := netip.ParsePrefix(spec.CIDR)
	revision, err := object.revision()
	if err = errors.Join(cidrErr, err); err != nil {
		return spec.Node, Affinity{}, fmt.Errorf("parsing %s: %w", object, err)
	}
	return spec.Node, Affinity{CIDR: cidr.Masked(), Revision: revision, State: spec.State}, nil
}
