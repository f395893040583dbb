// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
)

const retainedLong = `Lists the data that EtcdStorages left in a core etcd when they were deleted with
the policy Retain: the tenant's name, its prefix, and how many keys there are.

It stays until another EtcdStorage adopts it (spec.adoptExistingData) or
'kubectl mooring etcd purge' deletes it.`

const purgeLong = `Deletes the data that an EtcdStorage left in a core etcd when it was deleted with
the policy Retain: its keys, leases and records, and the record of its owner.

Data of an existing EtcdStorage, of this cluster or another, is never deleted, and the
command stops if one adopts the data meanwhile. It may be interrupted and started again.
The deletion cannot be undone: 'kubectl mooring etcd export' makes a copy.`

const purgeExample = `  kubectl mooring etcd purge team-a --dry-run --core-endpoint https://etcd-0:2379 \
    --core-cacert ca.crt --core-cert client.crt --core-key client.key`

func newRetained() *cobra.Command {
	var f access
	cmd := &cobra.Command{
		Use: "retained", Short: "List the data that deleted EtcdStorages left in the core etcd", Long: retainedLong, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.withCore(cmd.Context(), func(client *core.Client) error { return listRetained(cmd.Context(), client, cmd.OutOrStdout()) })
		},
	}
	f.addCoreTo(cmd)
	return cmd
}

func newPurge() *cobra.Command {
	var f access
	var dryRun bool
	cmd := &cobra.Command{
		Use: "purge TENANT", Short: "Delete the data that a deleted EtcdStorage left in the core etcd", Long: purgeLong, Example: purgeExample,
		Args: oneName("tenant that kubectl mooring etcd retained lists"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.withCore(cmd.Context(), func(client *core.Client) error {
				return purge(cmd.Context(), client, args[0], dryRun, cmd.OutOrStdout())
			})
		},
	}
	f.addCoreTo(cmd)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show what would be deleted, and delete nothing.")
	return cmd
}

// withCore connects to the core that the flags name.
func (f *access) withCore(ctx context.Context, run func(*core.Client) error) error {
	if len(f.core) == 0 {
		return errors.New("give --core-endpoint, the URLs of all members of the core etcd")
	}
	config, err := f.coreConfig(baseConfig())
	if err != nil {
		return err
	}
	client, err := dial(ctx, config)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	return run(core.Over(client))
}

// tenantIn asks the core what it has of a tenant.
func tenantIn(ctx context.Context, client *core.Client, o operator.Owner) (operator.Core, error) {
	is := client.Observe(ctx, core.Question{Tenant: o.Tenant, Prefix: o.Prefix, Exiting: true})
	if is.Problem != "" {
		return is, errors.New(is.Problem)
	}
	return is, nil
}

func listRetained(ctx context.Context, client *core.Client, to io.Writer) error {
	owners, _, err := client.Owners(ctx)
	if err != nil {
		return err
	}
	var rows [][]string
	for _, o := range owners {
		if !o.Released {
			continue
		}
		is, err := tenantIn(ctx, client, o)
		if err != nil {
			return err
		}
		rows = append(rows, []string{o.Tenant, o.Prefix, strconv.FormatInt(is.Keys, 10)})
	}
	return PrintRetained(rows, to)
}

// PrintRetained prints what was left of tenants, a row each: the tenant, its prefix, and how many keys there are.
func PrintRetained(rows [][]string, to io.Writer) error {
	columns, _ := screen.Terminal(to)
	text := screen.Table{Columns: []string{"TENANT", "PREFIX", "KEYS"}, Rows: rows}.Text(columns)
	if len(rows) == 0 {
		text = "nothing is retained\n"
	}
	_, err := io.WriteString(to, text)
	return err
}

// retained finds the record of data that was left.
func retained(ctx context.Context, client *core.Client, tenant string) (operator.Owner, string, error) {
	owners, id, err := client.Owners(ctx)
	if err != nil {
		return operator.Owner{}, "", err
	}
	i := slices.IndexFunc(owners, func(o operator.Owner) bool { return o.Tenant == tenant })
	switch {
	case i < 0:
		return operator.Owner{}, "", fmt.Errorf("the core etcd has no record of a tenant %q: 'kubectl mooring etcd retained' lists the retained data", tenant)
	case !owners[i].Released:
		return operator.Owner{}, "", fmt.Errorf("the data under %s is in use: EtcdStorage %s, with UID %s, has it; delete that first", owners[i].Prefix, tenant, owners[i].UID)
	}
	return owners[i], id, nil
}

// purge deletes in the order of the operator (policy Delete), each part only while the record is as it was found.
func purge(ctx context.Context, client *core.Client, tenant string, dryRun bool, to io.Writer) error {
	owner, id, err := retained(ctx, client, tenant)
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		if err := client.At(ctx, id); err != nil {
			return err
		}
		is, err := tenantIn(ctx, client, owner)
		if err != nil {
			return err
		}
		if dryRun {
			screen.Sentence(to, "would delete "+Left(owner, is))
			return nil
		}
		if first {
			screen.Sentence(to, "deleting "+Left(owner, is))
		}
		done, err := purgeNext(ctx, client, owner, is)
		if errors.Is(err, core.ErrConflict) {
			return fmt.Errorf("an EtcdStorage has claimed the data of %s meanwhile, or written to it: %w", tenant, err)
		}
		if err != nil {
			return err
		}
		if done {
			screen.Sentence(to, fmt.Sprintf("nothing of %s is left", tenant))
			return nil
		}
	}
}

// Left is what is left of a tenant.
func Left(owner operator.Owner, is operator.Core) string {
	return fmt.Sprintf("%s under %s, %s and %s of proxies", prose.Plural(is.Keys, "key"), owner.Prefix, prose.Plural(len(is.Leases), "lease"), prose.Plural(is.Records, "record"))
}

// purgeNext deletes the next part of what is left, and reports whether that was the last.
func purgeNext(ctx context.Context, client *core.Client, owner operator.Owner, is operator.Core) (done bool, err error) {
	switch {
	case is.Keys > 0:
		return false, client.DeleteKeys(ctx, owner)
	case len(is.Leases) > 0:
		return false, client.RevokeLeases(ctx, owner, is.Leases)
	case is.Records > 0:
		return false, client.DeleteRecords(ctx, owner)
	}
	return true, client.Forget(ctx, owner)
}
