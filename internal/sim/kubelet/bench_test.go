// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubelet_test

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// BenchmarkThousandMachines registers a thousand machines with a real API server and reports what they cost this process.
// It leaves nothing behind.
func BenchmarkThousandMachines(b *testing.B) {
	const machines = 1000
	client := controlplane.Shared(b).Client
	for b.Loop() {
		began := time.Now()
		fleet := kubelet.NewFleet(kubelet.Config{Client: client, Logger: logr.Discard()})
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan error)
		go func() { done <- fleet.Run(ctx) }()
		for i := range machines {
			address := netip.AddrFrom4([4]byte{10, 1, byte(i / 250), byte(i%250 + 1)})
			must.Do(b, fleet.Add(kubelet.Machine{Name: fmt.Sprintf("bench-%d", i), Address: address}))
		}
		testkit.Eventually(b, "a thousand Leases", func() string {
			list, err := client.CoordinationV1().Leases("kube-node-lease").List(ctx, metav1.ListOptions{})
			if err != nil {
				return err.Error()
			}
			if len(list.Items) < machines {
				return fmt.Sprintf("%d so far", len(list.Items))
			}
			return ""
		})
		b.ReportMetric(time.Since(began).Seconds(), "s/start")
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		b.ReportMetric(float64(memory.HeapAlloc)/(1<<20), "MB-heap")
		b.ReportMetric(float64(memory.Sys)/(1<<20), "MB-from-OS")
		b.ReportMetric(float64(runtime.NumGoroutine()), "goroutines")
		cancel()
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		all := context.WithoutCancel(b.Context())
		must.Do(b, client.CoreV1().Nodes().DeleteCollection(all, metav1.DeleteOptions{}, metav1.ListOptions{}))
		err := client.CoordinationV1().Leases("kube-node-lease").DeleteCollection(all, metav1.DeleteOptions{}, metav1.ListOptions{})
		must.Do(b, err)
	}
}
