// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package simulated_test

import (
	"flag"
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
)

// TestMain takes away what would carry real time into a bubble: one of the framework's global error handlers remembers when the last error was
// and sleeps until that is a millisecond ago, which in a bubble's year takes decades. Log lines of simulated days are nobody's reading.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = nil
	flags := flag.NewFlagSet("klog", flag.PanicOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL"} {
		if err := flags.Set(name, value); err != nil {
			panic(err)
		}
	}
	klog.SetOutput(discard{})
	os.Exit(m.Run())
}

// discard is io.Discard.
type discard struct{}

// Write takes everything.
func (discard) Write(p []byte) (int, error) { return len(p), nil }
