// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

const confirmMachinesLong = `Confirm that the machines that digitalocean-cloud-controller-manager holds back are off, for exactly these machines and for a limited time. HASH is the one that
'kubectl mooring confirm' shows. If one of them comes back, or another one goes, another hash is needed.

digitalocean-cloud-controller-manager then sets the taint node.kubernetes.io/out-of-service on their Nodes, at its own pace and with its own checks: each droplet
is read two more times, and its kubelet must not renew its Lease. Kubernetes deletes their Pods and detaches their volumes.

Only one thing is written: the annotation ` + outofservice.ConfirmAnnotation + ` on the Lease ` + outofservice.RecordName + ` in
` + outofservice.RecordNamespace + `, and only if the object has not changed since it was read.`

const confirmMachinesExample = `  kubectl mooring confirm machines 91c04be7a2d3
  kubectl mooring confirm machines 91c04be7a2d3 --for 15m`

func newConfirmMachines(env *Env) *cobra.Command {
	holds := time.Hour
	cmd := &cobra.Command{
		Use: "machines HASH", Aliases: []string{"machine"}, Short: "Confirm that machines are off which digitalocean-cloud-controller-manager holds back",
		Long: confirmMachinesLong, Example: confirmMachinesExample, Args: exactly("HASH"),
		// The hash is not completed: it shows that anyone who confirms has looked.
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			if holds < shortestConfirmation || holds > outofservice.LongestConfirmation {
				return fmt.Errorf("--for is %s: it must be between %s and %s, 1h is the default", holds, shortestConfirmation, outofservice.LongestConfirmation)
			}
			c, err := env.cluster()
			if err != nil {
				return err
			}
			text, err := confirmMachines(cmd.Context(), c, args[0], holds, clock.RealClock{})
			if err == nil {
				columns, _ := terminal(out(cmd))
				fmt.Fprint(out(cmd), prose.Wrap("", "", text, columns))
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&holds, "for", holds, "How long the confirmation is valid: machines without the taint by then wait again.")
	return cmd
}

// machinesOff is what digitalocean-cloud-controller-manager has recorded of machines that are off. lease is nil if there is no record.
type machinesOff struct {
	lease        *coordinationv1.Lease
	record       outofservice.Record
	confirmation string
}

// machinesOff reads the record.
func (c *cluster) machinesOff(ctx context.Context) (machinesOff, error) {
	const name = outofservice.RecordNamespace + "/" + outofservice.RecordName
	lease, err := c.typed.CoordinationV1().Leases(outofservice.RecordNamespace).Get(ctx, outofservice.RecordName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return machinesOff{}, nil
	case err != nil:
		return machinesOff{}, fmt.Errorf("reading Lease %s: %w", name, err)
	}
	out := machinesOff{lease: lease}
	out.record, out.confirmation, err = outofservice.Recorded(lease)
	return out, err
}

// freshMachines is how long ago a component that runs has written the record at most while something waits: twice the time between two
// writes, and a little.
const freshMachines = 5 * time.Minute

// stale is why nothing may act on a confirmation, "" if something does.
func (m machinesOff) stale(now time.Time) string {
	if now.Sub(m.record.SavedAt) <= freshMachines {
		return ""
	}
	return "it has not written its record since; a confirmation has an effect only if it runs"
}

// machinesAwaiting is what waits there. Its JSON form is a contract with programs.
type machinesAwaiting struct {
	outofservice.Awaiting
	// SavedAt is when the component has said so last.
	SavedAt time.Time `json:"savedAt"`
	// ConfirmedUntil is until when a confirmation holds that the component has yet to act on; Refused is why one that somebody has given does not.
	ConfirmedUntil time.Time `json:"confirmedUntil,omitzero"`
	Refused        string    `json:"refused,omitempty"`
	Command        string    `json:"command"`
	old            string
}

func (m machinesOff) awaiting(now time.Time) machinesAwaiting {
	waits := m.record.Awaiting
	out := machinesAwaiting{Awaiting: waits, SavedAt: m.record.SavedAt, Command: "kubectl mooring confirm machines " + waits.Hash, old: m.stale(now)}
	if m.confirmation == "" {
		return out
	}
	until, refused := waits.ConfirmedBy(m.confirmation, now)
	if out.Refused = refused; refused == "" {
		out.ConfirmedUntil = until
	}
	return out
}

// head is what waits, in a line.
func (m machinesAwaiting) head() string {
	verb := "are"
	if m.Count == 1 {
		verb = "is"
	}
	return fmt.Sprintf("%s %s off and held back by the gate mass-guard of digitalocean-cloud-controller-manager", prose.Plural(m.Count, "machine"), verb)
}

func (m machinesAwaiting) text(now time.Time, columns int) string {
	reported := fmt.Sprintf("%s ago by digitalocean-cloud-controller-manager", prose.Span(now.Sub(m.SavedAt)))
	if m.old != "" {
		reported += ": " + m.old
	}
	text := prose.Wrap("", "", m.head(), columns) +
		field("machines", firstMachines(m.Awaiting), columns) + field("why", m.Why, columns) + field("reported", reported, columns)
	if !m.ConfirmedUntil.IsZero() {
		return text + field("confirmed", fmt.Sprintf("until %s; digitalocean-cloud-controller-manager has yet to act on it", m.ConfirmedUntil.UTC().Format(time.RFC3339)), columns)
	}
	if m.Refused != "" {
		text += field("not valid", m.Refused, columns)
	}
	return text + field("to confirm", m.Command, columns) + field("then",
		"their Nodes, and no others, get the taint node.kubernetes.io/out-of-service: their Pods are deleted and their volumes detached. Confirm it only if they do not run", columns)
}

// firstMachines are machines by name, and how many more there are.
func firstMachines(a outofservice.Awaiting) string {
	text := strings.Join(a.Machines, ", ")
	if more := a.Count - len(a.Machines); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// confirmMachines writes the confirmation of what waits under a hash, and returns what that does.
func confirmMachines(ctx context.Context, c *cluster, hash string, holds time.Duration, now clock.PassiveClock) (text string, err error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTime)
	defer cancel()
	err = confirming("Lease "+outofservice.RecordName, func() error {
		off, err := c.machinesOff(ctx)
		if err != nil {
			return err
		}
		waits := off.record.Awaiting
		switch {
		case waits.Hash == "":
			return errors.New("nothing of digitalocean-cloud-controller-manager waits for a confirmation")
		case waits.Hash != hash:
			return fmt.Errorf("%q is not the current one, which is %s, for %s: 'kubectl mooring confirm' lists them", hash, waits.Hash, prose.Plural(waits.Count, "machine"))
		}
		until := now.Now().Add(holds)
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
			"uid": off.lease.UID, "resourceVersion": off.lease.ResourceVersion, "annotations": map[string]string{outofservice.ConfirmAnnotation: waits.Confirmation(until)},
		}})
		if err != nil {
			return err
		}
		_, err = c.typed.CoordinationV1().Leases(outofservice.RecordNamespace).Patch(ctx, outofservice.RecordName, types.MergePatchType, patch, metav1.PatchOptions{})
		if apierrors.IsConflict(err) {
			return err
		}
		if err != nil {
			return fmt.Errorf("annotating Lease %s/%s: %w", outofservice.RecordNamespace, outofservice.RecordName, err)
		}
		text = command.Printable(fmt.Sprintf("Confirmed until %s: digitalocean-cloud-controller-manager puts %s out of service (%s).",
			until.UTC().Format(time.RFC3339), prose.Plural(waits.Count, "machine"), firstMachines(waits)))
		if old := off.stale(now.Now()); old != "" {
			text += fmt.Sprintf(" It last reported %s ago: %s.", prose.Span(now.Now().Sub(off.record.SavedAt)), old)
		}
		return nil
	})
	return text, err
}
