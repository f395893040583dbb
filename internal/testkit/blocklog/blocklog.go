// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package blocklog records what is written to a disk, and makes of it what the disk may hold after a crash. The disk is a
// file of a FUSE file system under a loop device: the kernel writes to it as to any other disk.
//
// A crash keeps what was flushed. Of what was written since, any part may be lost, in any order, and one write may be cut
// at a sector (Linux, Documentation/block/writeback_cache_control.rst).
package blocklog

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"golang.org/x/sys/unix"
)

// sector is what a disk writes whole or not at all, in bytes.
const sector = 512

// Write is one that arrived: bytes at an offset, or zeros where data is nil. A flush has neither.
type Write struct {
	Offset int64
	Data   []byte
	Zeros  int64
	Flush  bool
}

// Disk is a disk that a process of its own serves: one that ends, however, ends the disk, and what waits for it gets an
// error. A process that serves what it uses itself could not even be killed.
type Disk struct {
	t      *testing.T
	folder string
}

const (
	// variable has the folder of the disk that the process is to serve.
	variable = "MOORING_BLOCKLOG"
	ready    = "ready\n"
)

// Serve serves a disk if the process was started for that, and does not return then. TestMain calls it first.
func Serve() {
	folder := os.Getenv(variable)
	if folder == "" {
		return
	}
	if err := serve(folder); err != nil {
		fmt.Fprintln(os.Stderr, "blocklog:", err)
		os.Exit(1) //nolint:forbidigo // it is in place of TestMain
	}
	os.Exit(0) //nolint:forbidigo // as above
}

func serve(folder string) error {
	// The end of the test is the end of the input: a signal to all processes must not leave the mount behind.
	signal.Ignore(os.Interrupt, syscall.SIGTERM)
	if err := sweep(); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(folder, "file"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "writes"))
	if err != nil {
		return err
	}
	n := &node{file: file, log: gob.NewEncoder(log)}
	server, err := fs.Mount(filepath.Join(folder, "mount"), &root{disk: n}, &fs.Options{
		MountOptions: fuse.MountOptions{DirectMount: true, FsName: "blocklog"},
	})
	if err != nil {
		return err
	}
	if _, err := io.WriteString(os.Stdout, ready); err != nil {
		return errors.Join(err, server.Unmount())
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends, however it does
	// A loop device may still have it, or the mount namespace that another test has made meanwhile: its end ends both.
	return unix.Unmount(filepath.Join(folder, "mount"), unix.MNT_DETACH)
}

// sweep unmounts the disks of processes that were killed.
func sweep() error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		const place = 4 // proc_pid_mountinfo(5)
		if !strings.Contains(line, " blocklog ") || len(fields) <= place {
			continue
		}
		if _, err := os.Stat(fields[place]); errors.Is(err, unix.ENOTCONN) {
			if err := unix.Unmount(fields[place], unix.MNT_DETACH); err != nil {
				return fmt.Errorf("unmounting what a killed test left at %s: %w", fields[place], err)
			}
		}
	}
	return nil
}

// New makes a disk of a file, in a folder, until the test ends. What is written goes into the file. It skips the test where
// the machine has no FUSE, of which few tests have need.
func New(t *testing.T, folder, file string) *Disk {
	t.Helper()
	program, err := os.Executable()
	if err == nil {
		err = errors.Join(os.Symlink(file, filepath.Join(folder, "file")), os.Mkdir(filepath.Join(folder, "mount"), 0o700))
	}
	must.Do(t, err)
	command := exec.CommandContext(context.WithoutCancel(t.Context()), program) //nolint:gosec // this program
	command.Env, command.Stderr = append(os.Environ(), variable+"="+folder), os.Stderr
	in := must.Get(command.StdinPipe()).Or(t)
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	must.Do(t, err)
	t.Cleanup(func() {
		if err := errors.Join(in.Close(), command.Wait()); err != nil && !t.Skipped() {
			t.Errorf("the process of the disk: %v", err)
		}
	})
	if said := make([]byte, len(ready)); func() error { _, err := io.ReadFull(out, said); return err }() != nil {
		t.Skip("it needs FUSE, which this machine does not give: see the message of blocklog above")
	}
	return &Disk{t: t, folder: folder}
}

// Path is where the disk is to be opened.
func (d *Disk) Path() string { return filepath.Join(d.folder, "mount", name) }

// Writes returns what was written so far.
func (d *Disk) Writes() []Write {
	d.t.Helper()
	f := must.Get(os.Open(filepath.Join(d.folder, "writes"))).Or(d.t)
	defer func() { _ = f.Close() }()
	var all []Write
	for decoder := gob.NewDecoder(f); ; {
		var w Write
		if err := decoder.Decode(&w); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			d.t.Fatal(err)
		}
		all = append(all, w)
	}
}

const name = "disk"

// root is the one folder of the file system.
type root struct {
	fs.Inode

	disk *node
}

// OnAdd implements fs.NodeOnAdder.
func (r *root) OnAdd(ctx context.Context) {
	r.AddChild(name, r.NewPersistentInode(ctx, r.disk, fs.StableAttr{Mode: syscall.S_IFREG}), false)
}

// node is the file that logs its writes.
type node struct {
	fs.Inode

	file *os.File

	mu  sync.Mutex // guards log, and the order of what is written
	log *gob.Encoder
}

// Getattr implements fs.NodeGetattrer.
func (d *node) Getattr(_ context.Context, _ fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	info, err := d.file.Stat()
	if err != nil {
		return syscall.EIO
	}
	out.Mode, out.Size, out.Blksize = 0o600|syscall.S_IFREG, uint64(info.Size()), 4096 //nolint:gosec // it is not negative
	return 0
}

// Open implements fs.NodeOpener: nothing stays in the kernel's memory.
func (d *node) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

// Read implements fs.NodeReader.
func (d *node) Read(_ context.Context, _ fs.FileHandle, into []byte, at int64) (fuse.ReadResult, syscall.Errno) {
	n, err := d.file.ReadAt(into, at)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(into[:n]), 0
}

// keep logs a write, and does it.
func (d *node) keep(w Write) syscall.Errno {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.log.Encode(w) != nil || w.apply(d.file) != nil {
		return syscall.EIO
	}
	return 0
}

// Write implements fs.NodeWriter.
func (d *node) Write(_ context.Context, _ fs.FileHandle, data []byte, at int64) (uint32, syscall.Errno) {
	errno := d.keep(Write{Offset: at, Data: slices.Clone(data)})
	return uint32(len(data)), errno //nolint:gosec // at most a MiB
}

// Fsync implements fs.NodeFsyncer.
func (d *node) Fsync(context.Context, fs.FileHandle, uint32) syscall.Errno {
	return d.keep(Write{Flush: true})
}

// Allocate implements fs.NodeAllocater: discards and zeros are the holes that a loop device makes.
func (d *node) Allocate(_ context.Context, _ fs.FileHandle, at, size uint64, mode uint32) syscall.Errno {
	if mode&(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_ZERO_RANGE) == 0 {
		return syscall.EOPNOTSUPP
	}
	return d.keep(Write{Offset: int64(at), Zeros: int64(size)}) //nolint:gosec // within a disk
}

func (w Write) apply(f *os.File) error {
	if w.Zeros > 0 {
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, w.Offset, w.Zeros)
	}
	_, err := f.WriteAt(w.Data, w.Offset)
	return err
}

// Crash returns what of some writes a disk has after it lost power: all that was flushed. Which of the others are lost,
// and where one is cut, is drawn.
func Crash(writes []Write, random *rand.Rand) []Write {
	flushed := 0
	for i, w := range writes {
		if w.Flush {
			flushed = i
		}
	}
	lossy := random.IntN(3) > 0 // else all that was written is there
	var left []Write
	for i, w := range writes {
		switch {
		case i < flushed || !lossy:
		case random.IntN(2) == 0:
			continue
		case len(w.Data) > sector && random.IntN(4) == 0:
			w.Data = w.Data[:sector*random.IntN(len(w.Data)/sector)]
		}
		left = append(left, w)
	}
	return left
}
