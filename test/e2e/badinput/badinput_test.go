// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package badinput

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// programs are those that run in a cluster.
func programs() []string {
	return []string{
		"calico-node-sync", "calico-route-reflector-operator", "digitalocean-cloud-controller-manager", "digitalocean-cloud-controller-manager-admission-server",
		"digitalocean-csi-driver", "etcd-storage-operator", "etcd-storage-proxy",
	}
}

// typedFlag is a flag in a help text whose value is a number, a duration or a word of two.
var typedFlag = regexp.MustCompile(`(?m)^ +(?:-\w, )?--([a-z0-9-]+)(?: (int|int32|float|float32|duration|uint))? {2,}`)

// mostTyped is how many flags of one program get a value of the wrong type: the program ends before it looks at another.
const mostTyped = 12

// run runs a program with nothing of our environment.
func run(t *testing.T, program string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, testkit.Binary(t, program), args...)
	cmd.Env = []string{"HOME=/nonexistent", "NO_COLOR=1"}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatalf("%s %q: %v", program, args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// TestBadInputOfEveryProgram wants one sentence of bounded length that names what was wrong, exit code 1 and nothing on standard output.
func TestBadInputOfEveryProgram(t *testing.T) {
	t.Parallel()
	tried := 0
	for _, program := range programs() {
		code, help, stderr := run(t, program, "--help")
		if code != 0 || stderr != "" {
			t.Errorf("%s --help: exit code %d, %s", program, code, stderr)
		}
		mistakes := map[string]string{
			"--no-such-flag": "unknown flag --no-such-flag", "no-such-word": `"no-such-word"`, "-Q": "Q", "--=x": "=x", "--version=perhaps": "--version", "--help=perhaps": "--help",
		}
		typed := 0
		for _, m := range typedFlag.FindAllStringSubmatch(help, -1) {
			if m[1] != "help" && m[1] != "version" && typed < mostTyped {
				mistakes["--"+m[1]+"=1.2.3"] = "--" + m[1]
				typed++
			}
		}
		for mistake, names := range mistakes {
			tried++
			code, stdout, stderr := run(t, program, mistake)
			line, rest, _ := strings.Cut(stderr, "\n")
			if code != 1 || stdout != "" || rest != "" || !strings.HasPrefix(line, "error: ") || len(line) > 600 || !strings.Contains(line, names) {
				t.Errorf("%s %s: exit code %d, stdout %q, stderr\n%swant one line with %q", program, mistake, code, stdout, stderr, names)
			}
		}
	}
	if t.Logf("%d mistakes", tried); tried < 80 {
		t.Errorf("only %d mistakes were tried", tried)
	}
}
