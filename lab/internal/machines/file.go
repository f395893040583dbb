// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// Load reads the list. The error wraps fs.ErrNotExist when there is no file.
func Load(path string) (List, error) {
	var list List
	err := folder.ReadJSON(path, &list)
	return list, err
}

// Edit changes the list in the file under a lock, so that no change of another process is lost. A missing file is an empty list. When change
// returns an error nothing is written.
func Edit(path string, change func(List) (List, error)) error {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return fmt.Errorf("opening the lock of %s: %w", path, err)
	}
	defer lock.Close() // lets go of the lock
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return fmt.Errorf("locking %s: %w", path, err)
	}
	list, err := Load(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if list, err = change(list); err != nil {
		return err
	}
	return folder.WriteJSON(path, list)
}
