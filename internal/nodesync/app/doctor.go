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
		Short: "Say what stands in the way of calico-node-sync here, and write nothing",
		Long: "doctor looks at the settings, the connections and certificates, Calico's ClusterInformation, what runs beside (Calico's kube-controllers, another " +
			"calico-node-sync, the old kube-calico-controller), names that cannot be told apart, where the two sides differ, and rights. It says of each what " +
			"is the case, why it matters and what to do, the worst first. What it may not read it says, and goes on.\n\n" +
			"Give it the settings of the controller: run it in its Pod, or with the same flags and variables. It writes nothing.\n\n" +
			screen.FindingExitCodes,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runDoctor(c.Context(), o, as, &output, c.OutOrStdout())
		},
	}
	o.addPlanFlags(examine.Flags())
	examine.Flags().StringVar(&as, "as", as,
		"Ask for the rights of this user, such as system:serviceaccount:mooring-system:calico-node-sync, which needs the right to impersonate it.")
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
