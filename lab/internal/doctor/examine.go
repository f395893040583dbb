// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"go/version"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	heldports "github.com/mooring-dev/mooring/lab/internal/ports"
)

// goWanted is what go.mod asks for.
const goWanted = "1.26"

// commandTimeout bounds each program that is asked something.
const commandTimeout = 10 * time.Second

// Examine looks at the machine for a lab in dir. tryNetwork makes a network as the lab's and takes it down (network.Try), and tryRealNodes judges
// whether machines can be real. Nothing is left behind.
func Examine(ctx context.Context, dir string, tryNetwork func(context.Context) error, tryRealNodes func() error) Facts {
	f := Facts{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Root: os.Geteuid() == 0,
		GoVersion: goVersion(ctx), GoWanted: goWanted, DiskWanted: folder.MinFreeBytes,
		PortsError: holdOnePort(ctx), NetworkError: tryNetwork(ctx), RealNodesError: tryRealNodes(),
		Compiler: look("cc", "gcc", "clang"), Make: look("make"), Git: look("git"),
	}
	f.Bird, _, _ = speaker.FindBird()
	f.Templates, f.TemplatesError = speaker.FindTemplates(ctx)
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
