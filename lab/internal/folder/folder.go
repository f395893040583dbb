// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// MinFreeBytes is the disk space that a lab asks for: etcd's preallocated logs and databases, and logs.
const MinFreeBytes = 1 << 30

// ErrBusy reports that a supervisor runs in the folder.
var ErrBusy = errors.New("a lab already runs in this folder")

// ErrForeign reports that the folder holds something that is not a lab.
var ErrForeign = errors.New("the folder holds files that are not a lab's")

// FreeSpace returns how many bytes the file system of dir, or of its nearest existing parent, has to give.
func FreeSpace(dir string) (uint64, error) {
	existing := dir
	for {
		if _, err := os.Stat(existing); err == nil || existing == filepath.Dir(existing) {
			break
		}
		existing = filepath.Dir(existing)
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(existing, &stat); err != nil {
		return 0, fmt.Errorf("asking for the free space of %s: %w", existing, err)
	}
	return stat.Bavail * uint64(stat.Bsize), nil
}

// CheckSpace returns an error for users unless FreeSpace is at least minFree.
func CheckSpace(dir string, minFree uint64) error {
	free, err := FreeSpace(dir)
	if err != nil {
		return err
	}
	if free < minFree {
		return fmt.Errorf("the disk of %s has %d MiB free and a lab needs %d MiB; free some space or choose another folder with --dir",
			dir, free>>20, minFree>>20)
	}
	return nil
}

// Folder is the folder of a lab, locked for this process.
type Folder struct {
	blueprint.Layout
	lock *os.File
	// created are the folders that Claim made, children first; Abandon removes them again.
	created []string
}

// Claim makes the folder if need be and locks it. It returns ErrBusy when a supervisor runs there, ErrForeign when it holds something
// else, and an error for users when it cannot be written. The lock is the kernel's and ends with the process, whatever ends it.
func Claim(dir string) (*Folder, error) {
	f := &Folder{Layout: blueprint.Layout{Dir: dir}}
	if err := f.claim(); err != nil {
		return nil, errors.Join(err, f.Abandon())
	}
	return f, nil
}

func (f *Folder) claim() error {
	if err := f.make(f.Dir); err != nil {
		return fmt.Errorf("the folder %s cannot be made (%w); choose another with --dir", f.Dir, plainCause(err))
	}
	if err := checkOurs(f.Layout); err != nil {
		return err
	}
	if err := unix.Access(f.Dir, unix.W_OK); err != nil {
		return fmt.Errorf("the folder %s cannot be written (%w); choose another with --dir", f.Dir, err)
	}
	lock, err := os.OpenFile(f.LockFile(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("the folder %s cannot be written (%w); choose another with --dir", f.Dir, plainCause(err))
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return ErrBusy
		}
		return fmt.Errorf("locking %s: %w", f.LockFile(), err)
	}
	f.lock = lock
	if err := os.Chmod(f.Dir, 0o700); err != nil {
		return fmt.Errorf("closing the folder %s to other users: %w", f.Dir, err)
	}
	return nil
}

// make is MkdirAll that remembers what it made.
func (f *Folder) make(dir string) error {
	if info, err := os.Stat(dir); err == nil {
		if !info.IsDir() {
			return &fs.PathError{Op: "mkdir", Path: dir, Err: unix.ENOTDIR}
		}
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.make(filepath.Dir(dir)); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	f.created = append([]string{dir}, f.created...)
	return nil
}

// checkOurs refuses a folder that has content but is not a lab's: starting there, or deleting it later, would harm somebody.
func checkOurs(layout blueprint.Layout) error {
	entries, err := os.ReadDir(layout.Dir)
	if err != nil {
		return fmt.Errorf("the folder %s cannot be read (%w); choose another with --dir", layout.Dir, plainCause(err))
	}
	if len(entries) == 0 {
		return nil
	}
	if _, err := os.Stat(layout.LockFile()); err != nil {
		return fmt.Errorf("%w: %s; choose an empty or a new folder with --dir", ErrForeign, layout.Dir)
	}
	return nil
}

// Populate makes the folders inside.
func (f *Folder) Populate() error {
	for _, dir := range f.Folders() {
		if err := f.make(dir); err != nil {
			return fmt.Errorf("making %s: %w", dir, err)
		}
	}
	return nil
}

// Abandon undoes Claim for a lab that never started: the folder goes if Claim made it and nothing else is in it.
func (f *Folder) Abandon() error {
	var errs []error
	if f.lock != nil && len(f.created) > 0 {
		errs = append(errs, os.Remove(f.LockFile()))
	}
	for _, dir := range f.created {
		if err := os.Remove(dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, f.Release())
	return errors.Join(errs...)
}

// Release ends the claim.
func (f *Folder) Release() error {
	if f.lock == nil {
		return nil
	}
	err := f.lock.Close()
	f.lock = nil
	return err
}

// Busy reports whether a supervisor holds the folder. It never creates anything.
func Busy(layout blueprint.Layout) (bool, error) {
	lock, err := os.Open(layout.LockFile())
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("opening the lock of %s: %w", layout.Dir, plainCause(err))
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking for the lock of %s: %w", layout.Dir, err)
	}
	return false, nil
}

// Delete removes a lab's folder with all in it. It refuses while a supervisor runs there and when the folder is not a lab's.
func Delete(dir string) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	f, err := Claim(dir)
	if err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(dir), f.Release())
}

// WriteJSON replaces a file in one step, with mode 0600, so that a reader never sees half of it.
func WriteJSON(path string, value any) error {
	content, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding %s: %w", filepath.Base(path), err)
	}
	return WriteFile(path, append(content, '\n'))
}

// WriteFile is WriteJSON for bytes.
func WriteFile(path string, content []byte) error {
	partial := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", path, plainCause(err))
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("writing %s: %w", path, plainCause(err))
	}
	return nil
}

// ReadJSON reads a file into value. The error wraps fs.ErrNotExist when there is no such file.
func ReadJSON(path string, value any) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, plainCause(err))
	}
	if err := json.Unmarshal(content, value); err != nil {
		return fmt.Errorf("%s is damaged (%w); delete it, or the whole folder with `lab down --delete`", path, err)
	}
	return nil
}

// plainCause strips operation and path from an error whose sentence names them already.
func plainCause(err error) error {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		return pathErr.Err
	}
	return err
}
