// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scratch

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"golang.org/x/sys/unix"
)

// parentOfHolder names the folder in which TestHolds makes one of its own.
const parentOfHolder = "MOORING_SCRATCH_TEST"

// TestHolds holds a folder until it is killed. The tests below run it in another process.
func TestHolds(t *testing.T) {
	parent := os.Getenv(parentOfHolder)
	if parent == "" {
		t.Skip("the other tests run it")
	}
	f := must.Get(New(parent)).Or(t)
	_, _ = os.Stdout.WriteString(f.Path + "\n")
	<-t.Context().Done()
}

func TestAFolderIsSweptWhenItsProcessWasKilled(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestHolds$")
	cmd.Env = append(os.Environ(), parentOfHolder+"="+parent)
	out := must.Get(cmd.StdoutPipe()).Or(t)
	must.Do(t, cmd.Start())
	path := must.Get(bufio.NewReader(out).ReadString('\n')).Or(t)
	path = path[:len(path)-1]
	must.Do(t, os.WriteFile(filepath.Join(path, "file"), nil, 0o600))
	later := time.Now().Add(time.Hour)
	expect := func(what string, now time.Time, there bool) {
		t.Helper()
		must.Do(t, sweep(parent, now))
		if _, err := os.Stat(path); (err == nil) != there {
			t.Fatalf("%s: the folder is there: %t", what, err == nil)
		}
	}
	expect("while the process lives", later, true)
	must.Do(t, cmd.Process.Kill())
	_ = cmd.Wait()
	expect("as soon as it is made", time.Now(), true)
	expect("when the process was killed", later, false)
}

// What a killed test has mounted is not removed with its folder.
func TestWhatIsMountedStays(t *testing.T) {
	t.Parallel()
	foreign, path := t.TempDir(), filepath.Join(t.TempDir(), prefix+"1", "a")
	file := filepath.Join(foreign, "file")
	must.Do(t, errors.Join(os.MkdirAll(path, 0o700), os.WriteFile(file, nil, 0o600)))
	err := unix.Mount(foreign, path, "", unix.MS_BIND, "")
	if errors.Is(err, unix.EPERM) && os.Getenv("CI") != "true" {
		t.Skip("it needs root and the right to mount a folder")
	}
	must.Do(t, err)
	folder, later := filepath.Dir(path), time.Now().Add(time.Hour)
	if err := sweep(filepath.Dir(folder), later); err == nil || !strings.Contains(err.Error(), "is mounted: unmount it") {
		t.Errorf("sweep: %v", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("what was mounted was removed: %v", err)
	}
	must.Do(t, errors.Join(unix.Unmount(path, 0), sweep(filepath.Dir(folder), later)))
	if _, err := os.Stat(folder); !os.IsNotExist(err) {
		t.Errorf("the folder is there after it was unmounted: %v", err)
	}
}

func TestRemove(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	foreign := filepath.Join(parent, prefix+"file")
	must.Do(t, os.WriteFile(foreign, nil, 0o600))
	f := must.Get(New(parent)).Or(t)
	must.Do(t, os.MkdirAll(filepath.Join(f.Path, "a", "b"), 0o700))
	must.Do(t, f.Remove())
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(foreign) {
		t.Errorf("left are %v, %v", left, err)
	}
	if _, err := New(filepath.Join(parent, "nowhere")); err == nil {
		t.Error("a folder was made where none can be")
	}
}
