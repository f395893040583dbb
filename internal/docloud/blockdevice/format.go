// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// longestFormat bounds how long a file system is made.
const longestFormat = 10 * time.Minute

// longestCheck bounds how long a file system is checked.
const longestCheck = time.Hour

// Format makes a file system for a volume. Right before, the device is opened for this process alone, has the size that
// it had, and is read again: it must be blank, or hold what mkfs began on this machine and was not seen to finish. That
// it is done is to be kept by [Host.Made] before anybody can write to it. The device stays open until the file system
// is made: as long as something has it open, the kernel gives neither its number nor its name to another disk.
func (h *Host) Format(ctx context.Context, d Device, v Volume, fileSystem string) error {
	program, err := maker(fileSystem)
	if err != nil {
		return err
	}
	held, err := h.hold(d)
	if err != nil {
		return err
	}
	defer func() { _ = held.Close() }()
	content, err := inspect(held, d)
	if err != nil {
		return err
	}
	progress, err := h.Progress(v.ID)
	if err != nil {
		return err
	}
	unfinished := progress == Begun && (content.Kind == Unknown || content.Kind == FileSystem && content.UUID == v.UUID())
	if content.Kind != Blank && !unfinished {
		return fmt.Errorf("%w: %s is not blank, it holds %s", ErrUnsafe, d.Path, content.Name)
	}
	if err := h.keepProgress(v, begunText); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestFormat) // what is half made has to be made again
	defer cancel()
	if err := run(ctx, program, append(makerOptions(fileSystem, v, unfinished), d.Path)...); err != nil {
		return fmt.Errorf("making a file system: %w. It is tried again", err)
	}
	return nil
}

// hold opens a device that nobody else has, and that still is what it was.
func (h *Host) hold(d Device) (*os.File, error) {
	f, err := os.OpenFile(d.Path, os.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%w: opening %s: %w", ErrUnsafe, d.Path, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Rdev != d.Number {
		return nil, errors.Join(fmt.Errorf("%w: %s is another device than a moment ago", ErrUnsafe, d.Path), f.Close())
	}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size != d.Size {
		return nil, errors.Join(fmt.Errorf("%w: %s had %d bytes and has %d now", ErrUnsafe, d.Path, d.Size, size), err, f.Close())
	}
	if err := alone(d.Path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// alone reports by an error that a device is mounted, in whatever mount namespace, or held by another program: the
// kernel lets only one open it with O_EXCL (open(2)).
func alone(path string) error {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.EBUSY) {
		return fmt.Errorf("%w: %s is mounted or held by another program", ErrBusy, path)
	}
	if err != nil {
		return fmt.Errorf("%w: opening %s: %w", ErrUnsafe, path, err)
	}
	return f.Close()
}

// maker is the program that makes a file system.
func maker(fileSystem string) (string, error) {
	switch fileSystem {
	case "ext4":
		return "mkfs.ext4", nil
	case "xfs":
		return "mkfs.xfs", nil
	}
	return "", fmt.Errorf("the file system %q is not supported: use ext4 or xfs", fileSystem)
}

// makerOptions are those of csi-digitalocean and the volume's UUID. Force is used only over what mkfs left unfinished:
// without it mkfs.xfs refuses a device that has something it knows. The root user needs no blocks of his own in a
// volume (-m0).
func makerOptions(fileSystem string, v Volume, force bool) []string {
	options := []string{"-q", "-m0", "-U", v.UUID().String()}
	forced := "-F"
	if fileSystem == "xfs" {
		options, forced = []string{"-q", "-m", "uuid=" + v.UUID().String()}, "-f"
	}
	if force {
		options = append(options, forced)
	}
	return options
}

// Repair checks a file system that is not mounted, and repairs what can be repaired without a decision. xfs repairs
// itself when it is mounted.
func (h *Host) Repair(ctx context.Context, d Device, fileSystem string) error {
	if fileSystem != "ext4" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), longestCheck)
	defer cancel()
	return checked(run(ctx, "e2fsck", "-p", d.Path), d)
}

// checked judges how e2fsck ended.
func checked(err error, d Device) error {
	exit := (*exec.ExitError)(nil)
	const repaired = 1 // man e2fsck: 1 is errors corrected, 4 left uncorrected, 8 operational error
	if err == nil || errors.As(err, &exit) && exit.ExitCode() == repaired {
		return nil
	}
	if exit != nil && exit.ExitCode()&4 != 0 {
		return fmt.Errorf("%w: its file system has errors that need a decision: run e2fsck on %s on this node, after a snapshot of the volume: %w", ErrUnsafe, d.Path, err)
	}
	return fmt.Errorf("checking the file system of %s: %w", d.Path, err)
}

// run runs a program with no input, so that it cannot wait for an answer. The error has the end of what it said.
func run(ctx context.Context, program string, args ...string) error {
	command := exec.CommandContext(ctx, program, args...)
	var said bytes.Buffer
	command.Stdout, command.Stderr = &said, &said
	command.Env = append(os.Environ(), "LC_ALL=C")
	if err := command.Run(); err != nil {
		const most = 400
		text := strings.Join(strings.Fields(said.String()), " ")
		if len(text) > most {
			text = text[len(text)-most:]
		}
		return fmt.Errorf("%s: %w: %s", program, err, text)
	}
	return nil
}
