// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/speaker"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// TestRefusals asks for a BGP network where there is no bird, and where no namespace may be made: one sentence, and nothing is begun.
func TestRefusals(t *testing.T) {
	l := prepare(t)
	if os.Geteuid() != 0 {
		t.Skip("only root can take bird and rights from the program")
	}
	bird, _, err := speaker.FindBird()
	if err != nil {
		t.Fatal(err)
	}
	empty := filepath.Join(t.TempDir(), "not-a-program")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		before []string
		want   string
	}{
		// In a mount namespace of its own, which ends with it.
		"no bird":       {[]string{"sh", "-c", `mount --bind "$0" "$1" && shift && exec "$@"`, empty, bird}, speaker.ErrNoBird.Error()},
		"no permission": {[]string{"setpriv", "--bounding-set", "-sys_admin"}, netns.ErrNotAllowed.Error()},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(c.before[0]); err != nil {
				testkit.Skip(t, "%s is needed: %v", c.before[0], err)
			}
			args := append(c.before[1:len(c.before):len(c.before)], testkit.Binary(t, "lab"), "up", "--network", blueprint.NetworkBGP, "--dir", l.Dir)
			command := exec.CommandContext(t.Context(), c.before[0], args...)
			command.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
			out, err := command.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "lab up: --network bgp: ") || !strings.Contains(string(out), c.want) {
				t.Errorf("%v, %s\nwant: %s", err, out, c.want)
			}
			if strings.Count(strings.TrimSpace(string(out)), "\n") > 0 {
				t.Errorf("it is more than one sentence:\n%s", out)
			}
			if _, err := os.Stat(l.Dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("something was begun: %v", err)
			}
		})
	}
}
