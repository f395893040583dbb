// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/bgp/network"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

// findNetwork finds what the BGP network needs, if the lab is to have one or was made with one, so that what is missing is said before anything is
// started.
func (a *app) findNetwork(command *cobra.Command, o blueprint.Options) (blueprint.Options, error) {
	given := given(command)
	if !given.Network {
		if made, err := runner.Network(blueprint.Layout{Dir: o.Dir}); err == nil {
			o.Network = made
		}
	}
	if o.Network != blueprint.NetworkBGP {
		return o, nil
	}
	if !given.Datastore {
		o.Datastore = blueprint.DatastoreKubernetes
	}
	ctx, cancel := untilSignal(command)
	defer cancel()
	tools, err := a.FindTools(ctx)
	if err != nil {
		return o, fmt.Errorf("--network bgp: %w", err)
	}
	o.BGPTemplates, o.Bird, o.Bird6 = tools.Templates, tools.Bird, tools.Bird6
	return o, nil
}

// tryNetwork sees whether this machine allows a BGP network.
func (a *app) tryNetwork(command *cobra.Command) error {
	ctx, cancel := untilSignal(command)
	defer cancel()
	executable, err := a.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	if err := a.TryNetwork(ctx, executable); err != nil {
		return fmt.Errorf("--network bgp: %w", err)
	}
	return nil
}

// checkRoom refuses a further machine where the network of the lab cannot hold it.
func checkRoom(layout blueprint.Layout, machines int) error {
	kind, err := runner.Network(layout)
	if err != nil {
		return err
	}
	if kind == blueprint.NetworkBGP && machines >= blueprint.MaxBGPNodes {
		return fmt.Errorf("the BGP network holds at most %d machines, and there are %d; remove one first", blueprint.MaxBGPNodes, machines)
	}
	return nil
}

// statusTimeout bounds the question to the network, which may be starting.
const statusTimeout = 5 * time.Second

// printNetwork prints a line about the BGP network, if the lab has one. What cannot be asked is said there too.
func printNetwork(ctx context.Context, out io.Writer, layout blueprint.Layout, state folder.State) {
	if !slices.ContainsFunc(state.Processes, func(p folder.Process) bool { return p.Name == blueprint.BGPNetwork }) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	seen, err := network.Connect(layout.BGPNetwork()).State(ctx)
	if err != nil {
		fmt.Fprintf(out, "\nnetwork: %v\n", err)
		return
	}
	fmt.Fprintf(out, "\nnetwork: %s\n", describeNetwork(seen))
}

func describeNetwork(s network.State) string {
	have, want := s.Routes()
	text := fmt.Sprintf("BGP, %d machines, %d of %d routes to pods of others", len(s.Nodes), have, want)
	if len(s.Pending) > 0 {
		text += "; yet to come or go: " + strings.Join(s.Pending, ", ")
	}
	return text
}
