// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"io"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// doctorLong is what the command does in both programs.
const doctorLong = `Find what prevents calico-node-sync from working here. It checks connections and certificates, Calico's ClusterInformation, other controllers
(Calico's kube-controllers, another calico-node-sync, the old kube-calico-controller), ambiguous names, and differences between the two sides.
Each finding says what is wrong, why it matters and what to do, the worst first. What could not be read is a finding, too. Nothing is written.

`

// Doctor is what a doctor of calico-node-sync examines.
type Doctor struct {
	Source   Source
	Settings Settings
	// As is whose rights are checked, "" for those of the user who runs doctor.
	As string
	// ForPerson and Among are those of doctor.Evidence.
	ForPerson, Among bool
}

// NewDoctor returns what examines by the defaults.
func NewDoctor(source Source) *Doctor {
	return &Doctor{Source: source, Settings: NewSettings()}
}

// Command returns the command that says what stands in the way of calico-node-sync. where says in words where it reads.
func (d *Doctor) Command(where string) *cobra.Command {
	cmd := &cobra.Command{
		Use: "doctor", Short: "Find what prevents calico-node-sync from working here, and write nothing",
		Long: doctorLong + where + "\n\n" + screen.FindingExitCodes,
		Args: cobra.NoArgs,
	}
	d.Settings.AddFlags(cmd.Flags())
	return screen.Finds(cmd, func(cmd *cobra.Command) ([]finding.Finding, error) {
		if err := d.Settings.Validate(); err != nil {
			return nil, err
		}
		return d.Findings(cmd.Context())
	})
}

// Findings examines, and returns the findings, the worst first. What was cut short by the context has the findings about what was read until then, and its error;
// there is an error alone for a person whose settings name no cluster or datastore.
func (d *Doctor) Findings(ctx context.Context) ([]finding.Finding, error) {
	if d.ForPerson { // who gave wrong flags is told so
		_, cluster := d.Source.Cluster()
		_, datastore := d.Source.Datastore(ctx, d.Settings.Datastore)
		if err := cmp.Or(cluster, datastore); err != nil {
			return nil, err
		}
	}
	logrus.SetOutput(io.Discard) // libcalico-go's; what matters is in the findings
	x := &examination{Doctor: d, clock: clock.RealClock{}}
	evidence := x.gather(ctx)
	x.close()
	return doctor.Findings(evidence), context.Cause(ctx)
}
