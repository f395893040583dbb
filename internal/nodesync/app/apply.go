// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

// errNoTerminal refuses an apply that nobody could say yes to.
var errNoTerminal = errors.New("apply asks for confirmation before it writes, and standard input is not a terminal: pass --yes, or use the plan command first")

// nothingKept reports that what apply removes cannot be put back.
const nothingKept = "nothing is saved for the restore command, because no journal is configured"

// errDeclined ends an apply that a person did not want after all. Nothing has been written then.
var errDeclined = errors.New("declined, nothing was written")

// namedLong says what names on the command line mean.
const namedLong = "With NODE, the name of a Calico Node, it is about that machine only. Naming a machine replaces the grace period and the confirmation of the mass guard. " +
	"The old name of a machine that has joined again under another name is removed although the names are similar, if each Kubernetes Node with such a " +
	"name has a Calico Node of its own. A second Calico Node of a Kubernetes Node is removed if the NODENAME of a running calico-node pod, or a report of Felix, shows that " +
	"the machine uses another one. A machine that still speaks in Calico's datastore is left alone, and what speaks is printed: --ignore-signs-of-life confirms that it is gone. " +
	"All other gates apply: an existing Kubernetes Node, a running pod, a missing response or the keep annotation forbid it."

// unknown refuses names under which there is nothing.
func unknown(plan nodesync.Plan, named []string) error {
	if names := plan.Unknown(named); len(names) > 0 {
		return fmt.Errorf("nothing is held under the name %s in Calico's datastore: a NODE must be the name of a Calico Node, as `calicoctl get nodes` lists it",
			strings.Join(names, ", "))
	}
	return nil
}

// applyCommand is one run of apply.
type applyCommand struct {
	options *options
	output  screen.Format
	// confirm is the hash of --confirm.
	confirm string
	yes     bool
	// repair reports that IPAM's data is repaired, and nothing else is done.
	repair bool
	// in is where the answer comes from, if terminal says that somebody is there.
	in       io.Reader
	terminal bool
	// out gets the account, errs the question and warnings.
	out, errs io.Writer
	clock     clock.WithTicker
}

// newApplyCommand returns the command that does once, in the foreground, what the controller does all the time.
func newApplyCommand(o *options) *cobra.Command {
	a := &applyCommand{options: o, output: screen.NewFormat(screen.Text, screen.FormatJSON), clock: clock.RealClock{}}
	apply := &cobra.Command{
		Use:   "apply [NODE...]",
		Short: "Do once what the controller does continuously, and report what was done",
		Long: "apply waits until the grace periods are over, shows what would be removed, asks for confirmation, and removes it as the controller does: with the " +
			"same gates, the same pace and the same transactions. It changes no machine that it has not shown. It waits up to two minutes for " +
			"machines whose state may change by itself (pods that still run there, a live read without a response). The rest is left alone, and the reason " +
			"is printed.\n\nWithout a namespace it stores no state: grace periods begin when it starts, and --confirm confirms what the mass guard holds back. " +
			"With --leader-election-namespace, or in a Pod, it uses the controller's state there, including confirmations, and takes its Lease, so that " +
			"it refuses to run alongside a controller.\n\n" +
			namedLong + " apply then asks about these machines only.\n\n" +
			"Exit codes: 0 everything is done or there was nothing to do; 2 something is held back; 1 an error, or it was declined; 130 and 143 if a signal stopped " +
			"it, between two writes. -o json prints one document a line.",
		Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, names []string) error {
			for _, name := range names {
				o.settings.Config.Named = append(o.settings.Config.Named, strings.TrimSpace(name))
			}
			a.in, a.out, a.errs = c.InOrStdin(), c.OutOrStdout(), c.ErrOrStderr()
			a.terminal = isTerminal(a.in)
			if err := a.validate(); err != nil {
				return err
			}
			switch {
			case a.repair:
				return a.runRepair(c.Context())
			case o.dryRun:
				return a.show(c)
			}
			return a.run(c.Context())
		},
	}
	o.addSourceFlags(apply.Flags())
	o.settings.AddFlags(apply.Flags())
	o.addApplyFlags(apply.Flags())
	apply.Flags().StringVar(&a.confirm, "confirm", a.confirm,
		"Hash that plan or apply prints; it confirms exactly these nodes to the mass guard.")
	apply.Flags().BoolVar(&o.settings.Config.IgnoreSigns, "ignore-signs-of-life", o.settings.Config.IgnoreSigns,
		"Confirm that each NODE is gone, or a stale Calico Node, although something in Calico's datastore speaks for it.")
	apply.Flags().BoolVar(&a.repair, "repair", a.repair,
		"Repair instead the disagreements in the data of Calico's IPAM that a program can repair (see doctor ipam), after they remained the same for --grace-period.")
	apply.Flags().BoolVarP(&a.yes, "yes", "y", a.yes, "Do not ask.")
	a.output.AddTo(apply)
	return apply
}

func isTerminal(in io.Reader) bool {
	file, ok := in.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// hash is the form of what the planner calls a hash.
var hash = regexp.MustCompile(`^[0-9a-f]{12}$`)

// validate refuses what can be known to be wrong before anything is read.
func (a *applyCommand) validate() error {
	switch {
	case a.confirm != "" && !hash.MatchString(a.confirm):
		return fmt.Errorf("--confirm %q is not a hash: it must be the 12 letters and digits that plan prints", a.confirm)
	case slices.ContainsFunc(a.options.settings.Config.Named, func(name string) bool { return name == "" }):
		return errors.New("a NODE is empty: it must be the name of a Calico Node, as `calicoctl get nodes` lists it")
	case a.options.settings.Config.IgnoreSigns && len(a.options.settings.Config.Named) == 0:
		return errors.New("--ignore-signs-of-life confirms what is named: name each NODE that is gone")
	case a.repair && (len(a.options.settings.Config.Named) > 0 || a.confirm != ""):
		return errors.New("--repair is about all of IPAM's data: it takes neither a NODE nor --confirm")
	case !a.yes && !a.terminal && !a.options.dryRun:
		return errNoTerminal
	}
	return a.options.validate()
}

// show prints what would be removed now, with the confirmation that was given, and writes nothing. It asks no controller for one: a hash that it prints is
// one that apply takes.
func (a *applyCommand) show(c *cobra.Command) error {
	sides, err := commands.Open(c.Context(), a.options, a.options.settings.Datastore)
	if err != nil {
		return err
	}
	defer func() { _ = sides.Store.Close() }()
	e := &errand{
		config: a.options.settings.Config, store: sides.Store, cluster: sides.Cluster, clock: a.clock,
		notes: &notebook{kept: sides.State, confirmation: a.confirm, clock: a.clock},
	}
	plan, err := e.reconciler().Preview(c.Context())
	if err == nil {
		err = unknown(plan, a.options.settings.Config.Named)
	}
	if err != nil {
		return err
	}
	return commands.Show(c, &a.output, plan)
}

func (a *applyCommand) run(ctx context.Context) error {
	sides, err := commands.Open(ctx, a.options, a.options.settings.Datastore)
	if err != nil {
		return err
	}
	defer func() { _ = sides.Store.Close() }()
	account := newAccount(a.out, a.errs, a.output.String())
	if namespace := a.options.manager.Namespace(); namespace != "" {
		led, release, err := lead(ctx, sides.Config, a.options.manager, account)
		if err != nil {
			return err
		}
		defer release()
		ctx = led
	}
	journal, err := a.options.newJournal(sides.Config)
	if err != nil {
		return err
	}
	errand := &errand{
		config: a.options.settings.Config, store: sides.Store, cluster: sides.Cluster, journal: journal, account: account, clock: a.clock, patience: usualPatience,
		notes: &notebook{kept: sides.State, confirmation: a.confirm, clock: a.clock},
	}
	return a.finish(ctx, errand, errand.run(ctx, a.agree))
}

// finish prints the end of the account and turns it into an exit code.
func (a *applyCommand) finish(ctx context.Context, e *errand, err error) error {
	cause, left, failed := context.Cause(ctx), e.leftAlone(), e.failed()
	verdict := verdictDone
	switch {
	case errors.Is(err, errDeclined):
		verdict = verdictDeclined
	case cause != nil:
		verdict = verdictInterrupted
	case err != nil, failed > 0:
		verdict = verdictFailed
	case nodesync.Held(left):
		verdict = verdictHeld
	}
	e.account.summarize(verdict, left)
	switch {
	case verdict == verdictInterrupted:
		return cause
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("not everything of %s could be removed, see above: remove the cause and run apply again", prose.Plural(failed, "machine"))
	case verdict == verdictHeld:
		return command.Exit(command.ExitAttention, nil)
	}
	return nil
}

// agree shows the plan and asks whether to go on. With --yes it does neither: every step is told when it is done.
func (a *applyCommand) agree(ctx context.Context, account *account, plan nodesync.Plan) error {
	question := "apply " + these(len(plan.Steps), "step")
	if later := waitingTheirTurn(plan); later > 0 {
		question += fmt.Sprintf(", and those of %s more in their turn", prose.Plural(later, "machine"))
	}
	return a.ask(ctx, account, question, func() { account.showPlan(plan) })
}

// ask shows what is planned and asks a person. With --yes it does neither.
func (a *applyCommand) ask(ctx context.Context, account *account, question string, show func()) error {
	if a.yes {
		if a.options.keepsNoJournal() && a.options.journal.mode != journalNone {
			account.warn(nothingKept + ": --journal-dir or --leader-election-namespace names one, --journal=none turns it off")
		}
		return nil
	}
	show()
	if a.options.keepsNoJournal() {
		question = nothingKept + "\n" + question
	}
	if _, err := io.WriteString(a.errs, question+"? yes/no: "); err != nil {
		return fmt.Errorf("asking: %w", err)
	}
	answer, err := readLine(ctx, a.in)
	if err != nil {
		return err
	}
	if answer != "yes" && answer != "y" {
		return errDeclined
	}
	return nil
}
