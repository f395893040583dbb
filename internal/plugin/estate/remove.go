// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package estate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const removeLong = `Remove an object at DigitalOcean to which nothing refers, as "kubectl mooring estate" shows it. Without --yes it prints what would be removed, and nothing is deleted.

With --yes the object is read again by its ID, and after it the Services, Nodes, volumes and snapshots of the cluster: it is deleted only if nothing refers to it then
either. An object to which something leads, that is new, or of which something could not be read is refused. So is any object while it is not recorded which account
the cluster's droplets are in (by digitalocean-cloud-controller-manager, on a Lease in kube-system).

A volume or a snapshot is deleted with its data. The token needs the scope to delete, in addition to those of "kubectl mooring estate".

Exit codes: 0 deleted; 2 shown, and nothing was deleted; 1 refused or failed.`

const removeExample = `  kubectl mooring estate remove load-balancer 4de7ac8b-495b-4884-9a69-1050c6793cd6
  kubectl mooring estate remove load-balancer 4de7ac8b-495b-4884-9a69-1050c6793cd6 --yes`

func newRemove(env *observe.Env) *cobra.Command {
	yes := false
	cmd := &cobra.Command{
		Use: "remove KIND ID", Short: "Remove an object to which nothing refers", Long: removeLong, Example: removeExample,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return fmt.Errorf("%s needs KIND and ID, as 'kubectl mooring estate' shows; see '%[1]s --help'", cmd.CommandPath())
			}
			if _, known := estate.Removable()[args[0]]; !known {
				return fmt.Errorf("unsupported kind %q: use %s", args[0], strings.Join(observe.RemovableKinds(), ", "))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := env.Cluster()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), 2*observe.ReadTime)
			defer cancel()
			return remove(ctx, c, estate.Removable()[args[0]], args[1], yes, cmd.OutOrStdout())
		},
		// An ID is not completed: it shows that the person has looked.
		ValidArgsFunction: observe.Only(env, func(context.Context, *observe.Env) []string { return observe.RemovableKinds() }),
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "Delete it. Without it nothing is deleted.")
	return cmd
}

// remove shows what goes, and with yes deletes it once it was read again.
func remove(ctx context.Context, c *observe.Cluster, kind estate.Kind, id string, yes bool, to io.Writer) error {
	e, err := observe.ReadEstate(ctx, c, clock.RealClock{})
	if err != nil {
		return err
	}
	o, err := nobodys(estate.Judge(e.World), kind, id)
	if err != nil {
		return err
	}
	if !yes {
		Preview(o, to)
		return command.Attention(true)
	}
	if !e.Recorded {
		return fmt.Errorf("%s is not removed: it is not recorded which account this cluster's droplets are in, so that the token may be of another one", o)
	}
	again, err := e.Again(ctx, c, o)
	switch {
	case errors.Is(err, doapi.ErrNotFound):
		return fmt.Errorf("%s is gone already", o)
	case err != nil:
		return err
	}
	if o, err = nobodys(again, kind, id); err != nil {
		return err
	}
	if err := e.Remove(ctx, o); err != nil {
		return err
	}
	say(to, fmt.Sprintf("Deleted %s, %s.", o, o.Costs()))
	return nil
}

// nobodys is an object to which nothing refers, or one sentence that says why it is not removed.
func nobodys(r estate.Report, kind estate.Kind, id string) (estate.Object, error) {
	at := slices.IndexFunc(r.Objects, func(o estate.Object) bool { return o.Kind == kind && o.ID == id })
	if at < 0 {
		text := fmt.Sprintf("there is no %s %s of this cluster: 'kubectl mooring estate' lists what there is", kind, id)
		if len(r.NotRead) > 0 {
			text += "; not everything is known (" + strings.Join(r.NotRead, "; ") + ")"
		}
		return estate.Object{}, errors.New(text)
	}
	switch o := r.Objects[at]; o.State {
	case estate.Unreferenced:
		return o, nil
	case estate.Referenced:
		verb := "leads"
		if len(o.ReferencedBy) > 1 {
			verb = "lead"
		}
		return o, fmt.Errorf("%s is not removed: %s %s to it", o, strings.Join(o.ReferencedBy, " and "), verb)
	default:
		return o, fmt.Errorf("%s is not removed: whether somebody leads to it is not certain: %s", o, o.Why)
	}
}

// Preview prints what would be removed.
func Preview(o estate.Object, to io.Writer) {
	say(to, fmt.Sprintf("This would be deleted: %s, %s. Nothing refers to it: %s.", o, o.Costs(), o.Why))
	say(to, "Nothing was deleted. To delete it: "+o.Next)
}

func say(to io.Writer, text string) {
	columns, _ := screen.Terminal(to)
	_, _ = io.WriteString(to, prose.Wrap("", "", text, columns)) // a full pipe is no reason to undo anything
}
