// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command sample is the program of the image mooring-lab/sample on real machines: what one wants to know of a pod, asked over HTTP.
package main

import (
	"fmt"
	"os"

	"github.com/mooring-dev/mooring/lab/internal/sample"
)

func main() {
	if err := sample.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "sample:", err)
		os.Exit(1)
	}
}
