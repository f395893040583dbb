// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// resourcePlurals are the names in paths of the kinds of which an object can be about one host alone: those of resourcePrefixes.
func resourcePlurals() map[string]string {
	return map[string]string{
		apiv3.KindFelixConfiguration: "felixconfigurations",
		apiv3.KindBGPConfiguration:   "bgpconfigurations",
		apiv3.KindHostEndpoint:       "hostendpoints",
		apiv3.KindBGPPeer:            "bgppeers",
		apiv3.KindCalicoNodeStatus:   "caliconodestatuses",
	}
}

// eachResourceKind calls list for each of those kinds.
func eachResourceKind(list func(kind string) error) error {
	for _, kind := range slices.Sorted(maps.Keys(resourcePlurals())) {
		err := list(kind)
		if kind == apiv3.KindCalicoNodeStatus && errors.Is(err, errNotServed) {
			continue // Calico has it since v3.22
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hostsOfResources are the hosts, but for the known ones, that a resource is about, sorted.
func (d *KubernetesAPI) hostsOfResources(ctx context.Context, known map[string]bool) ([]string, error) {
	hosts := map[string]bool{}
	err := eachResourceKind(func(kind string) error {
		return d.each(ctx, kind, func(object *customResource) error {
			// One that cannot be read implies nothing; Hosts holds back those that it may be about.
			if host, _, err := aboutOneHost(object); err == nil && !known[host] {
				hosts[host] = true
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	delete(hosts, "")
	return slices.Sorted(maps.Keys(hosts)), nil
}

func (d *KubernetesAPI) scanResources(ctx context.Context, scan *hostScan) error {
	return eachResourceKind(func(kind string) error {
		return d.eachMarked(ctx, kind, scan.marks(), func(object *customResource) error {
			scan.addCustomResource(object)
			return nil
		})
	})
}

func (s *hostScan) addCustomResource(object *customResource) {
	host, automatic, err := aboutOneHost(object)
	revision, revisionErr := object.revision()
	if errors.Join(err, revisionErr) != nil {
		s.unreadable(object)
		return
	}
	var status struct {
		Status struct {
			LastUpdated time.Time `json:"lastUpdated"`
		} `json:"status"`
	}
	if object.kind == apiv3.KindCalicoNodeStatus {
		_ = json.Unmarshal(object.raw, &status) // what cannot be read is no sign of life
	}
	var peer struct{ Spec apiv3.BGPPeerSpec }
	if object.kind == apiv3.KindBGPPeer && json.Unmarshal(object.raw, &peer) == nil {
		s.addMention(object.metadata.Name, peer.Spec)
	}
	if h := s.hosts[host]; h != nil {
		h.keep(object.key(), object.raw, revision)
		h.Resources = append(h.Resources, Resource{Kind: nodesync.ResourceKind(object.kind), Name: object.metadata.Name, Revision: revision, Automatic: automatic, StatusAt: status.Status.LastUpdated})
	}
}

// aboutOneHost returns the host that a resource is about alone, "" for none.
//
// A FelixConfiguration is never automatic here: calico-node writes one for each host in etcd only (node/pkg/lifecycle/startup:
// ensureDefaultConfig), so one that looks alike is a user's.
func aboutOneHost(object *customResource) (host string, automatic bool, err error) {
	labels, err := labelsOf(object.metadata)
	if err != nil {
		return "", false, fmt.Errorf("parsing %s: %w", object, err)
	}
	switch object.kind {
	case apiv3.KindFelixConfiguration, apiv3.KindBGPConfiguration:
		return configuredHost(object.metadata.Name), false, nil
	}
	var spec struct {
		Node string `json:"node"`
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return "", false, fmt.Errorf("parsing %s: %w", object, err)
	}
	automatic = object.kind == apiv3.KindHostEndpoint && labels[createdByLabel] == createdByControllers
	return spec.Node, automatic, nil
}

// How kube-controllers marks the host endpoints that it makes (kube-controllers, pkg/controllers/node: hostendpoints.go).
const (
	createdByLabel       = "projectcalico.org/created-by"
	createdByControllers = "calico-kube-controllers"
)

// metadataAnnotation holds the metadata that Calico's own API shows of a custom resource, as JSON (libcalico-go, lib/backend/k8s/resources).
const metadataAnnotation = "projectcalico.org/metadata"

// labelsOf are the labels as Calico's own API shows them. Versions of Calico keep them in different places: on the object, in the annotation,
// or, those of Calico itself, in both; the annotation wins, as in libcalico-go.
func labelsOf(metadata objectMetadata) (map[string]string, error) {
	labels := maps.Clone(metadata.Labels)
	text, annotated := metadata.Annotations[metadataAnnotation]
	if !annotated {
		return labels, nil
	}
	var kept objectMetadata
	if err := json.Unmarshal([]byte(text), &kept); err != nil {
		return nil, fmt.Errorf("its annotation %s: %w", metadataAnnotation, err)
	}
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, kept.Labels)
	return labels, nil
}

// DeleteResource deletes an object that is about the guard's host alone, if it is still the one that was seen.
func (d *KubernetesAPI) DeleteResource(ctx context.Context, guard Guard, kind, name string, revision int64) error {
	if resourcePlurals()[kind] == "" {
		return fmt.Errorf("objects of kind %s are never deleted", kind)
	}
	if err := d.deleteResource(ctx, guard, kind, name, revision); err != nil {
		return fmt.Errorf("deleting %s %s: %w", kind, name, err)
	}
	return nil
}

func (d *KubernetesAPI) deleteResource(ctx context.Context, guard Guard, kind, name string, revision int64) error {
	object, err := d.read(ctx, kind, name)
	if err != nil {
		return err
	}
	if err := expectRevision(object, kind+" "+name, revision); err != nil {
		return err
	}
	if object == nil {
		return &ConflictError{Key: kind + " " + name, Detail: "it is absent"}
	}
	host, _, err := aboutOneHost(object)
	if err != nil {
		return err
	}
	if host != guard.Host {
		return fmt.Errorf("it is not about %s alone", guard.Host)
	}
	if err := d.checkGuard(ctx, guard); err != nil {
		return err
	}
	return d.remove(ctx, object)
}

// expectRevision is a conflict unless the object, nil for none, is at the revision, 0 for absent.
func expectRevision(object *customResource, key string, revision int64) error {
	at := int64(0)
	if object != nil {
		var err error
		if at, err = object.revision(); err != nil {
			return err
		}
	}
	if at != revision {
		return &ConflictError{Key: key, Detail: fmt.Sprintf("it is at %s, not %s", revisionText(at), revisionText(revision))}
	}
	return nil
}
