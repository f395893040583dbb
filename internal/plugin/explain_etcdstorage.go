// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/explain"
)

// etcdStorage explains an EtcdStorage.
func (e *explainCommand) etcdStorage(ctx context.Context, name string) (explain.Explanation, error) {
	c, err := e.env.cluster()
	if err != nil {
		return explain.Explanation{}, err
	}
	object, err := c.dynamic.Resource(storageResource()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err := c.dynamic.Resource(storageResource()).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
			return explain.Explanation{}, errors.New("the cluster has no kind EtcdStorage: install etcd-storage-operator first")
		}
		return explain.Explanation{}, fmt.Errorf("there is no EtcdStorage %q", name)
	case err != nil:
		return explain.Explanation{}, fmt.Errorf("reading EtcdStorage %s: %w", name, err)
	}
	evidence := explain.EtcdStorageEvidence{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &evidence.Storage); err != nil {
		return explain.Explanation{}, fmt.Errorf("decoding EtcdStorage %s: %w", name, err)
	}
	evidence.Events, evidence.EventsRead = c.eventsAbout(ctx, "EtcdStorage", metav1.NamespaceAll, name)
	evidence.Now = e.clock.Now()
	return explain.EtcdStorage(evidence), nil
}

// storageNames completes names; whatever goes wrong completes to nothing.
func storageNames(ctx context.Context, env *Env) []string {
	c, err := env.cluster()
	if err != nil {
		return nil
	}
	list, err := c.dynamic.Resource(storageResource()).List(ctx, metav1.ListOptions{Limit: listPage})
	if err != nil {
		return nil
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].GetName())
	}
	return names
}

func storageResource() schema.GroupVersionResource {
	return v1alpha1.GroupVersion.WithResource("etcdstorages")
}
