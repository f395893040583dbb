// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// asProgram makes the test binary run the command itself, since the framework sets up logging and metrics once per process.
const asProgram = "MOORING_TEST_AS_DIGITALOCEAN_CCM"

// quickly is the value of asProgram with which lists of droplets are read again after a second, so that no test waits for the product's pace.
const quickly = "quickly"

func TestMain(m *testing.M) {
	if how := os.Getenv(asProgram); how != "" {
		config := machines.DefaultConfig()
		if how == quickly {
			config.StatusAge, config.DoubtAge, config.PendingAge, config.PageAge = time.Second, time.Second, time.Second/2, 0
		}
		root, err := newCommand(config)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(command.Main(root))
	}
	testkit.Main(m)
}
