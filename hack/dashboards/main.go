// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// folder is where the chart has them, from the repository's root.
const folder = "charts/mooring/dashboards"

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	for _, d := range all() {
		content, err := d.render()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, folder, d.component+".json"), content, 0o644); err != nil { //nolint:gosec // it is public
			return err
		}
	}
	return nil
}
