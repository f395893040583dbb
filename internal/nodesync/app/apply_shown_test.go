// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// fence marks the Calico Node of a machine as a clean-up does that was cut short.
func (s *scene) fence(e *errand, machine string) {
	s.t.Helper()
	snapshot := must.Get(e.store.Snapshot(s.t.Context())).Or(s.t)
	for _, n := range snapshot.Nodes {
		if n.Name == s.name(machine) {
			must.Get(e.store.AnnotateNode(s.t.Context(), n.Name, n.Revision, nodesync.FenceAnnotation, n.Name)).Or(s.t)
		}
	}
}

// Anyone who agrees that the fence is withdrawn from a machine that lives has not agreed to its removal, should it go missing right then.
func TestApplyRemovesNothingOfAMachineThatItShowedAlive(t *testing.T) {
	t.Parallel()
	s := newScene(t, "apply-text", 4)
	e, out := s.errand()
	s.fence(e, "1")
	s.fence(e, "2")
	before := s.left("1")
	must.Do(t, e.run(t.Context(), func(_ context.Context, _ *account, plan nodesync.Plan) error {
		if text := plan.String(); strings.Count(text, "withdraw the fence") != 2 {
			t.Errorf("shown: %s", text)
		}
		s.leave("1")
		return nil
	}))
	if left := s.left("1"); len(left) != len(before) {
		t.Errorf("of the machine that was shown alive %v are left of %v:\n%s", left, before, out)
	}
	fenced := func(value string) bool {
		return strings.Contains(value, nodesync.FenceAnnotation) && strings.Contains(value, s.name("2"))
	}
	for key, value := range s.etcd.Dump(t) {
		if fenced(value) {
			t.Errorf("%s of the machine that lives is still fenced: %s", key, out)
		}
	}
	if !slices.ContainsFunc(e.leftAlone(), func(r nodesync.Refusal) bool { return r.Of.Host == s.name("1") }) {
		t.Errorf("the machine that went is not told of: %v", e.leftAlone())
	}
}
