// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Exit codes of the doctor command, beside 0 for nothing worse than a note and 1 for an error. They MUST NOT change: scripts depend on them.
const (
	exitWarnings = 2
	exitProblems = 3
)

// newDoctorCommand returns the command that says what stands in the way of calico-node-sync.
func newDoctorCommand(o *options) *cobra.Command {
	output, as := outputText, ""
	examine := &cobra.Command{
		Use:   "doctor",
		Short: "Say what stands in the way of calico-node-sync here, and write nothing",
		Long: "doctor looks at the settings, the connections and certificates, Calico's ClusterInformation, what runs beside (Calico's kube-controllers, another " +
			"calico-node-sync, the old kube-calico-controller), names that cannot be told apart, where the two sides differ, and rights. It says of each what " +
			"is the case, why it matters and what to do, the worst first. What it may not read it says, and goes on.\n\n" +
			"Give it the settings of the controller: run it in its Pod, or with the same flags and variables. It writes nothing.\n\n" +
			"Exit codes: 0 nothing worse than a note, 1 an error, 2 warnings, 3 problems.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := validateOutput(output); err != nil {
				return err
			}
			return runDoctor(c.Context(), o, as, output, c.OutOrStdout())
		},
	}
	o.addPlanFlags(examine.Flags())
	examine.Flags().StringVar(&as, "as", as,
		"Ask for the rights of this user, such as system:serviceaccount:mooring-system:calico-node-sync, which needs the right to impersonate it.")
	examine.Flags().StringVarP(&output, "output", "o", output, "text or json")
	o.acceptControllerFlags(examine.Flags())
	return examine
}

func runDoctor(ctx context.Context, o *options, as, output string, out io.Writer) error {
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
	findings := doctor.Findings(evidence)
	if err := printFindings(out, output, findings); err != nil {
		return err
	}
	switch finding.Worst(findings) {
	case finding.Problem:
		return command.Exit(exitProblems, nil)
	case finding.Warning:
		return command.Exit(exitWarnings, nil)
	default:
		return nil
	}
}

func printFindings(out io.Writer, output string, findings []finding.Finding) error {
	text := finding.Text(findings)
	if output == outputJSON {
		data, err := json.MarshalIndent(struct {
			Worst    finding.Severity  `json:"worst"`
			Findings []finding.Finding `json:"findings"`
		}{finding.Worst(findings), findings}, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the findings: %w", err)
		}
		text = string(data) + "\n"
	}
	if _, err := io.WriteString(out, command.Printable(text)); err != nil {
		return fmt.Errorf("printing the findings: %w", err)
	}
	return nil
}
