// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
)

// StateName is the ConfigMap that outlives the process, in the namespace of the Lease. MUST NOT change: people write confirmations on it.
const StateName = "calico-node-sync-state"

// LeaseName is the Lease that replicas compete for. MUST NOT change: two versions with different Leases would both lead.
const LeaseName = "calico-node-sync.nodes.mooring.dev"

// memoryKey is where the memory stands in the ConfigMap.
const memoryKey = "memory.json"

// maxSavedAbsences bounds the ConfigMap, which may hold 1 MiB. Absences beyond it only have their grace period begin again after a restart.
const maxSavedAbsences = 2000

// State is what outlives the process: since when Nodes have been absent, and a person's confirmation.
type State interface {
	// Read returns the memory that was saved last, empty if none was, and the confirmation as it was written.
	Read(ctx context.Context) (memory nodesync.Memory, confirmation string, err error)
	// Save replaces the memory.
	Save(ctx context.Context, memory nodesync.Memory) error
}

// ConfigMapState is the State in Kubernetes.
type ConfigMapState struct {
	// Client must not be a cache.
	Client    client.Client
	Namespace string
	Name      string

	// version is the resourceVersion that was last read or written: a leader that has been succeeded without knowing must not overwrite what
	// its successor has saved.
	version string
}

// StateIn is what a controller keeps in a namespace, nil for "": nothing is kept then. The client must not be a cache.
func StateIn(live client.Client, namespace string) State {
	if namespace == "" {
		return nil
	}
	return &ConfigMapState{Client: live, Namespace: namespace, Name: StateName}
}

func (s *ConfigMapState) object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	object.SetNamespace(s.Namespace)
	object.SetName(s.Name)
	return object
}

// stored is the object as it is, or an empty one with an error.
func (s *ConfigMapState) stored(ctx context.Context) (*unstructured.Unstructured, error) {
	object := s.object()
	return object, s.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
}

// Read implements State. A memory that cannot be parsed is an error: forgetting it in silence would be safe, but nobody would know.
func (s *ConfigMapState) Read(ctx context.Context) (nodesync.Memory, string, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object := s.object()
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(object), object); client.IgnoreNotFound(err) != nil {
		return nodesync.Memory{}, "", err
	}
	s.version = object.GetResourceVersion() // empty if there is none
	text, _, _ := unstructured.NestedString(object.Object, "data", memoryKey)
	memory, err := parseMemory(text, s.Namespace, s.Name)
	if err != nil {
		return memory, "", err
	}
	return memory, object.GetAnnotations()[nodesync.ConfirmAnnotation], nil
}

func parseMemory(text, namespace, name string) (memory nodesync.Memory, err error) {
	if text == "" {
		return memory, nil
	}
	if err = json.Unmarshal([]byte(text), &memory); err != nil {
		return memory, fmt.Errorf("parsing %s of ConfigMap %s/%s: %w; delete the ConfigMap to start again", memoryKey, namespace, name, err)
	}
	return memory, nil
}

// Recorded is the memory and the confirmation that a ConfigMap of StateName holds, for commands that have read it themselves.
func Recorded(object *corev1.ConfigMap) (nodesync.Memory, string, error) {
	memory, err := parseMemory(object.Data[memoryKey], object.Namespace, object.Name)
	return memory, object.Annotations[nodesync.ConfirmAnnotation], err
}

// Save implements State. It writes its own key and nothing else, and fails if somebody else has written the ConfigMap since it was read.
func (s *ConfigMapState) Save(ctx context.Context, memory nodesync.Memory) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	memory.Absences = memory.Absences[:min(len(memory.Absences), maxSavedAbsences)]
	text, err := json.Marshal(memory)
	if err != nil {
		return err
	}
	object := s.object()
	if s.version != "" {
		if object, err = s.stored(ctx); err != nil {
			return err
		}
	}
	if err := unstructured.SetNestedField(object.Object, string(text), "data", memoryKey); err != nil {
		return err
	}
	if s.version == "" {
		err = s.Client.Create(ctx, object)
	} else {
		object.SetResourceVersion(s.version)
		err = s.Client.Update(ctx, object)
	}
	if err != nil {
		return err
	}
	s.version = object.GetResourceVersion()
	return nil
}
