// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/runner"
)

// report is one line from a detached supervisor to the command that started it. Exactly one field is set.
type report struct {
	Progress string `json:"progress,omitempty"`
	Error    string `json:"error,omitempty"`
	Ready    bool   `json:"ready,omitempty"`
}

// runReporting is the life of a detached supervisor: it reports through the pipe until it is ready or has failed.
func runReporting(ctx context.Context, request runner.Request, pipe *os.File) error {
	syscall.CloseOnExec(int(pipe.Fd()))
	encoder := json.NewEncoder(pipe)
	// A reader that has gone away must not harm the lab; errors are of no use here.
	request.Progress = func(line string) { _ = encoder.Encode(report{Progress: line}) }
	request.Ready = func(folder.Lab) {
		_ = encoder.Encode(report{Ready: true})
		_ = pipe.Close()
	}
	request.Populated = redirectOutput
	err := runner.Run(ctx, request)
	if err != nil {
		_ = encoder.Encode(report{Error: err.Error()})
	}
	return err
}

// redirectOutput sends what the Go runtime may have to say, such as a panic, to the supervisor's log.
func redirectOutput(layout blueprint.Layout) error {
	log, err := os.OpenFile(layout.Log("supervisor"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("opening the supervisor's log: %w", err)
	}
	defer log.Close()
	for _, fd := range []int{1, 2} {
		if err := unix.Dup3(int(log.Fd()), fd, 0); err != nil {
			return fmt.Errorf("redirecting output to the supervisor's log: %w", err)
		}
	}
	return nil
}

// upDetached starts the supervisor in a session of its own and relays its reports until it is ready.
func (a *app) upDetached(command *cobra.Command, o blueprint.Options) error {
	ctx, cancel := untilSignal(command)
	defer cancel()
	executable, err := a.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	begin := time.Now()
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("making a pipe: %w", err)
	}
	defer reader.Close()
	// Without ctx: the supervisor outlives this command.
	child := exec.CommandContext(context.WithoutCancel(ctx), executable, detachedArguments(command, o.Dir)...)
	child.ExtraFiles = []*os.File{writer} // becomes descriptor 3
	child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := child.Start(); err != nil {
		return errors.Join(fmt.Errorf("starting the supervisor: %w", err), writer.Close())
	}
	_ = writer.Close() // the child's copy is the one that counts
	forwardNoMore := context.AfterFunc(ctx, func() {
		_ = child.Process.Signal(syscall.SIGTERM) // an interrupted start is ended; a lab that is ready is not
	})
	defer forwardNoMore()
	if err := relay(command.ErrOrStderr(), reader); err != nil {
		_ = child.Wait()
		if ctx.Err() != nil {
			return errors.New("interrupted; the lab has been stopped")
		}
		return err
	}
	printWelcome(command.OutOrStdout(), blueprint.Layout{Dir: o.Dir}, time.Since(begin))
	a.showPage(ctx, command.OutOrStdout(), o)
	return nil
}

const reportFD = 3

// detachedArguments repeats the user's flags for the supervisor.
func detachedArguments(command *cobra.Command, dir string) []string {
	return append([]string{"up", "--foreground", "--report-fd=" + strconv.Itoa(reportFD), "--dir=" + dir}, givenArguments(command)...)
}

// givenArguments repeats the user's flags, apart from the folder.
func givenArguments(command *cobra.Command) []string {
	var args []string
	command.Flags().Visit(func(flag *pflag.Flag) {
		if flag.Name == "dir" {
			return
		}
		if list, ok := flag.Value.(pflag.SliceValue); ok {
			for _, value := range list.GetSlice() {
				args = append(args, "--"+flag.Name+"="+value)
			}
			return
		}
		args = append(args, "--"+flag.Name+"="+flag.Value.String())
	})
	return args
}

// relay prints progress until the supervisor is ready, and returns the error that it reported instead.
func relay(out io.Writer, reports io.Reader) error {
	decoder := json.NewDecoder(reports)
	for {
		var r report
		if err := decoder.Decode(&r); err != nil {
			return errors.New("the supervisor ended without a word; look at the logs with `lab logs supervisor`")
		}
		switch {
		case r.Ready:
			return nil
		case r.Error != "":
			return errors.New(r.Error)
		default:
			fmt.Fprintln(out, "  "+r.Progress)
		}
	}
}

func printWelcome(out io.Writer, layout blueprint.Layout, took time.Duration) {
	fmt.Fprintf(out, "the lab is ready after %.1f s, in %s\n\n", took.Seconds(), layout.Dir)
	fmt.Fprintf(out, "  export KUBECONFIG=%s\n\n", layout.Kubeconfig())
	fmt.Fprintf(out, "look:   lab status, lab logs PROCESS    harm:  lab node remove NAME, lab kill PROCESS    leave:  lab down\n")
	if _, err := os.Stat(layout.CloudState()); err == nil {
		fmt.Fprintf(out, "cloud:  lab droplet list, create, delete, power-off, power-on\n")
		fmt.Fprintf(out, "        kubectl create service loadbalancer web --tcp=80:8080; kubectl get service web --watch\n")
	}
	if _, err := os.Stat(layout.ReadyFile(blueprint.BGPNetwork)); err == nil {
		fmt.Fprintf(out, "routes: lab probe, lab scenario enable\n")
	}
	if _, err := os.Stat(layout.ReadyFile(blueprint.RealNodes)); err == nil {
		fmt.Fprintf(out, "pods:   real ones, on real machines; a Service answers to\n")
		fmt.Fprintf(out, "        kubectl get --raw /api/v1/namespaces/default/services/NAME:PORT/proxy/\n")
	}
}
