// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package folder_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

func claim(t *testing.T, dir string) *folder.Folder {
	t.Helper()
	f := must.Get(folder.Claim(dir)).Or(t)
	t.Cleanup(func() { _ = f.Release() })
	return f
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

func TestOneOwnerAtATime(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lab")
	first := claim(t, dir)
	if _, err := folder.Claim(dir); !errors.Is(err, folder.ErrBusy) {
		t.Errorf("a second claim: %v", err)
	}
	if busy, err := folder.Busy(first.Layout); !busy || err != nil {
		t.Errorf("busy: %v, %v", busy, err)
	}
	must.Do(t, first.Release())
	if busy, err := folder.Busy(first.Layout); busy || err != nil {
		t.Errorf("busy after the release: %v, %v", busy, err)
	}
	claim(t, dir)
}

func TestOnlyTheOwnerCanLookInside(t *testing.T) {
	t.Parallel()
	open := t.TempDir()
	must.Do(t, os.Chmod(open, 0o755))
	must.Do(t, claim(t, open).Populate())
	must.Do(t, filepath.WalkDir(open, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	}))
}

func TestAbandonUndoesAClaim(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	fresh := claim(t, filepath.Join(root, "a", "b"))
	must.Do(t, fresh.Abandon())
	if exists(filepath.Join(root, "a")) {
		t.Error("a folder that the claim made is left")
	}
	old := claim(t, filepath.Join(root, "c"))
	must.Do(t, errors.Join(old.Populate(), old.Release()))
	must.Do(t, claim(t, old.Dir).Abandon())
	if !exists(old.Logs()) || !exists(old.LockFile()) {
		t.Error("an abandoned claim harmed the lab that was there before")
	}
}

func TestForeignFoldersAreLeftAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	must.Do(t, os.WriteFile(precious, nil, 0o600))
	if _, err := folder.Claim(dir); !errors.Is(err, folder.ErrForeign) {
		t.Errorf("claim: %v", err)
	}
	if err := folder.Delete(dir); !errors.Is(err, folder.ErrForeign) {
		t.Errorf("delete: %v", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("the folder holds %v, %v", entries, err)
	}
}

func TestCheckSpace(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "not", "there")
	if err := folder.CheckSpace(dir, 1); err != nil {
		t.Error(err)
	}
	if err := folder.CheckSpace(dir, 1<<62); err == nil {
		t.Error("a disk of exabytes was found")
	}
}

func TestJSONFiles(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.json")
	var got folder.Lab
	if err := folder.ReadJSON(path, &got); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	must.Do(t, folder.WriteJSON(path, folder.Lab{Version: 7}))
	if err := folder.ReadJSON(path, &got); err != nil || got.Version != 7 {
		t.Errorf("read back: %+v, %v", got, err)
	}
	must.Do(t, os.WriteFile(path, []byte("{"), 0o600))
	if err := folder.ReadJSON(path, &got); err == nil {
		t.Error("a damaged file was read")
	}
}
