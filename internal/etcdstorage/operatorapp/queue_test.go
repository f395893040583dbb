// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operatorapp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/mooring-dev/mooring/internal/etcdstorage/controller"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// collecting is a manager that keeps what it is to run, and whose cache has nothing.
type collecting struct {
	manager.Manager

	runs []manager.Runnable
}

func (m *collecting) Add(r manager.Runnable) error {
	m.runs = append(m.runs, r)
	return nil
}

func (m *collecting) GetCache() cache.Cache { return empty{} }

type empty struct{ cache.Cache }

func (empty) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return nil, errors.New("there is none")
}

// The queue of the rounds has the metrics workqueue_* from when the manager runs it.
func TestTheQueueIsCounted(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	m := &collecting{}
	must.Do(t, controller.New(controller.Options{Clock: clock.RealClock{}}).SetupWithManager(m))
	must.Do(t, m.runs[0].Start(ended))
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil || !slices.ContainsFunc(families, func(f *dto.MetricFamily) bool {
		return f.GetName() == "workqueue_depth" && strings.Contains(fmt.Sprint(f), "etcdstorage")
	}) {
		t.Errorf("there is no workqueue_depth of the queue: %v", err)
	}
}
