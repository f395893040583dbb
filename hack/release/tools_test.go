// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// systemOf makes the layer for an architecture, or skips the test where neither the cache nor a mirror has the packages.
func systemOf(t *testing.T, arch string) ([]byte, []deb) {
	t.Helper()
	s := source{root: root, time: time.Unix(1_700_000_000, 0).UTC()}
	layer, used, err := s.system(t.Context(), arch)
	if err != nil && strings.Contains(err.Error(), "is nowhere") {
		testkit.Skip(t, "it needs a mirror of Debian: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return layer, used
}

// TestToolsAreReproducible for both architectures: the same bytes again, nobody's times and names, the license of each package.
func TestToolsAreReproducible(t *testing.T) {
	t.Parallel()
	for _, arch := range []string{"amd64", "arm64"} {
		layer, used := systemOf(t, arch)
		if again, _ := systemOf(t, arch); !bytes.Equal(layer, again) {
			t.Errorf("%s: the second layer differs", arch)
		}
		have := map[string]bool{}
		for r := tar.NewReader(bytes.NewReader(layer)); ; {
			h, err := r.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			have[h.Name] = true
			if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Unix(1_700_000_000, 0)) || h.Typeflag == tar.TypeReg && h.Mode&0o7022 != 0 {
				t.Errorf("%s: %+v", arch, h)
			}
		}
		for _, d := range used {
			if !have["usr/share/doc/"+d.name()+"/copyright"] {
				t.Errorf("%s: %s has no license", arch, d.name())
			}
		}
		t.Logf("%s: %d files of %d packages, %d bytes", arch, len(have), len(used), len(layer))
		if all, _, err := readLock(root); err != nil || len(used)*2 != len(all) {
			t.Errorf("%s: %d of %d packages of both architectures are used: take the others out of debian.sh (%v)", arch, len(used), len(all), err)
		}
	}
}

// TestToolsRun in a folder that has nothing else: each program finds its libraries, and file systems are made, checked and grown there.
func TestToolsRun(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		testkit.Skip(t, "it needs root, for chroot")
	}
	layer, _ := systemOf(t, runtime.GOARCH)
	at := t.TempDir()
	unpack := exec.CommandContext(t.Context(), "tar", "-C", at, "-x")
	unpack.Stdin = bytes.NewReader(layer)
	if out, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mounts, err := os.ReadFile("/proc/mounts") // containers have /proc
	if err != nil {
		t.Fatal(err)
	}
	write(t, at, "proc/mounts", string(mounts))
	run := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "chroot", append([]string{at}, args...)...)
		command.Env = []string{"PATH=" + toolsPath}
		out, err := command.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v: %s", args, err, out)
		}
		return string(out)
	}
	for _, tool := range tools() {
		if tool != "resize2fs" { // it has no such flag, and is run below
			run(tool, "-V")
		}
	}
	for _, name := range []string{"ext4", "xfs"} {
		file := filepath.Join(at, name)
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 1<<30); err != nil {
			t.Fatal(err)
		}
		run("mkfs."+name, "-q", "/"+name)
		if got := run("blkid", "-o", "value", "-s", "TYPE", "/"+name); strings.TrimSpace(got) != name {
			t.Errorf("blkid says %q of %s", got, name)
		}
	}
	if err := os.Truncate(filepath.Join(at, "ext4"), 2<<30); err != nil {
		t.Fatal(err)
	}
	run("e2fsck", "-f", "-p", "/ext4")
	run("resize2fs", "/ext4")
}

// TestAWrongPackageIsRefused, whoever sends it.
func TestAWrongPackageIsRefused(t *testing.T) {
	t.Parallel()
	all, _, err := readLock(root)
	if err != nil {
		t.Fatal(err)
	}
	cache := t.TempDir()
	d := all[0]
	if err := os.WriteFile(filepath.Join(cache, d.sum), []byte("something else"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.path = "nowhere.invalid/" + d.path
	if content, err := d.read(t.Context(), cache, "19700101T000000Z"); err == nil {
		t.Errorf("%d bytes of something else are taken", len(content))
	}
}
