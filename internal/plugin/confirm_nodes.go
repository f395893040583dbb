// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

const confirmNodesLong = `Confirm that the machines that calico-node-sync holds back are gone, for exactly these machines and for a limited time. HASH is the one that 'kubectl mooring confirm'
shows: it stands for these machines and the times since which they are absent. If one of them comes back, or another one goes, another hash is needed.

calico-node-sync then removes their leftovers from Calico's datastore, at its own pace and with its own checks: each machine's Kubernetes Node is read
again before each write. It notices the confirmation within seconds.

Only one thing is written: the annotation ` + nodesync.ConfirmAnnotation + ` on the ConfigMap calico-node-sync-state, and only if the object has not changed since it was read.`

const confirmNodesExample = `  kubectl mooring confirm nodes 3f2a9c01d4be
  kubectl mooring confirm nodes 3f2a9c01d4be --for 4h`

// shortestConfirmation is the least that --for may be: clocks differ, and the controller needs a moment.
const shortestConfirmation = time.Minute

func newConfirmNodes(env *Env) *cobra.Command {
	holds := time.Hour
	cmd := &cobra.Command{
		Use: "nodes HASH", Aliases: []string{"node", "no"}, Short: "Confirm that machines are gone which calico-node-sync holds back",
		Long: confirmNodesLong, Example: confirmNodesExample, Args: exactly("HASH"),
		// The hash is not completed: it shows that anyone who confirms has looked.
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if holds < shortestConfirmation || holds > nodesync.LongestConfirmation {
				return fmt.Errorf("--for is %s: it must be between %s and %s, 1h is the default", holds, shortestConfirmation, nodesync.LongestConfirmation)
			}
			c, err := env.cluster()
			if err != nil {
				return err
			}
			text, err := confirmNodes(cmd.Context(), c, args[0], holds, clock.RealClock{})
			if err == nil {
				columns, _ := terminal(out(cmd))
				fmt.Fprint(out(cmd), prose.Wrap("", "", text, columns))
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&holds, "for", holds, "How long the confirmation is valid: what is not removed by then waits again.")
	return cmd
}

// nodeState is what a calico-node-sync has saved in one of Mooring's namespaces.
type nodeState struct {
	namespace    string
	uid          types.UID
	version      string
	confirmation string
	waits        nodesync.Awaiting
	savedAt      time.Time
}

// nodeStates reads what each calico-node-sync has saved in Mooring's namespaces. A ConfigMap of that name elsewhere is anybody's (ADR 16).
func (c *cluster) nodeStates(ctx context.Context) (states []nodeState, unread []string) {
	for _, namespace := range c.namespaces {
		object, err := c.typed.CoreV1().ConfigMaps(namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			unread = append(unread, sideOf(fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, nodesynccontroller.StateName, err)).Problem)
			continue
		}
		memory, confirmation, err := nodesynccontroller.Recorded(object)
		if err != nil {
			unread = append(unread, err.Error())
			continue
		}
		// What is left of machines that are gone and what pods have left on existing machines wait each by themselves.
		for _, waits := range []nodesync.Awaiting{memory.Awaiting, memory.AwaitingLeftovers} {
			states = append(states, nodeState{
				namespace: namespace, uid: object.UID, version: object.ResourceVersion, confirmation: confirmation, waits: waits, savedAt: memory.SavedAt,
			})
		}
	}
	return states, unread
}

// nodesAwaiting is what one calico-node-sync holds back.
type nodesAwaiting struct {
	Namespace string `json:"namespace"`
	nodesync.Awaiting
	// SavedAt is when calico-node-sync has said so last.
	SavedAt time.Time `json:"savedAt"`
	// ConfirmedUntil is until when a confirmation holds that calico-node-sync has yet to act on; Refused is why one that somebody has given does not.
	ConfirmedUntil time.Time `json:"confirmedUntil,omitzero"`
	Refused        string    `json:"refused,omitempty"`
	Command        string    `json:"command"`
}

func (s nodeState) awaiting(now time.Time) nodesAwaiting {
	out := nodesAwaiting{Namespace: s.namespace, Awaiting: s.waits, SavedAt: s.savedAt, Command: "kubectl mooring confirm nodes " + s.waits.Hash}
	if s.confirmation == "" {
		return out
	}
	until, refused := s.waits.ConfirmedBy(s.confirmation, now)
	if out.Refused = refused; refused == "" {
		out.ConfirmedUntil = until
	}
	return out
}

// stale reports that a state is so old that a calico-node-sync which runs would have saved another, "" if it is not.
func stale(savedAt, now time.Time) string {
	if now.Sub(savedAt) <= freshState {
		return ""
	}
	return "it has not saved its state since; a confirmation has an effect only if it runs"
}

func (n nodesAwaiting) text(now time.Time, columns int) string {
	verb := "are"
	if n.Count == 1 {
		verb = "is"
	}
	reported := fmt.Sprintf("%s ago by calico-node-sync in namespace %s", prose.Span(now.Sub(n.SavedAt)), n.Namespace)
	if old := stale(n.SavedAt, now); old != "" {
		reported += ": " + old
	}
	text := prose.Wrap("", "", fmt.Sprintf("%s %s held back by the gate %s of calico-node-sync", awaited(n.Awaiting), verb, n.Gate), columns) +
		field(awaitedNoun(n.Awaiting)+"s", firstNames(n.Awaiting), columns) + field("why", n.Why, columns) + field("reported", reported, columns)
	if !n.ConfirmedUntil.IsZero() {
		return text + field("confirmed", fmt.Sprintf("until %s; calico-node-sync has yet to act on it", n.ConfirmedUntil.UTC().Format(time.RFC3339)), columns)
	}
	if n.Refused != "" {
		text += field("not valid", n.Refused, columns)
	}
	if len(n.Items) > 0 {
		return text + field("to confirm", n.Command, columns) + field("then", "these addresses and endpoints, and no others, are removed from Calico's datastore, each "+
			"if a live read still finds no such pod. Confirm it only if the pods are gone, and this is the right cluster", columns)
	}
	return text + field("to confirm", n.Command, columns) + field("then",
		"what is left of these machines, and of no others, is removed from Calico's datastore: their Calico Nodes, addresses, block affinities and endpoints. "+
			"Confirm it only if they are gone for good and this is the right cluster; kubectl mooring plan nodes shows what would go", columns)
}

// awaitedNoun is what waits: machines that are gone, or leftovers of pods.
func awaitedNoun(a nodesync.Awaiting) string {
	if len(a.Items) > 0 {
		return "leftover"
	}
	return "machine"
}

func awaited(a nodesync.Awaiting) string { return prose.Plural(a.Count, awaitedNoun(a)) }

// confirmNodes writes the confirmation of what waits under a hash, and returns what that does.
func confirmNodes(ctx context.Context, c *cluster, hash string, holds time.Duration, now clock.PassiveClock) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	err = confirming("ConfigMap "+nodesynccontroller.StateName, func() error {
		state, err := c.stateOf(ctx, hash)
		if err != nil {
			return err
		}
		until := now.Now().Add(holds)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": state.uid, "resourceVersion": state.version, "annotations": map[string]string{nodesync.ConfirmAnnotation: state.waits.Confirmation(until)},
		}})
		if err != nil {
			return err
		}
		_, err = c.typed.CoreV1().ConfigMaps(state.namespace).Patch(ctx, nodesynccontroller.StateName, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			return fmt.Errorf("annotating ConfigMap %s/%s: %w", state.namespace, nodesynccontroller.StateName, err)
		}
		text = command.Printable(fmt.Sprintf("Confirmed until %s: calico-node-sync removes what is left of %s (%s).",
			until.UTC().Format(time.RFC3339), prose.Plural(state.waits.Count, "machine"), firstNames(state.waits)))
		if len(state.waits.Items) > 0 {
			text = command.Printable(fmt.Sprintf("Confirmed until %s: calico-node-sync removes %s of pods that are gone (%s).",
				until.UTC().Format(time.RFC3339), awaited(state.waits), firstNames(state.waits)))
		}
		if old := stale(state.savedAt, now.Now()); old != "" {
			text += fmt.Sprintf(" It last reported %s ago: %s.", prose.Span(now.Now().Sub(state.savedAt)), old)
		}
		return nil
	})
	return text, err
}

// stateOf is the state in which just this hash waits, the latest if there are two, or one sentence about what waits instead.
func (c *cluster) stateOf(ctx context.Context, hash string) (nodeState, error) {
	states, unread := c.nodeStates(ctx)
	slices.SortStableFunc(states, func(a, b nodeState) int { return b.savedAt.Compare(a.savedAt) })
	var others []string
	for _, s := range states {
		if s.waits.Hash == hash && hash != "" {
			return s, nil
		}
		if s.waits.Hash != "" {
			others = append(others, fmt.Sprintf("%s, for %s", s.waits.Hash, awaited(s.waits)))
		}
	}
	switch {
	case len(others) > 0:
		return nodeState{}, fmt.Errorf("%q is not the current one, which is %s: 'kubectl mooring confirm' lists them", hash, strings.Join(others, "; "))
	case len(unread) > 0:
		return nodeState{}, errors.New(strings.Join(unread, "; "))
	}
	return nodeState{}, fmt.Errorf("nothing of calico-node-sync waits for a confirmation in the namespaces %s (--mooring-namespace)", strings.Join(c.namespaces, ", "))
}
