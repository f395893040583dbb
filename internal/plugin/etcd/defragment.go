// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

const defragmentLong = `Returns the free space in the database files of a core etcd's members, one member at a
time and the leader last. A member does not serve meanwhile, which takes some
seconds for each GiB; with one member no tenant is served.

It resolves the alarm NOSPACE, during which no tenant can write. If a member has it,
or with --compact, all history is compacted first, so that there is free space:
API servers that watch from an older revision list again. At the end the alarms
are disarmed.

The command does not start while a member is unreachable, has no leader, or has
the alarm CORRUPT. It may be interrupted and started again.

Name all members: one that is not named keeps its free space.`

const defragmentExample = `  kubectl mooring etcd defragment --dry-run --core-endpoint https://etcd-0:2379,https://etcd-1:2379,https://etcd-2:2379 \
    --core-cacert ca.crt --core-cert client.crt --core-key client.key`

// defragmentation is one run of the command.
type defragmentation struct {
	client *core.Client
	// id is the cluster ID of the core that answered first.
	id              string
	compact, dryRun bool
	out, notes      io.Writer
}

func newDefragment() *cobra.Command {
	var f access
	var d defragmentation
	cmd := &cobra.Command{
		Use:     "defragment",
		Short:   "Reclaim space in the core etcd, and disarm its alarm NOSPACE",
		Long:    defragmentLong,
		Example: defragmentExample,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d.out, d.notes = cmd.OutOrStdout(), cmd.ErrOrStderr()
			return f.withCore(cmd.Context(), func(client *core.Client) error {
				d.client = client
				return d.run(cmd.Context())
			})
		},
	}
	f.addCoreTo(cmd)
	cmd.Flags().BoolVar(&d.compact, "compact", false, "Compact all history first, also where no member has the alarm NOSPACE.")
	cmd.Flags().BoolVar(&d.dryRun, "dry-run", false, "Show what would be done, and do nothing.")
	return cmd
}

func (d *defragmentation) run(ctx context.Context) error {
	before, err := d.look(ctx)
	if err != nil {
		return err
	}
	d.id = before.Members[0].ClusterID
	if d.dryRun {
		Announce(d.out, before, d.compact)
		return nil
	}
	if len(before.NoSpace) > 0 || d.compact {
		if err := d.dropHistory(ctx); err != nil {
			return err
		}
	}
	for _, m := range before.LeaderLast() {
		if err := d.one(ctx, m); err != nil {
			return err
		}
	}
	return d.disarm(ctx)
}

// look asks all members for their status. It is an error unless all of them respond and belong to one core.
func (d *defragmentation) look(ctx context.Context) (operator.Health, error) {
	health := d.client.Health(ctx, time.Now())
	if len(health.Corrupt) > 0 {
		return health, fmt.Errorf("members %s have the alarm CORRUPT: their data differs from that of the others; replace them first", strings.Join(health.Corrupt, ", "))
	}
	for _, m := range health.Members {
		switch {
		case m.Problem != "":
			return health, errors.New(m.Problem)
		case !m.Leader:
			return health, fmt.Errorf("the member %s has no leader: check whether most of the members run and reach each other", m.URL)
		case m.ClusterID != health.Members[0].ClusterID:
			return health, fmt.Errorf("%s and %s are members of different cores, with cluster IDs %s and %s: name the members of one",
				health.Members[0].URL, m.URL, health.Members[0].ClusterID, m.ClusterID)
		}
	}
	return health, nil
}

// Announce prints what a run without --dry-run would do.
func Announce(to io.Writer, h operator.Health, compact bool) {
	if len(h.NoSpace) > 0 || compact {
		screen.Sentence(to, "would compact all history")
	}
	for _, m := range h.LeaderLast() {
		leader := map[bool]string{true: ", the leader"}[m.IsLeader]
		screen.Sentence(to, fmt.Sprintf("would defragment %s: %s, %s of it in use%s", m.URL, prose.Bytes(m.Size), prose.Bytes(m.InUse), leader))
	}
	if len(h.NoSpace) > 0 {
		screen.Sentence(to, fmt.Sprintf("would disarm the alarm NOSPACE of %s", strings.Join(h.NoSpace, ", ")))
	}
}

func (d *defragmentation) dropHistory(ctx context.Context) error {
	_, revision, err := d.client.Revision(ctx)
	if err != nil {
		return err
	}
	if err := d.client.CompactNow(ctx, d.id, revision); err != nil {
		return err
	}
	screen.Sentence(d.out, fmt.Sprintf("compacted all history, at revision %d", revision))
	return nil
}

// one defragments one member, and returns when all are there again.
func (d *defragmentation) one(ctx context.Context, m operator.CoreMember) error {
	if err := d.client.Defragment(ctx, d.id, m.URL); err != nil {
		return err
	}
	health, err := d.settled(ctx)
	if err != nil {
		return fmt.Errorf("after defragmenting %s: %w", m.URL, err)
	}
	for _, is := range health.Members {
		if is.URL == m.URL {
			screen.Sentence(d.out, fmt.Sprintf("defragmented %s: %s → %s", m.URL, prose.Bytes(m.Size), prose.Bytes(is.Size)))
		}
	}
	return nil
}

// settled waits until all members respond, for a minute: one that was defragmented has to catch up, and another leader may be elected.
func (d *defragmentation) settled(ctx context.Context) (operator.Health, error) {
	const looks, pause = 60, time.Second
	var health operator.Health
	var err error
	for range looks {
		if health, err = d.look(ctx); err == nil {
			return health, nil
		}
		select {
		case <-ctx.Done():
			return health, ctx.Err()
		case <-time.After(pause):
		}
	}
	return health, err
}

// disarm disarms the alarms. A member without space raises its alarm again.
func (d *defragmentation) disarm(ctx context.Context) error {
	health, err := d.look(ctx)
	if err != nil || len(health.NoSpace) == 0 {
		return err
	}
	if err := d.client.Disarm(ctx, d.id, health.NoSpace); err != nil {
		return err
	}
	screen.Sentence(d.out, fmt.Sprintf("disarmed the alarm NOSPACE of %s", strings.Join(health.NoSpace, ", ")))
	if health, err = d.look(ctx); err != nil {
		return err
	}
	if reason, words := health.Judge(); reason != operator.ReasonHealthy {
		screen.Paragraph(d.notes, "warning: ", "  ", words+"; have tenants delete what they do not need")
	}
	return nil
}
