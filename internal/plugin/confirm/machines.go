// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package confirm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/docloud/outofservice"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/annotate"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/waiting"
)

const machinesLong = `Confirm that the machines that digitalocean-cloud-controller-manager holds back are off, for exactly these machines and for a limited time. HASH is the one that
'kubectl mooring confirm' shows. If one of them comes back, or another one goes, another hash is needed.

digitalocean-cloud-controller-manager then sets the taint node.kubernetes.io/out-of-service on their Nodes, at its own pace and with its own checks: each droplet
is read two more times, and its kubelet must not renew its Lease. Kubernetes deletes their Pods and detaches their volumes.

Only one thing is written: the annotation ` + outofservice.ConfirmAnnotation + ` on the Lease ` + outofservice.RecordName + ` in
` + outofservice.RecordNamespace + `, and only if the object has not changed since it was read.`

const machinesExample = `  kubectl mooring confirm machines 91c04be7a2d3
  kubectl mooring confirm machines 91c04be7a2d3 --for 15m`

func newMachines(env *observe.Env) *cobra.Command {
	return byHash(&cobra.Command{
		Use: "machines HASH", Aliases: []string{"machine"}, Short: "Confirm that machines are off which digitalocean-cloud-controller-manager holds back",
		Long: machinesLong, Example: machinesExample,
	}, env, outofservice.LongestConfirmation, "How long the confirmation is valid: machines without the taint by then wait again.", confirmMachines)
}

// confirmMachines writes the confirmation of what waits under a hash, and returns what that does.
func confirmMachines(ctx context.Context, c *observe.Cluster, hash string, holds time.Duration) (text string, err error) {
	err = annotate.Confirming("Lease "+outofservice.RecordName, func() error {
		off, err := c.MachinesOff(ctx)
		if err != nil {
			return err
		}
		waits := off.Record.Awaiting
		switch {
		case waits.Hash == "":
			return errors.New("nothing of digitalocean-cloud-controller-manager waits for a confirmation")
		case waits.Hash != hash:
			return fmt.Errorf("%q is not the current one, which is %s, for %s: 'kubectl mooring confirm' lists them", hash, waits.Hash, prose.Plural(waits.Count, "machine"))
		}
		until := time.Now().Add(holds)
		patch, called := c.Typed.CoordinationV1().Leases(outofservice.RecordNamespace).Patch, "Lease "+outofservice.RecordNamespace+"/"+outofservice.RecordName
		if err := annotate.Set(ctx, patch, off.Lease, called, outofservice.ConfirmAnnotation, waits.Confirmation(until)); err != nil {
			return err
		}
		is := waiting.MachinesOff(off.Record, "", time.Now())
		text = fmt.Sprintf("Confirmed until %s: digitalocean-cloud-controller-manager puts %s out of service (%s).",
			until.UTC().Format(time.RFC3339), prose.Plural(waits.Count, "machine"), is.On)
		text += lastReport(is)
		return nil
	})
	return text, err
}
