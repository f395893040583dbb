// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/enclave"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
	"github.com/mooring-dev/mooring/lab/internal/runner"
	"github.com/mooring-dev/mooring/lab/internal/storage"
)

// findRealNodes recalls with how many real machines the lab of the folder was made, if the user does not say it, and finds their programs.
func (a *app) findRealNodes(command *cobra.Command, o blueprint.Options) (blueprint.Options, error) {
	if !given(command).RealNodes {
		if made, err := runner.RealNodes(blueprint.Layout{Dir: o.Dir}); err == nil {
			o.RealNodes = made
		}
	}
	executable, err := a.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	o.Bin = filepath.Dir(executable)
	for i, path := range o.ImageArchives {
		if o.ImageArchives[i], err = filepath.Abs(path); err != nil {
			return o, fmt.Errorf("finding the image archive %s: %w", path, err)
		}
	}
	return o, nil
}

// checkRealNodes says what this machine lacks for real machines.
func (a *app) checkRealNodes(o blueprint.Options) error {
	for _, text := range o.Images {
		i, err := image.Parse(text, o.Bin)
		if err == nil {
			err = i.Check()
		}
		if err != nil {
			return err
		}
	}
	for _, path := range o.ImageArchives {
		if _, err := image.Find(path); err != nil {
			return err
		}
	}
	if err := errors.Join(a.TryRealNodes(o.Bin), realnode.CheckDir(o.Dir)); err != nil {
		return fmt.Errorf("--real-nodes: %w", err)
	}
	if slices.Contains(o.With, blueprint.CSIDriver) {
		if err := storage.Check(o.Bin); err != nil {
			return fmt.Errorf("--with %s: %w", blueprint.CSIDriver, err)
		}
	}
	return nil
}

// enclose runs the same command again in namespaces of its own, and stays for as long as it runs. The ports that the lab listens on are held here, on
// the outside, and given to it.
func (a *app) enclose(ctx context.Context, command *cobra.Command, f upFlags, o blueprint.Options) error {
	err := a.startInside(ctx, command, f, o)
	if errors.Is(err, enclave.ErrSaid) {
		return err
	}
	return tell(f.reportFD, err)
}

func (a *app) startInside(ctx context.Context, command *cobra.Command, f upFlags, o blueprint.Options) error {
	o, err := runner.Agree(o, given(command))
	if err != nil {
		return err
	}
	executable, err := a.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	fixed := map[string]int{}
	if o.APIServerPort != 0 {
		fixed[blueprint.APIServerPort] = o.APIServerPort
	}
	ports, err := enclave.Listen(ctx, blueprint.NeededPorts(o), fixed)
	if err != nil {
		return err
	}
	c := enclave.Command{Executable: executable, Args: append([]string{"up", "--dir=" + o.Dir}, givenArguments(command)...), Ports: ports}
	if f.reportFD > 0 {
		// The descriptor has the same number inside, where it is the first of the files.
		c.Files = []*os.File{os.NewFile(uintptr(f.reportFD), "report")}
	}
	return c.Start(ctx)
}

// furnish makes the namespaces around this process a lab's, and gives the request the ports of the outside.
func furnish(ctx context.Context, described string, request *runner.Request) (leave func(), err error) {
	ports, err := enclave.Receive(described)
	if err != nil {
		return nil, err
	}
	if err := enclave.Furnish(realnode.Build); err != nil {
		return nil, errors.Join(err, ports.Close())
	}
	request.FixedPorts = ports.Numbers()
	return ports.Relay(context.WithoutCancel(ctx)), nil
}

// tell reports an error of a detached supervisor to the command that started it, if there is one.
func tell(reportFD int, err error) error {
	if err != nil && reportFD > 0 {
		_ = json.NewEncoder(os.NewFile(uintptr(reportFD), "report")).Encode(report{Error: err.Error()})
	}
	return err
}
