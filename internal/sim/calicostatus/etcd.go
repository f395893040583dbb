// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calicostatus

import (
	"context"
	"fmt"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	libapiv3 "github.com/projectcalico/calico/libcalico-go/lib/apis/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
	"github.com/projectcalico/calico/libcalico-go/lib/watch"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// followed is one kind of Calico's in etcd.
type followed struct {
	see   func(u *unstructured.Unstructured, gone bool) error
	list  func(ctx context.Context, o options.ListOptions) ([]runtime.Object, string, error)
	watch func(ctx context.Context, o options.ListOptions) (watch.Interface, error)
}

// items are the objects of a list as such.
func items[T any, P interface {
	*T
	runtime.Object
}](list []T) []runtime.Object {
	out := make([]runtime.Object, 0, len(list))
	for i := range list {
		out = append(out, P(&list[i]))
	}
	return out
}

// kinds are those that confd and the status reporter follow.
func (s *Simulator) kinds(c clientv3.Interface) []followed {
	return []followed{
		{s.seeNode, func(ctx context.Context, o options.ListOptions) ([]runtime.Object, string, error) {
			list, err := c.Nodes().List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return items(list.Items), list.ResourceVersion, nil
		}, c.Nodes().Watch},
		{s.seePeer, func(ctx context.Context, o options.ListOptions) ([]runtime.Object, string, error) {
			list, err := c.BGPPeers().List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return items(list.Items), list.ResourceVersion, nil
		}, c.BGPPeers().Watch},
		{s.seeConfiguration, func(ctx context.Context, o options.ListOptions) ([]runtime.Object, string, error) {
			list, err := c.BGPConfigurations().List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return items(list.Items), list.ResourceVersion, nil
		}, c.BGPConfigurations().Watch},
		{s.seeStatus, func(ctx context.Context, o options.ListOptions) ([]runtime.Object, string, error) {
			list, err := c.CalicoNodeStatus().List(ctx, o)
			if err != nil {
				return nil, "", err
			}
			return items(list.Items), list.ResourceVersion, nil
		}, c.CalicoNodeStatus().Watch},
	}
}

// follow reads and watches Calico's objects in etcd, through Calico's own client.
func (s *Simulator) follow(ctx context.Context) error {
	for _, kind := range s.kinds(s.options.Etcd) {
		objects, revision, err := kind.list(ctx, options.ListOptions{})
		if err != nil {
			return fmt.Errorf("reading Calico's objects in etcd: %w", err)
		}
		for _, o := range objects {
			s.saw(kind, o, false)
		}
		events, err := kind.watch(ctx, options.ListOptions{ResourceVersion: revision})
		if err != nil {
			return fmt.Errorf("watching Calico's objects in etcd: %w", err)
		}
		go func() {
			defer events.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case e, open := <-events.ResultChan():
					switch {
					case !open:
						return
					case e.Type == watch.Deleted:
						s.saw(kind, e.Previous, true)
					case e.Object != nil:
						s.saw(kind, e.Object, false)
					}
				}
			}
		}()
	}
	return nil
}

// saw takes an object in, in the form that it would have in the API server.
func (s *Simulator) saw(kind followed, object runtime.Object, gone bool) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return
	}
	u := &unstructured.Unstructured{Object: content}
	if n, ok := object.(*libapiv3.Node); ok {
		u = &unstructured.Unstructured{Object: map[string]any{}}
		u.SetName(n.Name)
		u.SetLabels(n.Labels)
		if bgp := n.Spec.BGP; bgp != nil {
			u.SetAnnotations(map[string]string{
				"projectcalico.org/IPv4Address": bgp.IPv4Address, "projectcalico.org/IPv6Address": bgp.IPv6Address,
				"projectcalico.org/RouteReflectorClusterID": bgp.RouteReflectorClusterID,
			})
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = kind.see(u, gone) // what cannot be read, calico-node would pass over as well
}

// update writes a filled in status as calico-node does.
func update(ctx context.Context, c clientv3.Interface, status *apiv3.CalicoNodeStatus) error {
	have, err := c.CalicoNodeStatus().Get(ctx, status.Name, options.GetOptions{})
	if err != nil {
		return err
	}
	have.Status = status.Status
	_, err = c.CalicoNodeStatus().Update(ctx, have, options.SetOptions{})
	return err
}
