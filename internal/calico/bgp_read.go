// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/selector"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// Peers lists the BGPPeers as the API server has them; see [NormalizeBGP]. It is for commands that look once: controllers have informers.
// The error is one sentence.
func (b *BGPKubernetes) Peers(ctx context.Context) ([]apiv3.BGPPeer, error) {
	return listBGP[apiv3.BGPPeer](ctx, b, "bgppeers")
}

// Configurations lists the BGPConfigurations, in the same way. The one called default reports whether the mesh is on.
func (b *BGPKubernetes) Configurations(ctx context.Context) ([]apiv3.BGPConfiguration, error) {
	return listBGP[apiv3.BGPConfiguration](ctx, b, "bgpconfigurations")
}

// Policies lists the GlobalNetworkPolicies, in the same way.
func (b *BGPKubernetes) Policies(ctx context.Context) ([]apiv3.GlobalNetworkPolicy, error) {
	return listBGP[apiv3.GlobalNetworkPolicy](ctx, b, policies)
}

// Policies lists the GlobalNetworkPolicies. The error is one sentence.
func (d *Etcd) Policies(ctx context.Context) ([]apiv3.GlobalNetworkPolicy, error) {
	answer, err := d.get(ctx, assumed.CalicoResources+policies+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("reading Calico's %s: %w", policies, err)
	}
	out := make([]apiv3.GlobalNetworkPolicy, len(answer.Kvs))
	for i, kv := range answer.Kvs {
		if err := json.Unmarshal(kv.Value, &out[i]); err != nil {
			return nil, fmt.Errorf("parsing %s: %w", kv.Key, err)
		}
	}
	return out, nil
}

// policies is the name of GlobalNetworkPolicies in paths and keys.
const policies = "globalnetworkpolicies"

// Look reads everything once that a plan is made of on Calico's side, for commands that do not follow what comes; each kind is read by
// itself. Nodes are the API server's own, so that the view has none. The error is one sentence.
func (b *BGPKubernetes) Look(ctx context.Context) (BGPView, error) {
	var v BGPView
	var filters []apiv3.BGPFilter
	for _, read := range []func() error{
		func() (err error) { v.Configurations, err = b.Configurations(ctx); return err },
		func() (err error) {
			v.Informations, err = listBGP[apiv3.ClusterInformation](ctx, b, "clusterinformations")
			return err
		},
		func() (err error) { v.Peers, err = b.Peers(ctx); return err },
		func() (err error) {
			v.Statuses, err = listBGP[apiv3.CalicoNodeStatus](ctx, b, "caliconodestatuses")
			return err
		},
		func() (err error) { filters, err = listBGP[apiv3.BGPFilter](ctx, b, "bgpfilters"); return err },
	} {
		if err := read(); err != nil {
			return BGPView{}, err
		}
	}
	normalize(v.Configurations, func(c *apiv3.BGPConfiguration) metav1.Object { return c })
	normalize(v.Informations, func(c *apiv3.ClusterInformation) metav1.Object { return c })
	normalize(v.Peers, func(p *apiv3.BGPPeer) metav1.Object { return p })
	normalize(v.Statuses, func(s *apiv3.CalicoNodeStatus) metav1.Object { return s })
	for i := range filters {
		v.Filters = append(v.Filters, filters[i].Name)
	}
	return v, nil
}

// normalize is [NormalizeBGP] for each of a list.
func normalize[T any](list []T, object func(*T) metav1.Object) {
	for i := range list {
		NormalizeBGP(object(&list[i]))
	}
}

// Into fills in of a World what the view says: the mesh, whether the datastore is ready, the BGPPeers and the names of the filters. It returns
// BGPConfiguration default, nil if there is none, and sentences about what could not be read; of a BGPPeer that is not understood no session comes,
// since Calico cannot read it either.
func (v BGPView) Into(w *routereflector.World) (configuration *apiv3.BGPConfiguration, unread []string) {
	unread = slices.Clone(v.Unread)
	configuration = DefaultOf(v.Configurations)
	w.Mesh = routereflector.MeshFrom(configuration)
	if info := v.Information(); info != nil && info.Spec.DatastoreReady != nil {
		w.DatastoreReady = *info.Spec.DatastoreReady
	}
	for i := range v.Peers {
		p, err := routereflector.PeerFrom(&v.Peers[i], func(text string) (routereflector.Matcher, error) { return selector.Parse(text) })
		if err != nil {
			unread = append(unread, err.Error())
			continue
		}
		w.Peers = append(w.Peers, p)
	}
	w.Filters = make(map[string]bool, len(v.Filters))
	for _, name := range v.Filters {
		w.Filters[name] = true
	}
	return configuration, unread
}

// DefaultOf is BGPConfiguration default, nil if there is none.
func DefaultOf(all []apiv3.BGPConfiguration) *apiv3.BGPConfiguration {
	if at := slices.IndexFunc(all, func(c apiv3.BGPConfiguration) bool { return c.Name == "default" }); at >= 0 {
		return &all[at]
	}
	return nil
}

// Information is ClusterInformation default, nil if there is none.
func (v BGPView) Information() *apiv3.ClusterInformation {
	for i := range v.Informations {
		if v.Informations[i].Name == "default" {
			return &v.Informations[i]
		}
	}
	return nil
}

// listBGP lists the objects of a kind by its name in paths.
func listBGP[T any](ctx context.Context, b *BGPKubernetes, resource string) ([]T, error) {
	answer, err := do(ctx, b.client.Get().Resource(resource))
	if err != nil {
		return nil, fmt.Errorf("listing %s of %s: %w", resource, b.group, reason(err))
	}
	var all struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("listing %s of %s: %w", resource, b.group, err)
	}
	return all.Items, nil
}
