// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crdGroup is the API group of Calico's own resources in the kubernetes datastore (libcalico-go, config/crd).
var crdGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

// Kinds of that group that Mooring reads and writes.
const (
	kindBlock       = "IPAMBlock"
	kindHandle      = "IPAMHandle"
	kindAffinity    = "BlockAffinity"
	kindClusterInfo = "ClusterInformation"
)

// objectsPerPage bounds one answer of a list.
const objectsPerPage = 500

// errNotInKubernetes answers calls for objects that this datastore does not have.
var errNotInKubernetes = errors.New("the kubernetes datastore has no such object of its own: a Calico Node is the Kubernetes Node and an " +
	"endpoint is the pod, and neither is ever touched")

// KubernetesAPI is Calico's kubernetes datastore: custom resources of the cluster itself. All that is ever cleaned there is IPAM: blocks,
// handles and affinities of hosts that have no Kubernetes Node. It reads and writes live, through no cache.
type KubernetesAPI struct {
	client client.Client
}

// OpenKubernetes makes a client from the configuration that the rest of the program uses, so that both always mean the same cluster.
// It makes no request.
func OpenKubernetes(config *rest.Config) (*KubernetesAPI, error) {
	c, err := client.New(config, client.Options{Scheme: runtime.NewScheme()})
	if err != nil {
		return nil, fmt.Errorf("making a client for Calico's resources: %w", err)
	}
	return &KubernetesAPI{client: c}, nil
}

// Close does nothing: there is no connection of its own.
func (d *KubernetesAPI) Close() error { return nil }

// Ping reads ClusterInformation.
func (d *KubernetesAPI) Ping(ctx context.Context) error {
	_, _, err := d.clusterInformation(ctx)
	return err
}

func (d *KubernetesAPI) clusterInformation(ctx context.Context) (ready bool, guid string, err error) {
	info, err := d.read(ctx, kindClusterInfo, "default")
	if err != nil {
		return false, "", fmt.Errorf("reading Calico's ClusterInformation: %w", err)
	}
	if info == nil {
		return false, "", nil
	}
	ready, _, _ = unstructured.NestedBool(info.Object, "spec", "datastoreReady")
	guid, _, _ = unstructured.NestedString(info.Object, "spec", "clusterGUID")
	return ready, guid, nil
}

// Snapshot returns the hosts that hold anything in IPAM as implied Nodes: each is a Kubernetes Node by its own name, or was.
func (d *KubernetesAPI) Snapshot(ctx context.Context) (Snapshot, error) {
	ready, guid, err := d.clusterInformation(ctx)
	if err != nil {
		return Snapshot{}, err
	}
	hosts := map[string]bool{}
	s := Snapshot{DatastoreReady: ready, ClusterGUID: guid, OwnCluster: true}
	err = d.eachAffinity(ctx, func(host string, _ Affinity, err error) {
		if err == nil {
			hosts[host] = true
		}
	})
	if err != nil {
		return Snapshot{}, err
	}
	err = d.eachBlock(ctx, func(_ *unstructured.Unstructured, b Block, err error) {
		if err != nil {
			return // Hosts names it, for the hosts that it may concern
		}
		if !isVirtual(b.AffineTo) {
			hosts[b.AffineTo] = true
		}
		for _, a := range b.Allocations {
			hosts[a.Host] = true
		}
	})
	if err != nil {
		return Snapshot{}, err
	}
	delete(hosts, "")
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		s.Nodes = append(s.Nodes, Node{Name: name, Implied: true, OrchRefs: []OrchRef{{Orchestrator: "k8s", NodeName: name}}})
	}
	return s, nil
}

// Hosts reads what IPAM holds for the hosts. The revision is not used: this datastore has no reads at a revision over several kinds, and
// every write names the resourceVersion of each object.
func (d *KubernetesAPI) Hosts(ctx context.Context, _ int64, hostNames []string) ([]Host, error) {
	scan := newHostScan(hostNames)
	err := d.eachAffinity(ctx, func(host string, a Affinity, err error) {
		h := scan.hosts[host]
		switch {
		case h == nil:
		case err != nil:
			h.Unreadable = append(h.Unreadable, err.Error())
		default:
			h.Affinities = append(h.Affinities, a)
			scan.claimed[a.CIDR] = append(scan.claimed[a.CIDR], host)
		}
	})
	if err != nil {
		return nil, err
	}
	err = d.eachBlock(ctx, func(object *unstructured.Unstructured, b Block, err error) {
		if err == nil {
			scan.keepBlock(b)
			return
		}
		// It speaks for the hosts that it names, as in etcd.
		text, marshalErr := object.MarshalJSON()
		for _, h := range scan.hosts {
			if marshalErr != nil || bytes.Contains(text, []byte(h.Name)) {
				h.Unreadable = append(h.Unreadable, kindBlock+" "+object.GetName())
			}
		}
	})
	if err != nil {
		return nil, err
	}
	return scan.result(), nil
}

// eachAffinity visits all affinities of hosts; an affinity that cannot be read is visited with an error that names it.
func (d *KubernetesAPI) eachAffinity(ctx context.Context, visit func(host string, a Affinity, err error)) error {
	return d.each(ctx, kindAffinity, func(object *unstructured.Unstructured) {
		host, affinity, err := readAffinity(object)
		if host != "" {
			visit(host, affinity, err)
		}
	})
}

// readAffinity returns an empty host for affinities that are not a host's.
func readAffinity(object *unstructured.Unstructured) (host string, a Affinity, err error) {
	spec, _, _ := unstructured.NestedMap(object.Object, "spec")
	host, _ = spec["node"].(string)
	if kind, _ := spec["type"].(string); kind != "" && kind != model.IPAMAffinityTypeHost {
		return "", Affinity{}, nil
	}
	text, _ := spec["cidr"].(string)
	cidr, cidrErr := netip.ParsePrefix(text)
	revision, err := revisionOf(object)
	if err = errors.Join(cidrErr, err); err != nil {
		return host, Affinity{}, fmt.Errorf("%s %s", kindAffinity, object.GetName())
	}
	state, _ := spec["state"].(string)
	return host, Affinity{CIDR: cidr.Masked(), Revision: revision, State: state}, nil
}

func (d *KubernetesAPI) eachBlock(ctx context.Context, visit func(object *unstructured.Unstructured, b Block, err error)) error {
	return d.each(ctx, kindBlock, func(object *unstructured.Unstructured) {
		stored, err := readBlock(object)
		if err != nil {
			visit(object, Block{}, err)
			return
		}
		b, err := translateBlock(stored)
		visit(object, b, err)
	})
}

func (d *KubernetesAPI) each(ctx context.Context, kind string, visit func(*unstructured.Unstructured)) error {
	token := ""
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(crdGroup.WithKind(kind + "List"))
		if err := d.list(ctx, list, token); err != nil {
			return fmt.Errorf("listing Calico's %s: %w", kind, err)
		}
		for i := range list.Items {
			visit(&list.Items[i])
		}
		if token = list.GetContinue(); token == "" {
			return nil
		}
	}
}

func (d *KubernetesAPI) list(ctx context.Context, list *unstructured.UnstructuredList, token string) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return d.client.List(ctx, list, client.Limit(objectsPerPage), client.Continue(token))
}

// read returns the object as it is now, nil if there is none.
func (d *KubernetesAPI) read(ctx context.Context, kind, name string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(crdGroup.WithKind(kind))
	err := d.client.Get(ctx, client.ObjectKey{Name: name}, object)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}
