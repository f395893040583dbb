// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/plugin/annotate"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/waiting"
)

const nodesLong = `Confirm that the machines that calico-node-sync holds back are gone, for exactly these machines and for a limited time. HASH is the one that 'kubectl mooring confirm'
shows: it stands for these machines and the times since which they are absent. If one of them comes back, or another one goes, another hash is needed.

calico-node-sync then removes their leftovers from Calico's datastore, at its own pace and with its own checks: each machine's Kubernetes Node is read
again before each write. It notices the confirmation within seconds.

Only one thing is written: the annotation ` + nodesync.ConfirmAnnotation + ` on the ConfigMap calico-node-sync-state, and only if the object has not changed since it was read.`

const nodesExample = `  kubectl mooring confirm nodes 3f2a9c01d4be
  kubectl mooring confirm nodes 3f2a9c01d4be --for 4h`

func newNodes(env *observe.Env) *cobra.Command {
	return byHash(&cobra.Command{
		Use: "nodes HASH", Aliases: []string{"node", "no"}, Short: "Confirm that machines are gone which calico-node-sync holds back",
		Long: nodesLong, Example: nodesExample,
	}, env, nodesync.LongestConfirmation, "How long the confirmation is valid: what is not removed by then waits again.", confirmNodes)
}

// confirmNodes writes the confirmation of what waits under a hash, and returns what that does.
func confirmNodes(ctx context.Context, c *observe.Cluster, hash string, holds time.Duration) (text string, err error) {
	err = annotate.Confirming("ConfigMap "+nodesynccontroller.StateName, func() error {
		state, err := stateOf(ctx, c, hash)
		if err != nil {
			return err
		}
		until := time.Now().Add(holds)
		patch, called := c.Typed.CoreV1().ConfigMaps(state.Object.Namespace).Patch, "ConfigMap "+state.Object.Namespace+"/"+nodesynccontroller.StateName
		if err := annotate.Set(ctx, patch, state.Object, called, nodesync.ConfirmAnnotation, state.Waits.Confirmation(until)); err != nil {
			return err
		}
		waits := state.Awaiting(time.Now())
		what := "what is left of " + waiting.Counted(state.Waits)
		if len(state.Waits.Items) > 0 {
			what = waiting.Counted(state.Waits) + " of pods that are gone"
		}
		text = fmt.Sprintf("Confirmed until %s: calico-node-sync removes %s (%s).", until.UTC().Format(time.RFC3339), what, waits.On)
		text += lastReport(waits)
		return nil
	})
	return text, err
}

// stateOf is the state in which just this hash waits, the latest if there are two, or one sentence about what waits instead.
func stateOf(ctx context.Context, c *observe.Cluster, hash string) (observe.NodeState, error) {
	states, unread := c.NodeStates(ctx)
	slices.SortStableFunc(states, func(a, b observe.NodeState) int { return b.SavedAt.Compare(a.SavedAt) })
	var others []string
	for _, s := range states {
		if s.Waits.Hash == hash && hash != "" {
			return s, nil
		}
		if s.Waits.Hash != "" {
			others = append(others, fmt.Sprintf("%s, for %s", s.Waits.Hash, waiting.Counted(s.Waits)))
		}
	}
	switch {
	case len(others) > 0:
		return observe.NodeState{}, fmt.Errorf("%q is not the current one, which is %s: 'kubectl mooring confirm' lists them", hash, strings.Join(others, "; "))
	case len(unread) > 0:
		return observe.NodeState{}, errors.New(strings.Join(unread, "; "))
	}
	return observe.NodeState{}, fmt.Errorf("nothing of calico-node-sync waits for a confirmation in the namespaces %s (--mooring-namespace)", strings.Join(c.Namespaces, ", "))
}
