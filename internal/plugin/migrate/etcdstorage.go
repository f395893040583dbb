// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/predecessor"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const etcdStorageLong = `Converts the EtcdStorages of etcdproxy-controller to those of etcd-storage-operator.

The old objects (` + predecessor.Resource + `.` + predecessor.Group + `) are read from the cluster,
or with -f from a file, YAML or JSON, Lists too; documents of other kinds are
skipped. With NAMEs only those are converted.

The new objects are printed as YAML, and nothing is written. With --apply they
are written to the cluster instead, by server-side apply under the name
kubectl-mooring: applying again changes nothing, and changes by other field managers
are not overwritten. What could not be converted is reported for each object on
standard error.

ConfigMaps and Secrets keep their names, and data stays where it is: the new
objects have spec.adoptExistingData true. The old objects are never touched.
What to do before and after: docs/migration/etcd-storage-operator.md

-o json and -o yaml print one report in place of the objects and the text:
  storages: one per old object, in their order, with
    name     its name; may be empty for what is refused
    result   whole    converted without loss
             changed  converted, except for the fields in lost
             refused  not converted, for the reasons in refused
             failed   converted and not written, for the reason in error
    written  with --apply: created, configured or unchanged
    error    why it was not written
    refused, lost, hints   lists of {field, text}
    object   the new EtcdStorage
  dryRun: true with --dry-run
Other fields may come later. Without a report, standard output is empty and the
exit code 1.

Exit codes:
  0  every object was converted without loss
  1  an object could not be converted or written, or the input cannot be read
  2  every object was converted, and a field of at least one could not be converted`

const etcdStorageExample = `  kubectl mooring migrate etcdstorage > storages.yaml
  kubectl mooring migrate etcdstorage team-a --apply --dry-run
  kubectl mooring migrate etcdstorage team-a --apply
  kubectl mooring migrate etcdstorage -o json | jq '.storages[] | select(.result != "whole")'
  kubectl mooring migrate etcdstorage -f old.yaml | kubectl apply --server-side -f -`

// migrateFlags are the flags of migrate etcdstorage.
type migrateFlags struct {
	filename      string
	apply, dryRun bool
	output        screen.Format
	settings      predecessor.Settings
}

func newEtcdStorage(env *observe.Env) *cobra.Command {
	f := migrateFlags{output: screen.NewFormat(formatObjects, screen.FormatYAML, screen.FormatJSON)}
	cmd := &cobra.Command{
		Use:     "etcdstorage [NAME...]",
		Aliases: []string{"etcdstorages", "ets"},
		Short:   "Convert the EtcdStorages of etcdproxy-controller",
		Long:    etcdStorageLong,
		Example: etcdStorageExample,
		Args:    cobra.ArbitraryArgs,
		RunE:    func(cmd *cobra.Command, names []string) error { return f.run(cmd, env, names) },
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.filename, "filename", "f", "", "File with old objects, - for standard input. Unset, the cluster is read.")
	flags.BoolVar(&f.apply, "apply", false, "Write the new objects to the cluster, in place of printing them.")
	flags.BoolVar(&f.dryRun, "dry-run", false, "With --apply: a server-side dry run, which writes nothing.")
	flags.StringVar(&f.settings.OperatorNamespace, "operator-namespace", "kube-apiserver-storage",
		"Namespace of etcd-storage-operator; it never delivers certificates there.")
	f.output.AddTo(cmd)
	return cmd
}

func (f *migrateFlags) run(cmd *cobra.Command, env *observe.Env, names []string) error {
	if f.dryRun && !f.apply {
		return errors.New("--dry-run needs --apply; without --apply nothing is written anyway")
	}
	var client dynamic.Interface
	if f.apply || f.filename == "" {
		config, err := env.RESTConfig()
		if err != nil {
			return err
		}
		if client, err = dynamic.NewForConfig(config); err != nil {
			return fmt.Errorf("making a client of the cluster: %w", err)
		}
	}
	old, err := f.read(cmd, client)
	if err != nil {
		return err
	}
	if old, err = chosen(old, names); err != nil {
		return err
	}
	conversions := convertAll(old, f.settings)
	var all []migrated
	if f.output.String() != formatObjects {
		all = f.write(cmd.Context(), client, conversions, func(migrated) {})
		if err := f.output.Print(cmd.OutOrStdout(), "", report(all, f.dryRun)); err != nil {
			return err
		}
		return verdict(all)
	}
	if !f.apply {
		if err := printConversions(cmd.OutOrStdout(), conversions); err != nil {
			return fmt.Errorf("printing the objects: %w", err)
		}
	}
	tellConversions(cmd.ErrOrStderr(), conversions)
	all = f.write(cmd.Context(), client, conversions, func(m migrated) { f.tell(cmd, m) })
	return verdict(all)
}

func (f *migrateFlags) read(cmd *cobra.Command, client dynamic.Interface) ([]map[string]any, error) {
	if f.filename == "" {
		return listOldStorages(cmd.Context(), client)
	}
	where, r, err := observe.OpenInput(f.filename, cmd.InOrStdin())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return readOldStorages(where, r, cmd.ErrOrStderr())
}

// chosen returns the objects with these names, all if there are none.
func chosen(old []map[string]any, names []string) ([]map[string]any, error) {
	if len(names) == 0 {
		return old, nil
	}
	var out []map[string]any
	found := map[string]bool{}
	for _, o := range old {
		if name := nameOf(o); slices.Contains(names, name) {
			out, found[name] = append(out, o), true
		}
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("there is no EtcdStorage %q of etcdproxy-controller", name)
		}
	}
	return out, nil
}

func nameOf(object map[string]any) string {
	metadata, _ := object["metadata"].(map[string]any)
	name, _ := metadata["name"].(string)
	return name
}

// convertAll converts the objects in their order. Of two with one name the second is refused.
func convertAll(old []map[string]any, settings predecessor.Settings) []predecessor.Conversion {
	var all []predecessor.Conversion
	seen := map[string]bool{}
	for _, o := range old {
		c := predecessor.Convert(o, settings)
		if c.Name != "" && seen[c.Name] {
			c = predecessor.Conversion{Name: c.Name, Refused: []predecessor.Note{{Field: "metadata.name", Text: "another object before this one has the same name"}}}
		}
		seen[c.Name] = true
		all = append(all, c)
	}
	return all
}

// printConversions writes the new objects as YAML documents.
func printConversions(w io.Writer, conversions []predecessor.Conversion) error {
	first := true
	for _, c := range conversions {
		if c.Object == nil {
			continue
		}
		data, err := yaml.Marshal(c.Object)
		if err != nil {
			return err
		}
		if !first {
			data = append([]byte("---\n"), data...)
		}
		first = false
		if _, err := w.Write(data); err != nil {
			return err
		}
	}
	return nil
}

// tellConversions says for each object what became of it. What cannot be written is the reader's loss alone, so errors of w are skipped.
func tellConversions(w io.Writer, conversions []predecessor.Conversion) {
	list := func(word string, notes []predecessor.Note) {
		for _, n := range notes {
			screen.Paragraph(w, "  "+word+" ", "    ", n.String())
		}
	}
	converted := false
	for _, c := range conversions {
		name := c.Name
		if name == "" {
			name = "without a name"
		}
		verdict := "carried over"
		switch {
		case c.Object == nil:
			verdict = "NOT converted"
		case len(c.Lost) > 0:
			verdict = "converted with loss"
		}
		converted = converted || c.Object != nil
		fmt.Fprintf(w, "EtcdStorage %s: %s\n", name, verdict)
		list("!", c.Refused)
		list("!", c.Lost)
		list("i", c.Hints)
	}
	if converted {
		screen.Paragraph(w, "", "", "ConfigMaps and Secrets keep their names and keys. Each tenant's data stays where it is, under /NAME/ of the core, and is adopted (spec.adoptExistingData).")
	}
}

// verdict is the command's exit code.
func verdict(all []migrated) error {
	failed, lost := 0, 0
	for _, m := range all {
		switch {
		case m.Object == nil || m.err != nil:
			failed++
		case len(m.Lost) > 0:
			lost++
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%d of %d EtcdStorages could not be converted, see above", failed, len(all))
	case lost > 0:
		return command.Exit(command.ExitAttention, nil)
	}
	return nil
}

// write applies what was converted, if that is wanted, each on its own, and calls tell after each.
func (f *migrateFlags) write(ctx context.Context, client dynamic.Interface, conversions []predecessor.Conversion, tell func(migrated)) []migrated {
	var all []migrated
	for _, c := range conversions {
		m := migrated{Conversion: c}
		if f.apply && c.Object != nil {
			m.did, m.err = applyStorage(ctx, client, c, f.dryRun)
			tell(m)
		}
		all = append(all, m)
	}
	return all
}

// tell says what became of one object in the cluster.
func (f *migrateFlags) tell(cmd *cobra.Command, m migrated) {
	switch {
	case m.err != nil:
		screen.Paragraph(cmd.ErrOrStderr(), "", "  ", "EtcdStorage "+m.Name+": "+command.OneLine(m.err.Error()))
	case f.dryRun:
		m.did += " (server dry run)"
		fallthrough
	default:
		fmt.Fprintf(cmd.OutOrStdout(), "etcdstorage.%s/%s %s\n", v1alpha1.GroupVersion.Group, m.Name, m.did)
	}
}
