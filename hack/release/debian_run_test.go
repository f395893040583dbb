// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// machine is the architecture that tests run on.
func machine() string { return runtime.GOARCH }

// fromMirror makes the list again with what Debian has now, and has apt fetch the packages: how this machine reaches a mirror is apt's to know. It returns the
// list and the URL of a mirror with these packages.
func fromMirror(t *testing.T) (debianList, string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		testkit.Skip(t, "the test needs apt, to fetch packages of Debian: %v", err)
	}
	var base string
	for uri := range strings.Lines(string(out)) {
		if before, ok := strings.CutSuffix(strings.TrimRight(uri, "/\n"), "/debian"); ok {
			base = before
		}
	}
	if base == "" {
		testkit.Skip(t, "the test needs a machine that takes packages from a mirror of Debian")
	}
	apt := aptFolder{dir: t.TempDir(), mirror: base}
	list, err := newDebianList(t.Context(), apt, []platform{{"linux", "amd64"}, {"linux", "arm64"}}, time.Now())
	if err != nil {
		testkit.Skip(t, "the test needs a mirror of Debian 12: %v", err)
	}
	pinned := must.Get(parseDebianList(read(t, debianListFile(root)))).Or(t)
	if diff := cmp.Diff(pinned.packages, list.packages, cmp.AllowUnexported(debianPackage{})); diff != "" {
		t.Logf("Debian has other versions than hack/release/debian.txt, and the test runs with Debian's; make debian takes them (-pinned +now):\n%s", diff)
	} else {
		list = pinned
	}
	files := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		packages := must.Get(list.of(arch)).Or(t)
		download := []string{"-q", "download"}
		for _, p := range packages {
			download = append(download, p.name+"="+p.version)
		}
		if _, err := apt.run(t.Context(), arch, "apt-get", download...); err != nil {
			testkit.Skip(t, "the test needs packages from a mirror of Debian: %v", err)
		}
		for _, p := range packages {
			files["/"+p.path] = read(t, apt.dir, path.Base(p.path))
		}
	}
	_, url := serve(t, files)
	return list, url
}

// TestDebianPrograms makes the layers from Debian's real packages, unpacks the one for this machine, and runs each program in it, with nothing around it: they
// say their versions, and make, check and grow real file systems.
func TestDebianPrograms(t *testing.T) {
	t.Parallel()
	list, mirror := fromMirror(t)
	layers := map[string]*debianLayer{}
	for arch, times := range map[string]int{"amd64": 2, "arm64": 1} {
		for range times {
			layer, err := list.layer(t.Context(), arch, debianSource{mirror: mirror, archive: mirror, day: list.day, cache: t.TempDir()})
			must.Do(t, err)
			if before := layers[arch]; before != nil && !bytes.Equal(before.content, layer.content) {
				t.Errorf("two layers for %s differ", arch)
			}
			layers[arch] = layer
		}
	}
	for arch, layer := range layers {
		t.Logf("the layer for %s has %d bytes", arch, len(layer.content))
		if most := 30 << 20; len(layer.content) > most {
			t.Errorf("the layer for %s has %d bytes: something is in it that no program needs", arch, len(layer.content))
		}
	}
	if diff := cmp.Diff(names(t, layers["amd64"].content, "x86_64-linux-gnu"), names(t, layers["arm64"].content, "aarch64-linux-gnu")); diff != "" {
		t.Errorf("programs and libraries (-amd64 +arm64):\n%s", diff)
	}
	layer, ok := layers[machine()]
	if !ok || os.Getuid() != 0 {
		testkit.Skip(t, "the test needs root on amd64 or arm64, to run programs with the layer as their root folder")
	}
	in := jail(unpackLayer(t, layer.content))
	t.Run("versions", func(t *testing.T) { t.Parallel(); in.versions(t) })
	t.Run("ext4", func(t *testing.T) { t.Parallel(); in.ext4(t) })
	t.Run("xfs", func(t *testing.T) { t.Parallel(); in.xfs(t) })
}

// names returns the files of a layer without what each architecture has as its own: the loader, and the name of its folder.
func names(t *testing.T, layer []byte, triplet string) []string {
	t.Helper()
	out := map[string]bool{}
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return slices.Sorted(maps.Keys(out))
		}
		must.Do(t, err)
		if h.Typeflag != tar.TypeDir && !strings.Contains(h.Name, "ld-linux-") {
			out[strings.Replace(h.Name, triplet, "TRIPLET", 1)] = true
		}
	}
}

// unpackLayer writes a layer into a folder.
func unpackLayer(t *testing.T, layer []byte) string {
	t.Helper()
	into := t.TempDir()
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return into
		}
		must.Do(t, err)
		file := filepath.Join(into, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.Mkdir(file, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, file)
		default:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = os.WriteFile(file, content, h.FileInfo().Mode().Perm())
			}
		}
		must.Do(t, err)
	}
}

// jail is a folder that programs see as all that there is.
type jail string

// find looks for a program as the image's PATH says.
func (j jail) find(t *testing.T, program string) string {
	t.Helper()
	for folder := range strings.SplitSeq(debianPath, ":") {
		if _, err := os.Lstat(filepath.Join(string(j), folder, program)); err == nil {
			return path.Join(folder, program)
		}
	}
	t.Fatalf("%s is not in %s of the layer", program, debianPath)
	return ""
}

// start is how the kernel shows a container its devices and processes, and then runs a program. The mounts end with the program.
const start = `set -e
mount --make-rprivate /
mkdir -p dev proc mnt
mount --bind /dev dev
mount --bind /proc proc
if [ -n "$MOUNTED" ]; then mount -o loop "$MOUNTED" mnt; fi
exec chroot . "$@"
`

// run runs a program and returns what it says and its exit code, -1 if it cannot be started.
func (j jail) run(t *testing.T, program string, args ...string) (string, int) {
	t.Helper()
	return j.runMounted(t, "", program, args...)
}

// runMounted runs a program while the file system of a disk, if one is named, is mounted at /mnt.
func (j jail) runMounted(t *testing.T, disk, program string, args ...string) (string, int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "unshare", slices.Concat([]string{"--mount", "sh", "-c", start, "sh", j.find(t, program)}, args)...)
	command.Dir, command.Env = string(j), append(os.Environ(), "LC_ALL=C", "MOUNTED="+disk)
	out, err := command.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err.Error(), -1
	}
	return string(out), command.ProcessState.ExitCode()
}

// must runs a program that has to succeed.
func (j jail) must(t *testing.T, program string, args ...string) string {
	t.Helper()
	out, code := j.run(t, program, args...)
	if code != 0 {
		t.Fatalf("%s %q ends with %d: %s", program, args, code, out)
	}
	return out
}

// disk makes, or grows, a sparse file.
func (j jail) disk(t *testing.T, name string, size int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(string(j), name), os.O_CREATE|os.O_RDWR, 0o600)
	if err == nil {
		err = errors.Join(f.Truncate(size), f.Close())
	}
	must.Do(t, err)
}

// versions: each program starts, which needs the loader and all libraries.
func (j jail) versions(t *testing.T) {
	said := map[string]struct {
		flag, words string
		code        int
	}{
		"blkid": {"-V", "blkid from util-linux", 0}, "blkdiscard": {"-V", "blkdiscard from util-linux", 0},
		"mkfs.ext4": {"-V", "mke2fs 1.", 0}, "e2fsck": {"-V", "e2fsck 1.", 0}, "fsck.ext4": {"-V", "e2fsck 1.", 0}, "resize2fs": {"-h", "resize2fs 1.", 1},
		"mkfs.xfs": {"-V", "mkfs.xfs version ", 0}, "xfs_repair": {"-V", "xfs_repair version ", 0}, "xfs_growfs": {"-V", "xfs_growfs version ", 0},
	}
	for _, w := range debianContents() {
		for _, file := range w.files {
			program := path.Base(file)
			if !strings.Contains(file, "sbin/") {
				continue
			}
			want, ok := said[program]
			if out, code := j.run(t, program, want.flag); !ok || code != want.code || !strings.Contains(out, want.words) {
				t.Errorf("%s %s ends with %d: %s", program, want.flag, code, out)
			}
		}
	}
}

// ext4: a file system is made as the driver does, is found, checked and grown, and is not overwritten by another.
func (j jail) ext4(t *testing.T) {
	j.disk(t, "ext4", 64<<20)
	j.must(t, "mkfs.ext4", "-q", "-m0", "/ext4")
	if out := j.must(t, "blkid", "-o", "value", "-s", "TYPE", "/ext4"); out != "ext4\n" {
		t.Errorf("blkid says %q", out)
	}
	j.must(t, "fsck.ext4", "-f", "-p", "/ext4")
	j.disk(t, "ext4", 128<<20)
	j.must(t, "e2fsck", "-f", "-p", "/ext4")
	if out := j.must(t, "resize2fs", "/ext4"); !strings.Contains(out, " is now 131072 (1k) blocks long") {
		t.Errorf("resize2fs says %q", out)
	}
	j.must(t, "fsck.ext4", "-f", "-n", "/ext4")
	if out, code := j.run(t, "mkfs.xfs", "-q", "/ext4"); code == 0 || !strings.Contains(out, "appears to contain an existing filesystem (ext4)") {
		t.Errorf("mkfs.xfs of a disk with data ends with %d: %s", code, out)
	}
}

// xfs: a file system is made as the driver does, is found, checked and, while it is mounted, grown.
func (j jail) xfs(t *testing.T) {
	j.disk(t, "xfs", 512<<20)
	j.must(t, "mkfs.xfs", "-q", "/xfs")
	if out := j.must(t, "blkid", "-o", "value", "-s", "TYPE", "/xfs"); out != "xfs\n" {
		t.Errorf("blkid says %q", out)
	}
	j.must(t, "xfs_repair", "-n", "/xfs")
	j.disk(t, "xfs", 1<<30)
	if out, code := j.runMounted(t, "xfs", "xfs_growfs", "/mnt"); code != 0 || !strings.Contains(out, "data blocks changed from 131072 to 262144") {
		t.Errorf("xfs_growfs ends with %d: %s", code, out)
	}
	j.must(t, "xfs_repair", "-n", "/xfs")
}
