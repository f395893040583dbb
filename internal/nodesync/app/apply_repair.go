// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/nodesync/ipamcheck"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// runRepair repairs IPAM's data. It takes no Lease: each repair is one transaction that depends on all that it was
// decided on, so that a controller may run alongside.
func (a *applyCommand) runRepair(ctx context.Context) error {
	sides, err := commands.Open(ctx, a.options, a.options.settings.Datastore)
	if err != nil {
		return err
	}
	defer func() { _ = sides.Store.Close() }()
	account, grace := newAccount(a.out, a.errs, a.output.String()), a.options.settings.Config.Grace
	if grace > 0 {
		now := a.clock.Now()
		account.waiting(now.Add(grace), now, nil, "a second reading, if anything disagrees")
	}
	data, found, err := sides.Disagreements(ctx, grace, a.clock)
	if err != nil {
		return err
	}
	commands.NoteUnread(a.errs, data)
	plan := ipamcheck.Planned(found)
	if a.options.dryRun || len(plan.Repairs) == 0 {
		return commands.ShowRepairs(a.out, &a.output, plan)
	}
	show := func() { account.tell(record{Type: "repairs", Repairs: &plan}, plan.String()) }
	if err := a.ask(ctx, account, "make "+these(len(plan.Repairs), "repair"), show); err != nil {
		return err
	}
	journal, err := a.options.newJournal(sides.Config)
	if err != nil {
		return err
	}
	uid, err := sides.Cluster.UID(ctx)
	if err != nil {
		return fmt.Errorf("reading namespace kube-system: %w", err)
	}
	failed, conflicts, kind := 0, 0, ipamcheck.Kind("")
	r := &controller.Repairer{Store: sides.Store, Journal: journal, ClusterUID: uid, Clock: a.clock, Say: func(repair ipamcheck.Repair, err error) error {
		outcome := record{Outcome: "done", Kind: string(repair.Kind), Step: repair.What, Because: repair.Do}
		switch {
		case errors.Is(err, calico.ErrConflict):
			conflicts++
			outcome.Outcome, outcome.Because = "conflict", err.Error()
		case err != nil:
			failed++
			outcome.Outcome, outcome.Because = "error", err.Error()
		}
		if repair.Kind != kind { // what is done is printed once for each kind
			kind, account.host = repair.Kind, noHost
		}
		account.step(outcome)
		return nil
	}}
	err = r.Run(ctx, plan)
	return a.finishRepair(account, plan, failed, conflicts, err)
}

// finishRepair prints the end of the account and turns it into an exit code.
func (a *applyCommand) finishRepair(account *account, plan ipamcheck.Plan, failed, conflicts int, err error) error {
	left := len(plan.LeftAlone) + conflicts
	verdict := verdictDone
	switch {
	case err != nil || failed > 0:
		verdict = verdictFailed
	case left > 0:
		verdict = verdictHeld
	}
	applied := account.applied
	account.tell(record{Type: "summary", Verdict: verdict, StepsApplied: &applied},
		fmt.Sprintf("%s made, %d left alone, %d failed; `calico-node-sync doctor ipam` shows what is left\n", prose.Plural(applied, "repair"), left, failed))
	switch {
	case err != nil:
		return err
	case failed > 0:
		return fmt.Errorf("%s failed, see above: remove the cause and run apply --repair again", prose.Plural(failed, "repair"))
	}
	return command.Attention(left > 0)
}
