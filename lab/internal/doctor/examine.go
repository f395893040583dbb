// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/folder"
	heldports "github.com/mooring-dev/mooring/lab/internal/ports"
)

// goWanted is what go.mod asks for.
const goWanted = "1.26"

// commandTimeout bounds each program that is asked something.
const commandTimeout = 10 * time.Second

// Examine looks at the machine for a lab in dir. It leaves nothing behind.
func Examine(ctx context.Context, dir string) Facts {
	f := Facts{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0,
		GoVersion: goVersion(ctx), GoWanted: goWanted, DiskWanted: folder.MinFreeBytes,
		PortsError: holdOnePort(ctx), NamespaceError: tryNamespaces(ctx),
		Compiler: look("cc", "gcc", "clang"), Bird: look("bird", "/usr/sbin/bird"), Make: look("make"), Git: look("git"),
	}
	f.GoIsUsable = version.Compare(f.GoVersion, "go"+goWanted) >= 0
	if free, err := folder.FreeSpace(dir); err == nil {
		f.DiskBytes, f.DiskKnown = free, true
	}
	f.MemoryBytes, f.MemoryKnown = availableMemory()
	return f
}

// goVersion asks the go command, such as "go1.26.8".
func goVersion(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	output, err := exec.CommandContext(ctx, "go", "env", "GOVERSION").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(output))
}

func holdOnePort(ctx context.Context) error {
	var holder heldports.Holder
	port, err := holder.Any()
	if err != nil {
		return err
	}
	listener, err := heldports.Listen(ctx, port)
	if err == nil {
		err = listener.Close()
	}
	return errors.Join(err, holder.Close())
}

// tryNamespaces starts a program that does nothing in new user and network namespaces, or only in a network namespace as root.
func tryNamespaces(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	command := exec.CommandContext(ctx, "true")
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		command.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		command.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		command.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	if err := command.Run(); err != nil {
		return fmt.Errorf("not allowed (%w)", err)
	}
	return nil
}

func look(names ...string) string {
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	return ""
}

// availableMemory reads MemAvailable of /proc/meminfo, which is in KiB.
func availableMemory() (size uint64, known bool) {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if value, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
			return kib << 10, err == nil
		}
	}
	return 0, false
}
