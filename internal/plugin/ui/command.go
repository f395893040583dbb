// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package ui is the command of that name: it serves the page to the browser of this machine.
package ui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/plugin/observe/overview"
	"github.com/mooring-dev/mooring/internal/plugin/page"
)

const long = `Serve a page about the cluster to this machine's browser: the machines by zone with disagreements in red, what waits for a confirmation with the command for
it, findings of the doctor, the topologies of route reflectors, load balancers and their targets, volumes with their
disagreements, tenants of etcd with their usage, and recent steps of components with their reasons. Nothing is written.

The page reads what your kubeconfig may read, and what the environment names as for kubectl mooring agreement; no Secret is read. It is at
127.0.0.1 alone, under an address that cannot be guessed: anyone who knows the address sees the page. It makes no requests to other hosts.

A request under another name than 127.0.0.1 and the page's port is refused, since any site could let a name of its own point there. Where a tunnel leads to
the page under another name or port, name it with --allowed-host.

The cluster is read again while the page is open. Its filter accepts words, and zone:a, state:down (or any other verdict), and state:bad for everything that is not
a machine. Ctrl-C ends it.

Exit codes: 0 ended by Ctrl-C; 1 the cluster cannot be read, or the port is taken.`

const example = `  kubectl mooring ui
  kubectl mooring ui --port 8080 --no-browser
  kubectl mooring ui --port 8080 --no-browser --allowed-host localhost:9000
  DO_ACCESS_TOKEN=... kubectl mooring ui --context production`

// window is the command; its zero values are set by New.
type window struct {
	env       *observe.Env
	clock     clock.PassiveClock
	port      int
	noBrowser bool
	// allowed are names other than 127.0.0.1 by which a browser may reach the page.
	allowed []string
	// browse opens an address in the person's browser.
	browse func(ctx context.Context, url string) error
}

// New is kubectl mooring ui.
func New(env *observe.Env) *cobra.Command {
	u := &window{env: env, clock: clock.RealClock{}, browse: browse}
	cmd := &cobra.Command{
		Use:     "ui",
		Short:   "Show the cluster on a page in the browser",
		Long:    long,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return u.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&u.port, "port", 0, "Port at 127.0.0.1; 0 is any that is free.")
	cmd.Flags().BoolVar(&u.noBrowser, "no-browser", false, "Only print the address, do not open a browser.")
	cmd.Flags().StringSliceVar(&u.allowed, "allowed-host", nil,
		"Another name by which a browser reaches the page, such as through a tunnel: NAME, or NAME:PORT. May be repeated.")
	return cmd
}

func (u *window) run(ctx context.Context, out, notes io.Writer) error {
	if u.port < 0 || u.port > 65535 {
		return fmt.Errorf("--port %d: use 0 to 65535", u.port)
	}
	for _, name := range u.allowed {
		if name == "" || strings.ContainsAny(name, "/ @*") {
			return fmt.Errorf("--allowed-host %q: use NAME or NAME:PORT, such as localhost:9000", name)
		}
	}
	c, err := u.env.Cluster()
	if err != nil {
		return err
	}
	reader := overview.NewReader(c, u.clock, true)
	server, err := page.Listen(ctx, u.port, u.allowed, reader.Read, u.clock)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintln(out, server.URL()); err != nil {
		return errors.Join(fmt.Errorf("printing the address: %w", err), server.Close())
	}
	fmt.Fprintln(notes, "note: anyone who knows this address sees the page; Ctrl-C ends it")
	if !u.noBrowser {
		if err := u.browse(ctx, server.TicketURL()); err != nil {
			fmt.Fprintf(notes, "note: no browser was opened: %v\n", err)
		}
	}
	return server.Serve(ctx)
}

// browse asks the desktop to open an address. What the browser itself does is not waited for.
func browse(ctx context.Context, url string) error {
	name, args := "xdg-open", []string{url}
	switch runtime.GOOS {
	case "darwin":
		name = "open"
	case "windows":
		name, args = "rundll32", []string{"url.dll,FileProtocolHandler", url}
	}
	cmd := exec.CommandContext(context.WithoutCancel(ctx), name, args...) // a browser may outlive the page
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() { _ = cmd.Wait() }() // or it stays as a zombie
	return nil
}
