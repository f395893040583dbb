// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package enclavetest runs the tests of a package in namespaces as a lab with real pods has them.
package enclavetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/enclave"
)

// Main is a TestMain. The tests run in a second process of the same program. Where no namespace may be made there are no tests, which is said, and
// is a failure with CI=true.
func Main(m *testing.M) {
	inside := flag.String(enclave.Flag, "", "of the second process")
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == enclave.Flag })
	if given {
		if err := enclave.Furnish(enclave.Pods); err != nil {
			fmt.Fprintln(os.Stderr, "furnishing the namespaces of the tests:", err, *inside)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	// The program's own flags come before any argument, so that of the second process comes first.
	err := enclave.Command{Executable: "/proc/self/exe", Args: os.Args[1:]}.Start(context.Background())
	switch {
	case err == nil:
		os.Exit(0)
	case errors.Is(err, netns.ErrNotAllowed) && os.Getenv("CI") != "true":
		fmt.Fprintln(os.Stdout, "SKIP:", err)
		os.Exit(0)
	case !errors.Is(err, enclave.ErrSaid):
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(1)
}
