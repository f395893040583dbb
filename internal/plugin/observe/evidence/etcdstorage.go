// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/explain"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/checks"
)

// EtcdStorage reads what there is of an EtcdStorage.
func EtcdStorage(ctx context.Context, c *observe.Cluster, now clock.PassiveClock, name string) (evidence explain.EtcdStorageEvidence, err error) {
	object, err := c.Dynamic.Resource(observe.EtcdStorages()).Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		if _, err := c.Dynamic.Resource(observe.EtcdStorages()).List(ctx, metav1.ListOptions{Limit: 1}); apierrors.IsNotFound(err) {
			return evidence, errors.New("the cluster has no kind EtcdStorage: install etcd-storage-operator first")
		}
		return evidence, fmt.Errorf("there is no EtcdStorage %q", name)
	case err != nil:
		return evidence, fmt.Errorf("reading EtcdStorage %s: %w", name, err)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &evidence.Storage); err != nil {
		return evidence, fmt.Errorf("decoding EtcdStorage %s: %w", name, err)
	}
	evidence.Events, evidence.EventsRead = eventsAbout(ctx, c, "EtcdStorage", metav1.NamespaceAll, name)
	evidence.Unkept = checks.Unkept(ctx, c, now, doctor.Storage)
	evidence.Now = c.ServerTime(now.Now())
	return evidence, nil
}

// StorageNames completes names.
func StorageNames(ctx context.Context, env *observe.Env) []string {
	return observe.Completing(ctx, env, func(ctx context.Context, c *observe.Cluster, _ string) (names []string, _ error) {
		all, _, _ := c.Storages(ctx)
		for i := range all {
			names = append(names, all[i].Name)
		}
		return names, nil
	})
}
