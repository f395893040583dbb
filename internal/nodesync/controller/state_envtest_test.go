// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What a process has saved the next one reads, with the confirmation of a person, which no save takes away. A process that has been succeeded without
// knowing overwrites nothing.
func TestStateInAConfigMap(t *testing.T) {
	t.Parallel()
	api := cluster.Shared(t)
	live := must.Get(client.New(api.Config, client.Options{Scheme: runtime.NewScheme()})).Or(t)
	namespace := newNamespace(t, api.Client)
	process := func() *ConfigMapState {
		return &ConfigMapState{Client: live, Namespace: namespace, Name: StateName}
	}
	first := process()
	if memory, confirmation, err := first.Read(t.Context()); err != nil || confirmation != "" || !cmp.Equal(memory, nodesync.Memory{}) {
		t.Errorf("before anything is saved: %+v, %q, %v", memory, confirmation, err)
	}
	memory := nodesync.Memory{
		SavedAt: time.Unix(1000, 0).UTC(), Absences: []nodesync.Absence{{CalicoNode: "a", KubernetesNode: "k", Since: time.Unix(900, 0).UTC(), Witnessed: true}},
	}
	for range 2 { // it is made, then changed
		must.Do(t, first.Save(t.Context(), memory))
	}
	patch := []byte(`{"metadata":{"annotations":{"` + nodesync.ConfirmAnnotation + `":"a person's"}}}`)
	maps := api.Client.CoreV1().ConfigMaps(namespace)
	must.Get(maps.Patch(t.Context(), StateName, types.MergePatchType, patch, metav1.PatchOptions{})).Or(t)
	if err := first.Save(t.Context(), nodesync.Memory{}); !apierrors.IsConflict(err) {
		t.Errorf("over what was written since: got %v, want a conflict", err)
	}
	if err := first.Answer(t.Context(), "a request that is another by now", Answer{}); !errors.Is(err, errWithdrawn) {
		t.Errorf("an answer to a request that is none: %v", err)
	}
	next := process()
	for range 2 { // the confirmation stands after a save
		got, confirmation, err := next.Read(t.Context())
		if diff := cmp.Diff(memory, got); diff != "" || confirmation != "a person's" || err != nil {
			t.Errorf("the next process reads the confirmation %q, %v, and another memory: %s", confirmation, err, diff)
		}
		if err := next.Save(t.Context(), memory); err != nil {
			t.Error(err)
		}
	}
}
