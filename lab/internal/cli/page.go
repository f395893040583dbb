// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

const (
	pageFlag = "page"
	// pageProgram is the plugin that serves the page.
	pageProgram = "kubectl-mooring"
	// pagePatience bounds the wait for the page's address, without which the lab works as well.
	pagePatience = 20 * time.Second
)

func addPageFlag(command *cobra.Command, o *blueprint.Options) {
	command.Flags().BoolVar(&o.Page, pageFlag, false, "serve the page of kubectl mooring ui on 127.0.0.1, and open it if there is a desktop "+
		"(default true on a terminal, where it can be)")
}

// findPage finds the page's program alongside the lab's own, and decides whether there is a page if the user does not say it: there is one
// for somebody who sits at a terminal and has not chosen which processes run.
func (a *app) findPage(command *cobra.Command, o blueprint.Options) (blueprint.Options, error) {
	executable, err := a.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	program := filepath.Join(filepath.Dir(executable), pageProgram)
	if _, err := os.Stat(program); err == nil {
		o.PageProgram = program
	}
	if flags := command.Flags(); flags.Lookup(pageFlag) != nil && !flags.Changed(pageFlag) {
		o.Page = a.OnTerminal() && o.PageProgram != "" && !o.Enclosed() && len(o.Components) == 0
		if o.Page { // a supervisor in the background is given it, as it sees no terminal
			if err := flags.Set(pageFlag, "true"); err != nil {
				return o, fmt.Errorf("deciding about the page: %w", err)
			}
		}
	}
	return o, nil
}

// showPage says where the page of a lab that has just started is, if it has one, and opens it on a desktop. A page that does not come is
// said, and is not an error.
func (a *app) showPage(ctx context.Context, out io.Writer, o blueprint.Options) {
	if !o.Page {
		return
	}
	layout := blueprint.Layout{Dir: o.Dir}
	url := awaitPage(ctx, layout)
	if url == "" {
		fmt.Fprintf(out, "page:   not served yet; look at `lab logs %s`, and later at `lab status`\n", blueprint.Page)
		return
	}
	fmt.Fprintf(out, "page:   %s\n", url)
	if cmp.Or(os.Getenv("DISPLAY"), os.Getenv("WAYLAND_DISPLAY")) == "" {
		return
	}
	if err := a.Browse(ctx, url); err != nil {
		fmt.Fprintf(out, "        no browser was opened: %v\n", err)
	}
}

// awaitPage waits until the page's address is known; "" if it does not come.
func awaitPage(ctx context.Context, layout blueprint.Layout) string {
	ctx, cancel := context.WithTimeout(ctx, pagePatience)
	defer cancel()
	for {
		if url := pageURL(layout); url != "" {
			return url
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(followInterval):
		}
	}
}

// pageURL is the address that the page's process printed when it last started, "" if it has not.
func pageURL(layout blueprint.Layout) string {
	text, err := os.ReadFile(layout.Log(blueprint.Page))
	if err != nil {
		return ""
	}
	url := ""
	for line := range bytes.Lines(text) {
		if whole, ended := bytes.CutSuffix(line, []byte("\n")); ended && bytes.HasPrefix(whole, []byte("http://127.0.0.1:")) {
			url = string(whole)
		}
	}
	return url
}

// printPage prints a line about the page, if the lab has one.
func printPage(out io.Writer, layout blueprint.Layout, state folder.State) {
	if slices.ContainsFunc(state.Processes, func(p folder.Process) bool { return p.Name == blueprint.Page }) {
		fmt.Fprintf(out, "\npage: %s\n", cmp.Or(pageURL(layout), "not served yet; look at `lab logs "+blueprint.Page+"`"))
	}
}

// browse asks the desktop to open an address. The address is not a secret worth keeping from other users of this machine: the cluster is a lab.
func browse(ctx context.Context, url string) error {
	command := exec.CommandContext(context.WithoutCancel(ctx), "xdg-open", url) // a browser may outlive the lab
	if err := command.Start(); err != nil {
		return fmt.Errorf("starting xdg-open: %w", err)
	}
	go func() { _ = command.Wait() }() // or it stays as a zombie
	return nil
}
