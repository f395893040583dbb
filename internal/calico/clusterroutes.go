// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

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
		request := b.client.Get().Resource(resource)
		one := resource == clusterroutes.Informations
		if one {
			request = request.Name("default") // the only one, which other readers of the datastore read as well
		}
		answer, err := do(ctx, request)
		if one && apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return s, fmt.Errorf("listing Calico's %s: %w", resource, b.explain(err))
		}
		list := struct{ Items []json.RawMessage }{[]json.RawMessage{answer}}
		if !one {
			err = json.Unmarshal(answer, &list)
		}
		if err != nil {
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
