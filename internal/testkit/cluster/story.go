// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// A Story is what a program makes of a world, whatever becomes of the program on the way. W is what the parts of the story share: clients,
// simulators, names.
type Story[W any] struct {
	// Serves are the kinds that are not built in; nil for none.
	Serves func(testing.TB) []*apiextensionsv1.CustomResourceDefinition
	// World makes the cluster what it is before.
	World func(*testing.T, *Cluster) W
	// Run runs the program until it has nothing more to do, or has died, and stops it.
	Run func(*testing.T, W, *Program)
	// Check judges the world after. It must hold whether the program died on the way or not.
	Check func(*testing.T, W)
	// LeastWrites is how many writes the program makes at least: with fewer, the deaths show nothing.
	LeastWrites int
}

// Tell runs the story on a real API server, and on simulated ones with each death; in CI and at night with each death on real ones as well.
func (s Story[W]) Tell(t *testing.T) {
	t.Helper()
	t.Run("simulated", func(t *testing.T) {
		t.Parallel()
		s.everyDeath(t, New)
	})
	t.Run("real", func(t *testing.T) {
		t.Parallel()
		if cases.Number(t, 0, 1, 1) == 1 {
			s.everyDeath(t, Real)
			return
		}
		s.with(t, Real, Death{})
	})
}

type maker func(testing.TB, ...*apiextensionsv1.CustomResourceDefinition) *Cluster

// everyDeath runs the story without a death, and then with one before and after each write, until there is no such write.
func (s Story[W]) everyDeath(t *testing.T, makes maker) {
	t.Helper()
	t.Run("without a death", func(t *testing.T) { s.with(t, makes, Death{}) })
	writes := 0
	for died := true; died; {
		writes++
		for _, after := range []bool{false, true} {
			death := Death{Write: writes, After: after}
			t.Run(death.String(), func(t *testing.T) { died = s.with(t, makes, death) })
			if t.Failed() {
				return
			}
		}
	}
	if writes <= s.LeastWrites {
		t.Errorf("the program makes %d writes, want at least %d", writes-1, s.LeastWrites)
	}
}

// with runs the story with one death, and reports whether it came.
func (s Story[W]) with(t *testing.T, makes maker, death Death) (died bool) {
	t.Helper()
	var crds []*apiextensionsv1.CustomResourceDefinition
	if s.Serves != nil {
		crds = s.Serves(t)
	}
	c := makes(t, crds...)
	w := s.World(t, c)
	p := c.Program(t, death)
	s.Run(t, w, p)
	if died = p.Died(); died {
		s.Run(t, w, c.Program(t, Death{}))
	}
	s.Check(t, w)
	return died
}
