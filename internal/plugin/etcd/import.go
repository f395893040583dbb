// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/etcdstorage/transfer"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const importLong = `Imports a stream of 'kubectl mooring etcd export' into one tenant, whose name
may differ from that of the exported one.

The tenant must be empty. It is written in pages of up to 100 keys, each of them
in one transaction. Finish an interrupted import by running it again with --resume: keys that
exist with the same value are skipped, a key with another value is an error.
Nothing is ever overwritten or deleted.

A file is checked as a whole before the first key is written. A pipe cannot be:
each page is checked before it is written, and that the stream is whole is known
at its end.

Keys that were attached to a lease get a new lease with the full TTL.
` + "`compact_rev_key`" + ` is not loaded: API servers create it again. Revisions are those of
the new store, so clients of an API server (controllers too) must be restarted.

` + connectionHelp

const importExample = `  kubectl mooring etcd import team-a -f team-a.stream --dry-run
  kubectl mooring etcd import team-a -f team-a.stream
  gunzip < team-a.stream.gz | kubectl mooring etcd import team-a -f -`

// importFlags are the flags of etcd import.
type importFlags struct {
	access
	filename       string
	resume, dryRun bool
}

func newImport(env *observe.Env) *cobra.Command {
	var f importFlags
	cmd := &cobra.Command{
		Use:     "import NAME",
		Short:   "Load the keys and values of one tenant",
		Long:    importLong,
		Example: importExample,
		Args:    oneName("EtcdStorage"),
		RunE:    func(cmd *cobra.Command, args []string) error { return f.run(cmd, env, args[0]) },
	}
	f.addTo(cmd)
	flags := cmd.Flags()
	flags.StringVarP(&f.filename, "filename", "f", "", "File with the stream, - for standard input.")
	flags.BoolVar(&f.resume, "resume", false, "The tenant may have keys already; equal ones are skipped.")
	flags.BoolVar(&f.dryRun, "dry-run", false, "Check the stream, and whether the tenant is empty, and write nothing.")
	return cmd
}

func (f *importFlags) run(cmd *cobra.Command, env *observe.Env, name string) error {
	if f.filename == "" {
		return errors.New("give the stream with -f FILE, - for standard input")
	}
	where, input, err := observe.OpenInput(f.filename, cmd.InOrStdin())
	if err != nil {
		return err
	}
	defer input.Close()
	from, err := f.check(cmd, where, input, cmd.InOrStdin())
	if err != nil {
		return err
	}
	tenant, end, err := f.connect(cmd, env, name)
	if err != nil {
		return err
	}
	defer end()
	if f.dryRun {
		return f.tell(cmd, tenant, name)
	}
	reader, err := transfer.NewReader(from)
	if err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	result, err := transfer.Import(cmd.Context(), tenant, reader, transfer.Options{Resume: f.resume})
	if err != nil {
		if wrong, ok := errors.AsType[*transfer.FormatError](err); ok {
			err = fmt.Errorf("%s: %w", where, wrong)
		}
		if result.Written > 0 {
			err = fmt.Errorf("%w; %s of tenant %s were written before, and --resume goes on from there", err, prose.Plural(result.Written, "key"), name)
		}
		return err
	}
	text := fmt.Sprintf("Imported %s into tenant %s", prose.Plural(result.Written, "key"), name)
	if result.Present > 0 {
		text += fmt.Sprintf("; %s were there already", prose.Plural(result.Present, "key"))
	}
	if result.Leases > 0 {
		text += fmt.Sprintf("; %s granted again", prose.Plural(result.Leases, "lease"))
	}
	screen.Paragraph(cmd.OutOrStdout(), "", "", text+".")
	return nil
}

// check reads the whole stream first, if the input can be read twice, and returns what to read then.
func (f *importFlags) check(cmd *cobra.Command, where string, input io.Reader, stdin io.Reader) (io.Reader, error) {
	if f.filename == "-" {
		input = stdin // not the closer around it
	}
	notes := cmd.ErrOrStderr()
	seeker, ok := input.(io.Seeker)
	var start int64
	if ok {
		var err error
		if start, err = seeker.Seek(0, io.SeekCurrent); err != nil {
			ok = false
		}
	}
	if !ok {
		if f.dryRun {
			return nil, fmt.Errorf("%s cannot be read twice: --dry-run needs a file", where)
		}
		screen.Paragraph(notes, "note: ", "  ", where+" cannot be read twice: each page is checked before it is written, the whole at its end")
		return input, nil
	}
	summary, err := transfer.Verify(input)
	if err != nil {
		return nil, fmt.Errorf("%s: %w; nothing was written", where, err)
	}
	screen.Paragraph(notes, "", "  ", fmt.Sprintf("The stream is whole: %s (%s) and %s of tenant %s, as of revision %d.",
		prose.Plural(summary.Keys, "key"), prose.Bytes(summary.Bytes), prose.Plural(summary.Leases, "lease"), summary.Tenant, summary.Revision))
	if _, err := seeker.Seek(start, io.SeekStart); err != nil {
		return nil, fmt.Errorf("reading %s again: %w", where, err)
	}
	return input, nil
}

// tell is the end of a dry run.
func (f *importFlags) tell(cmd *cobra.Command, tenant transfer.Tenant, name string) error {
	n, err := tenant.Count(cmd.Context())
	if err != nil {
		return fmt.Errorf("counting the keys of tenant %s: %w", name, err)
	}
	if n > 0 && !f.resume {
		return fmt.Errorf("%w: tenant %s has %s; it would be refused without --resume", transfer.ErrNotEmpty, name, prose.Plural(n, "key"))
	}
	screen.Paragraph(cmd.OutOrStdout(), "", "", fmt.Sprintf("Tenant %s has %s; nothing was written (dry run).", name, prose.Plural(n, "key")))
	return nil
}
