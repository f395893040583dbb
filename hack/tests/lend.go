// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/lending"
)

// planesFolder stands for a package in the file of costs, for what control planes cost while nobody borrowed them: their start, and idle ones.
const planesFolder = "(control planes)"

// lend returns a runner whose tests borrow control planes, and what stops those and records what they cost. If that cannot be, for instance since
// another run in this checkout lends already, tests start their own.
func (r runner) lend() (runner, func() error) {
	lab := cmp.Or(os.Getenv(testkit.LabBinaryVariable), filepath.Join(r.root, "bin", "lab"))
	// The name is the same in each run: go test has a package's result in its cache by the variables that its tests read.
	socket := fmt.Sprintf("@mooring-control-planes-%x", sha256.Sum256([]byte(r.root)))[:64]
	pool, err := lending.Open(socket, lab, os.Getenv(testkit.APIServerVariable), max(2, runtime.NumCPU())+1)
	if err != nil {
		fmt.Fprintf(r.out, "Each package starts control planes of its own: %v\n", err)
		return r, func() error { return nil }
	}
	r.planes = socket
	began := time.Now()
	return r, func() error {
		usage, err := pool.Close()
		if usage.Starts == 0 {
			return err
		}
		fmt.Fprintf(r.out, "\n%d control planes were started and lent %d times; %d could not be reset\n", usage.Starts, usage.Loans, usage.Broken)
		rest := usage.CPU
		for folder, used := range usage.Lent {
			rest -= used
			if inner, relErr := filepath.Rel(r.root, folder); relErr == nil {
				err = errors.Join(err, r.appendCost("(control planes of "+inner+")", 0, used))
			}
		}
		return errors.Join(err, r.appendCost(planesFolder, time.Since(began), rest))
	}
}
