// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mooring-dev/mooring/internal/etcdstorage/transfer"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const exportLong = `Saves all keys and values of one tenant at one revision as a text stream, which can
be imported again, here or into another core. Keys are
written without the tenant's prefix, and nothing of other tenants can be in it.
It holds whatever the tenant stores, Secrets too: keep it as you keep those.

A file gets its name only when it is complete. Until then the data
is in a temporary file that only you can read, and nothing is written to
standard output. If the tenant's history is compacted meanwhile, the export starts again.

Keys attached to a lease are saved with the TTL of the lease. Those whose lease
has expired meanwhile are left out, and counted.

` + connectionHelp

const exportExample = `  kubectl mooring etcd export team-a -f team-a.stream
  kubectl mooring etcd export team-a | gzip > team-a.stream.gz
  kubectl mooring etcd export team-a -f team-a.stream --core-endpoint https://etcd-0:2379 \
    --core-cacert ca.crt --core-cert client.crt --core-key client.key`

func newExport(env *observe.Env) *cobra.Command {
	var f access
	filename := "-"
	cmd := &cobra.Command{
		Use:     "export NAME",
		Short:   "Save the keys and values of one tenant",
		Long:    exportLong,
		Example: exportExample,
		Args:    oneName("EtcdStorage"),
		RunE:    func(cmd *cobra.Command, args []string) error { return exportTenant(cmd, env, &f, args[0], filename) },
	}
	f.addTo(cmd)
	cmd.Flags().StringVarP(&filename, "filename", "f", filename, "File to write, which must not exist; - for standard output.")
	return cmd
}

func exportTenant(cmd *cobra.Command, env *observe.Env, f *access, name, filename string) error {
	spool, err := openSpool(cmd, filename)
	if err != nil {
		return err
	}
	defer spool.discard()
	tenant, end, err := f.connect(cmd, env, name)
	if err != nil {
		return err
	}
	defer end()
	notes := cmd.ErrOrStderr()
	summary, err := transfer.Export(cmd.Context(), tenant, name, spool.file, func(note string) { screen.Paragraph(notes, "note: ", "  ", note) })
	if err != nil {
		return fmt.Errorf("exporting tenant %s: %w", name, err)
	}
	if err := spool.keep(cmd); err != nil {
		return err
	}
	screen.Paragraph(notes, "", "", fmt.Sprintf("Exported %s (%s) and %s of tenant %s, as of revision %d.",
		prose.Plural(summary.Keys, "key"), prose.Bytes(summary.Bytes), prose.Plural(summary.Leases, "lease"), name, summary.Revision))
	if summary.Ended > 0 {
		screen.Paragraph(notes, "note: ", "  ", fmt.Sprintf("%s left out: the lease had expired", prose.Plural(summary.Ended, "key")))
	}
	if summary.Foreign > 0 {
		screen.Paragraph(notes, "note: ", "  ", fmt.Sprintf("%s left out: the lease is older than the proxy, which cannot read it; export with --core-endpoint to include "+
			"them. The first: %q", prose.Plural(summary.Foreign, "key"), summary.ForeignKeys))
	}
	return nil
}

// spool is where an export is until it is whole.
type spool struct {
	file *os.File
	// target is the name that it gets; "" means that it is copied to standard output.
	target string
}

// openSpool refuses what cannot be written, before anything is read.
func openSpool(cmd *cobra.Command, filename string) (*spool, error) {
	if filename == "-" {
		if f, ok := cmd.OutOrStdout().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return nil, errors.New("the stream would be printed on the terminal: give -f FILE, or send standard output into a file")
		}
		file, err := os.CreateTemp("", "mooring-export-")
		if err != nil {
			return nil, fmt.Errorf("making a temporary file: %w", err)
		}
		_ = os.Remove(file.Name()) // nobody else opens it, and it goes with this process
		return &spool{file: file}, nil
	}
	if _, err := os.Lstat(filename); err == nil {
		return nil, fmt.Errorf("%s is there already: give another name, or remove it", filename)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for %s: %w", filename, err)
	}
	file, err := os.CreateTemp(filepath.Dir(filename), "."+filepath.Base(filename)+".")
	if err != nil {
		return nil, fmt.Errorf("making a file next to %s: %w", filename, err)
	}
	return &spool{file: file, target: filename}, nil
}

// keep gives the whole stream its name, or copies it to standard output.
func (s *spool) keep(cmd *cobra.Command) error {
	if s.target == "" {
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("reading the temporary file: %w", err)
		}
		if _, err := io.Copy(cmd.OutOrStdout(), s.file); err != nil {
			return fmt.Errorf("writing the stream: %w", err)
		}
		return nil
	}
	if err := s.file.Sync(); err != nil {
		return fmt.Errorf("writing %s: %w", s.target, err)
	}
	// A link, unlike a rename, replaces nothing that has come meanwhile; not every file system has them.
	err := os.Link(s.file.Name(), s.target)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		err = os.Rename(s.file.Name(), s.target)
	}
	if err != nil {
		return fmt.Errorf("giving the file its name: %w", err)
	}
	return nil
}

func (s *spool) discard() {
	_ = s.file.Close()
	if s.target != "" {
		_ = os.Remove(s.file.Name())
	}
}
