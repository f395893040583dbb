// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cloud

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

type options struct {
	apiPort, metadataPort, adminPort int
	certFile, keyFile, clientCAFile  string
	tokenFile, stateFile, machines   string
	noRateLimits                     bool
	// disks is the folder of the volumes' disks, and machinesAddress where machines reach the API; empty without real machines that use volumes.
	disks, machinesAddress string
}

// NewCommand returns the hidden subcommand that the supervisor runs.
func NewCommand() *cobra.Command {
	var o options
	command := subcommand.Hidden(blueprint.DigitalOcean, "Simulate DigitalOcean", func(ctx context.Context) error { return o.run(ctx) })
	flags := command.Flags()
	flags.IntVar(&o.apiPort, "api-port", 0, "port of the API")
	flags.IntVar(&o.metadataPort, "metadata-port", 0, "port of the metadata service")
	flags.IntVar(&o.adminPort, "admin-port", 0, "port of the administrator's interface")
	flags.StringVar(&o.certFile, "cert-file", "", "certificate of the API and the administrator's interface")
	flags.StringVar(&o.keyFile, "key-file", "", "its key")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "authority of the administrator's certificate")
	flags.StringVar(&o.tokenFile, "token-file", "", "file with the token of the account")
	flags.StringVar(&o.stateFile, "state-file", "", "file with all that exists")
	flags.StringVar(&o.machines, "machines", "", "file with the list of machines, to write")
	flags.BoolVar(&o.noRateLimits, "no-rate-limits", false, "do not limit the rate of requests as DigitalOcean does")
	flags.StringVar(&o.disks, "disks", "", "folder in which volumes are real disks; they are not if it is empty")
	flags.StringVar(&o.machinesAddress, "machines-address", "", "address at which machines reach the API; their metadata service is served with it")
	return command
}

func (o options) run(ctx context.Context) error {
	logger := slog.New(slog.NewTextHandler(os.Stderr, nil))
	token, err := ensureToken(o.tokenFile)
	if err != nil {
		return err
	}
	state, err := readState(o.stateFile)
	if err != nil {
		return err
	}
	if state == nil {
		return fmt.Errorf("%s is not there; the cloud is not made again under a running cluster", o.stateFile)
	}
	asked := ctx
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	f := &follower{path: o.machines, logger: logger}
	f.dirty.Store(true) // machines.json may be older than the state
	settings := settings(token, 0, !o.noRateLimits)
	settings.Changed = func(image func() ([]byte, error)) {
		document, err := image()
		if err == nil {
			err = folder.WriteFile(o.stateFile, document)
		}
		if err != nil {
			// Nobody may be told of what is not remembered: anyone who waits for an answer gets none, as from a cloud that fails, and the process
			// ends and starts again with what it remembers.
			fail(fmt.Errorf("remembering what has changed: %w", err))
			panic(http.ErrAbortHandler)
		}
		f.dirty.Store(true)
	}
	if o.disks != "" {
		devices, err := o.openDisks()
		if err != nil {
			return err
		}
		defer devices.Close()
		settings.Volumes.Devices = devices
	}
	sim, err := digitalocean.Open(settings, state)
	if err != nil {
		return fmt.Errorf("%s is damaged: %w", o.stateFile, err)
	}
	f.sim = sim
	servers, err := o.listen(ctx, sim, logger)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- servers.run(ctx) }()
	f.run(ctx)
	err = <-ended
	if asked.Err() == nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return err
}
