// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// newDoctorCommand returns the command that says what stands in the way of calico-node-sync.
func newDoctorCommand(o *options) *cobra.Command {
	output, as := screen.NewFormat(screen.Text, screen.FormatJSON, screen.FormatYAML), ""
	examine := &cobra.Command{
		Use:   "doctor",
		Short: "Find what prevents calico-node-sync from working here, and write nothing",
		Long: "doctor checks the settings, the connections and certificates, Calico's ClusterInformation, other controllers (Calico's kube-controllers, another calico-node-sync, the " +
			"old kube-calico-controller), ambiguous names, differences between the two sides, and rights. Each finding says what is wrong, why it matters and what " +
			"to do, the worst first. What it may not read is a finding, too.\n\n" +
			"It needs the settings of the controller: run it in the controller's Pod, or with the same flags and variables. It writes nothing.\n\n" +
			screen.FindingExitCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runDoctor(c.Context(), o, as, &output, c.OutOrStdout())
		},
	}
	o.addPlanFlags(examine.Flags())
	examine.Flags().StringVar(&as, "as", as,
		"Check the rights of this user, such as system:serviceaccount:mooring-system:calico-node-sync. It needs the right to impersonate that user.")
	output.AddTo(examine)
	o.acceptControllerFlags(examine.Flags())
	return examine
}

func runDoctor(ctx context.Context, o *options, as string, output *screen.Format, out io.Writer) error {
	if err := o.validate(); err != nil {
		return err
	}
	logrus.SetOutput(io.Discard) // libcalico-go's; what matters is in the findings
	x := &examination{options: o, as: as, clock: clock.RealClock{}}
	evidence := x.gather(ctx)
	x.close()
	if ctx.Err() != nil {
		return context.Cause(ctx) // what was cut short says nothing
	}
	return screen.Findings(doctor.Findings(evidence), output, out)
}
