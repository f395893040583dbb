// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"fmt"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
)

// TestCallsOfManyClaims: 500 claims at once are made, attached to machines, let go and deleted with at most 5 calls
// each, at DigitalOcean's limits of calls, and are gone within 6 minutes from when nobody needs them.
func TestCallsOfManyClaims(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const claims, perDroplet = 500, 13
		a := newAccount(t, taking(9*time.Second))
		var nodes []string
		for range (claims + perDroplet - 1) / perDroplet {
			nodes = append(nodes, a.droplet())
		}
		ids := make([]string, claims)
		all := func(what string, do func(i int) error) {
			t.Helper()
			began, before := time.Now(), a.calls()
			var wait sync.WaitGroup
			for i := range claims {
				wait.Go(func() {
					if err := againAsSidecars(func() error { return do(i) }); err != nil {
						t.Errorf("claim %d: %s: %v", i, what, err)
					}
				})
			}
			wait.Wait()
			t.Logf("%s: %s and %d calls", what, time.Since(began).Round(time.Second), a.calls()-before)
		}
		all("made", func(i int) error {
			v, err := a.create(fmt.Sprintf("pvc-%d", i), 1<<30, nil)
			ids[i] = v.GetVolumeId()
			return err
		})
		all("attached", func(i int) error { return a.attach(ids[i], nodes[i/perDroplet]) })
		nobody := time.Now()
		detached := make([]bool, claims)
		all("gone", func(i int) error {
			if !detached[i] {
				if err := a.detach(t.Context(), ids[i], nodes[i/perDroplet]); err != nil {
					return err
				}
				detached[i] = true
			}
			_, err := a.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: ids[i]})
			return err
		})
		if took := time.Since(nobody); took > 6*time.Minute {
			t.Errorf("all were gone after %s", took)
		}
		if left := a.sim.Account("").Volumes(); len(left) > 0 {
			t.Errorf("%d volumes are left", len(left))
		}
		if n := a.calls(); n > 5*claims {
			t.Errorf("%d calls for %d claims: %v", n, claims, a.sim.Stats().Routes)
		}
	})
}

// againAsSidecars does something until it succeeds, with the pauses of Kubernetes' sidecars.
func againAsSidecars(do func() error) error {
	const attempts, most = 12, 5 * time.Minute
	var err error
	for attempt, pause := 0, time.Second; attempt < attempts; attempt, pause = attempt+1, min(2*pause, most) {
		if err = do(); err == nil {
			return nil
		}
		<-time.After(pause)
	}
	return err
}
