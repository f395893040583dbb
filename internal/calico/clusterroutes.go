// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/routereflector/clusterroutes"
)

// routeResources are those that decide who programs routes between nodes, by their names in paths and keys.
func routeResources() []string {
	return []string{clusterroutes.Informations, clusterroutes.Felix, clusterroutes.BGP, clusterroutes.Pools}
}

// ClusterRoutes reads what decides who programs the routes between nodes. The error is one sentence.
func (b *BGPKubernetes) ClusterRoutes(ctx context.Context) (s clusterroutes.Settings, err error) {
	for _, resource := range routeResources() {
		answer, err := do(ctx, b.client.Get().Resource(resource))
		if err != nil {
			return s, fmt.Errorf("listing Calico's %s: %w", resource, b.explain(err))
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(answer, &list); err != nil {
			return s, fmt.Errorf("parsing Calico's %s: %w", resource, err)
		}
		for _, item := range list.Items {
			if err := s.Add(resource, item); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// ClusterRoutes reads what decides who programs the routes between nodes. The error is one sentence.
func (d *Etcd) ClusterRoutes(ctx context.Context) (s clusterroutes.Settings, err error) {
	for _, resource := range routeResources() {
		answer, err := d.get(ctx, assumed.CalicoResources+resource+"/", clientv3.WithPrefix())
		if err != nil {
			return s, fmt.Errorf("reading Calico's %s: %w", resource, err)
		}
		for _, kv := range answer.Kvs {
			if err := s.Add(resource, kv.Value); err != nil {
				return s, err
			}
		}
	}
	return s, nil
}

// ClusterRoutes is [Etcd.ClusterRoutes].
func (b *BGPEtcd) ClusterRoutes(ctx context.Context) (clusterroutes.Settings, error) {
	return b.etcd.ClusterRoutes(ctx)
}
