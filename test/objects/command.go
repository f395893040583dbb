// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package objects

import (
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/spf13/cobra"
)

// commands lets one test at a time make and use a command: the frameworks share flags of the whole process (pflag.CommandLine) between all
// commands, and write to them when a command is made and when it reads its arguments. A program has one command, a test has several.
var commands sync.Mutex //nolint:gochecknoglobals // it guards what is global itself

// WithCommand makes a command and lets use have it, while no other test has one. What cannot be made ends the test.
func WithCommand(tb testing.TB, newCommand func() (*cobra.Command, error), use func(*cobra.Command)) {
	tb.Helper()
	commands.Lock()
	defer commands.Unlock()
	command := must.Get(newCommand()).Or(tb)
	use(command)
}

// ParseFlags returns the error of a command that reads arguments; see [WithCommand].
func ParseFlags(tb testing.TB, newCommand func() (*cobra.Command, error), args []string) (err error) {
	tb.Helper()
	WithCommand(tb, newCommand, func(c *cobra.Command) { err = c.ParseFlags(args) })
	return err
}

// Sure is a maker of commands for [WithCommand] of one that cannot fail.
func Sure(newCommand func() *cobra.Command) func() (*cobra.Command, error) {
	return func() (*cobra.Command, error) { return newCommand(), nil }
}
