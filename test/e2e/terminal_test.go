// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// Somebody presses Ctrl-C in `make lab`: while the cluster starts, in the middle of the story, and when the lab stays up and waits for just
// that. Nothing that it started goes on, and no file of it is anywhere but in its folder. On a terminal it serves its page, and opens that
// on a desktop.
func TestCtrlCLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	testkit.Binary(t, "calico-node-sync")
	testkit.Binary(t, "kubectl-mooring")
	for name, moment := range map[string]string{
		"starting":   "Starting a lab in",
		"in between": pageTold,
		"staying":    "Leave with Ctrl-C",
	} {
		if testing.Short() && name != "in between" {
			continue // the full run does it
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pressCtrlC(t, moment)
		})
	}
}

// pressCtrlC runs the demo below make on a terminal of its own, and presses Ctrl-C when it has said what is given.
func pressCtrlC(t *testing.T, moment string) {
	t.Helper()
	makefile, dir, elsewhere := filepath.Join(t.TempDir(), "Makefile"), filepath.Join(t.TempDir(), "lab"), t.TempDir()
	rule := fmt.Sprintf("SHELL := /bin/bash\n.SHELLFLAGS := -euo pipefail -c\nlab:\n\t@%s demo --dir %s\n", testkit.Binary(t, "lab"), dir)
	if err := os.WriteFile(makefile, []byte(rule), 0o600); err != nil {
		t.Fatal(err)
	}
	mark := "MOORING_E2E_TERMINAL=" + dir
	bin, opened := desktop(t)
	environment := []string{mark, "PATH=" + bin + ":" + os.Getenv("PATH"), "DISPLAY=:0"}
	for variable, folder := range map[string]string{"HOME": "home", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "runtime", "PWD": "work"} {
		folder = filepath.Join(elsewhere, folder)
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
		environment = append(environment, variable+"="+folder)
	}
	keyboard, screen := openTerminal(t)
	command := exec.Command("make", "-f", makefile, "lab")
	command.Dir, command.Env = filepath.Join(elsewhere, "work"), environment
	command.Stdin, command.Stdout, command.Stderr = screen, screen, screen
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true} // standard input is its terminal
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, process := range marked(mark) {
			_ = syscall.Kill(process, syscall.SIGKILL)
		}
	})
	_ = screen.Close() // so that the last process that ends closes the terminal
	said := watchScreen(keyboard)
	ended := make(chan struct{})
	go func() {
		_ = command.Wait() // how make ends is its own affair
		close(ended)
	}()
	awaitText(t, said, ended, moment)
	if moment == pageTold {
		opensItsPage(t, said, opened)
	}
	if len(marked(mark)) < 2 {
		t.Fatal("its processes cannot be told by the mark in their environment")
	}
	if _, err := keyboard.Write([]byte{3}); err != nil { // what a terminal sends for Ctrl-C (termios(3): VINTR)
		t.Fatal(err)
	}
	testkit.Eventually(t, "the end of make", func() string {
		select {
		case <-ended:
			return ""
		default:
			return "the screen shows:\n" + said()
		}
	})
	testkit.Eventually(t, "the end of all that it started", func() string {
		text := ""
		for _, process := range marked(mark) {
			line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", process))
			text += fmt.Sprintf("%d %q\n", process, line)
		}
		return text
	})
	if strings.Contains(said(), "panic") {
		t.Errorf("it says:\n%s", said())
	}
	err := filepath.WalkDir(elsewhere, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("it left %s", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// pageTold is what is said before the address of the page.
const pageTold = "page:   http://127.0.0.1:"

// desktop is a folder with an xdg-open that opens nothing, but writes what it was to open into a file.
func desktop(t *testing.T) (bin, opened string) {
	t.Helper()
	bin = t.TempDir()
	opened = filepath.Join(bin, "opened")
	script := "#!/bin/sh\necho \"$*\" >" + opened + ".new\nmv " + opened + ".new " + opened + "\n"
	if err := os.WriteFile(filepath.Join(bin, "xdg-open"), []byte(script), 0o700); err != nil { //nolint:gosec // it is run
		t.Fatal(err)
	}
	return bin, opened
}

// opensItsPage: the desktop was asked to open what the screen shows, and there is the page.
func opensItsPage(t *testing.T, said func() string, opened string) {
	t.Helper()
	url := ""
	testkit.Eventually(t, "the page on the desktop", func() string {
		text, err := os.ReadFile(opened)
		if err != nil {
			return err.Error()
		}
		url = strings.TrimSpace(string(text))
		return ""
	})
	if !strings.Contains(said(), "page:   "+url+"\r\n") {
		t.Errorf("the desktop opens %q, the screen shows:\n%s", url, said())
	}
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "<title>Mooring</title>") {
		t.Errorf("%s, %v: %s", response.Status, err, body)
	}
}

// awaitText waits until the screen shows something. The demo waits for pod garbage collection, which takes its minutes on a busy machine.
func awaitText(t *testing.T, said func() string, ended <-chan struct{}, text string) {
	t.Helper()
	limit := time.After(10 * time.Minute)
	for !strings.Contains(said(), text) {
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ended:
			t.Fatalf("it ended before it said %q; the screen shows:\n%s", text, said())
		case <-limit:
			t.Fatalf("waited in vain for %q; the screen shows:\n%s", text, said())
		}
	}
}

// openTerminal opens a pseudo-terminal (pts(4)).
func openTerminal(t *testing.T) (keyboard, screen *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		testkit.Skip(t, "it needs a pseudo-terminal: %v", err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	var number, locked uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &locked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value))); errno != 0 {
			t.Fatalf("setting up a pseudo-terminal: %v", errno)
		}
	}
	screen, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return keyboard, screen
}

// watchScreen reads what appears on a terminal, and returns what returns all of it so far.
func watchScreen(keyboard io.Reader) func() string {
	var mu sync.Mutex
	var text bytes.Buffer
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := keyboard.Read(buffer)
			mu.Lock()
			text.Write(buffer[:n])
			mu.Unlock()
			if err != nil {
				return // the last process has closed it
			}
		}
	}()
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

// marked are the processes that have inherited a variable.
func marked(variable string) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var process int
		if _, err := fmt.Sscanf(entry.Name(), "%d", &process); err != nil {
			continue
		}
		environment, _ := os.ReadFile(filepath.Join("/proc", entry.Name(), "environ"))
		if bytes.Contains(append([]byte{0}, environment...), []byte("\x00"+variable+"\x00")) {
			found = append(found, process)
		}
	}
	return found
}
