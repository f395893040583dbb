// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// asProgram makes the test binary the program, so that tests run it as a process of its own without linking it again.
const asProgram = "MOORING_TEST_AS_ETCD_STORAGE_PROXY"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(command.Main(NewCommand()))
	}
	testkit.Main(m)
}

// refusal runs the program in this process with flags that it must refuse, and returns the sentence.
func refusal(t *testing.T, args ...string) string {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := command.Run(t.Context(), NewCommand(), args, &stdout, &stderr)
	out, ok := strings.CutPrefix(stderr.String(), "error: ")
	if code != command.ExitError || !ok || strings.Count(out, "\n") != 1 || stdout.Len() > 0 {
		t.Errorf("%q: got exit code %d, stdout %q and stderr %q; want 1 and one line on stderr", args, code, stdout.String(), stderr.String())
	}
	return strings.TrimSuffix(out, "\n")
}
