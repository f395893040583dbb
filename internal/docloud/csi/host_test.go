// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// folders is a Host without root and without disks: what is mounted is a folder or an empty file. It keeps the contract of Host as to what is refused.
type folders struct {
	account *digitalocean.Account
	droplet int
	foreign int

	mu      sync.Mutex // guards all below
	content map[string]blockdevice.Content
	mounts  map[string]blockdevice.Device
	staged  map[string]string
	made    map[string]blockdevice.Progress
	used    map[string]string // volumes that something has, and what
}

func newFolders(account *digitalocean.Account, droplet int) *folders {
	return &folders{account: account, droplet: droplet, content: map[string]blockdevice.Content{}, mounts: map[string]blockdevice.Device{}, staged: map[string]string{}, made: map[string]blockdevice.Progress{}, used: map[string]string{}}
}

func device(number int, v digitalocean.Volume) blockdevice.Device {
	return blockdevice.Device{Path: "/dev/" + v.Name, Number: uint64(number), Size: int64(v.SizeGigabytes) << 30} //nolint:gosec // it is small
}

func (f *folders) Find(_ context.Context, name string, _ int64) (blockdevice.Device, error) {
	for i, v := range f.account.Volumes() {
		if v.Name == name && len(v.DropletIDs) == 1 && v.DropletIDs[0] == f.droplet {
			return device(i, v), nil
		}
	}
	return blockdevice.Device{}, fmt.Errorf("%w: volume %s is not attached", blockdevice.ErrNoDevice, name)
}

func (f *folders) Inspect(_ context.Context, d blockdevice.Device) (blockdevice.Content, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if c, found := f.content[d.Path]; found {
		return c, nil
	}
	return blockdevice.Content{Kind: blockdevice.Blank}, nil
}

func (f *folders) Format(ctx context.Context, d blockdevice.Device, v blockdevice.Volume, fileSystem string) error {
	c, _ := f.Inspect(ctx, d)
	f.mu.Lock()
	defer f.mu.Unlock()
	if c.Kind != blockdevice.Blank && (c.Kind != blockdevice.Unknown || f.made[v.ID] != blockdevice.Begun) {
		return fmt.Errorf("%w: %s is not blank", blockdevice.ErrUnsafe, d.Path)
	}
	f.content[d.Path] = blockdevice.Content{Kind: blockdevice.FileSystem, Name: fileSystem}
	f.made[v.ID] = blockdevice.Begun
	return nil
}

func (f *folders) Progress(id string) (blockdevice.Progress, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.made[id], nil
}

func (f *folders) Made(v blockdevice.Volume) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.made[v.ID] = blockdevice.Done
	return nil
}

func (f *folders) Repair(context.Context, blockdevice.Device, string) error { return nil }

func (f *folders) Mount(_ context.Context, d blockdevice.Device, target, _ string, _ blockdevice.Options) error {
	return f.appear(d, target, false)
}

func (f *folders) appear(d blockdevice.Device, target string, file bool) error {
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	put := os.Mkdir
	if file {
		put = func(path string, mode fs.FileMode) error { return os.WriteFile(path, nil, mode) }
	}
	if err := put(target, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mounts[target] = d
	return nil
}

func (f *folders) Bind(ctx context.Context, source, target string, file, _ bool) error {
	d, found, err := f.At(source)
	if file {
		d, err = f.Find(ctx, filepath.Base(source), 0)
		d.Bound = true
	} else if !found {
		return fmt.Errorf("%w: %s", blockdevice.ErrNoPath, source)
	}
	return errors.Join(err, f.appear(d, target, file))
}

func (f *folders) Unmount(_ context.Context, path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mounts, path)
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (f *folders) Remember(path, name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staged[path] = name
	return nil
}

func (f *folders) Staged(path string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.staged[path], nil
}

func (f *folders) Forget(path string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.staged, path)
	return nil
}

func (f *folders) Unused(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if user := f.used[name]; user != "" {
		return fmt.Errorf("%w: %s has it", blockdevice.ErrBusy, user)
	}
	return nil
}

func (f *folders) At(path string) (blockdevice.Device, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d, found := f.mounts[path]
	return d, found, nil
}

func (f *folders) Mounts(d blockdevice.Device) ([]string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var paths []string
	for path, one := range f.mounts {
		if one.Number == d.Number {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

func (f *folders) Rescan(ctx context.Context, d blockdevice.Device) (int64, error) {
	now, err := f.Find(ctx, filepath.Base(d.Path), 0)
	return now.Size, err
}

func (f *folders) Grow(context.Context, blockdevice.Device, string) error { return nil }

func (f *folders) Statistics(path string) (blockdevice.Statistics, error) {
	d, found, _ := f.At(path)
	if !found {
		return blockdevice.Statistics{}, fmt.Errorf("%w: %s", blockdevice.ErrNoPath, path)
	}
	return blockdevice.Statistics{Block: d.Bound, Bytes: blockdevice.Amount{Total: d.Size, Available: d.Size}, Inodes: blockdevice.Amount{Total: 1, Available: 1}}, nil
}

func (f *folders) Foreign() int { return f.foreign }
