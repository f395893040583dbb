// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// summary is the last line of csi-sanity.
var summary = regexp.MustCompile(`Ran (\d+) of (\d+) Specs`)

// sanity runs csi-sanity and fails the test unless every spec that it runs passes.
func sanity(t *testing.T, folder string, command, part []string, more ...string) {
	t.Helper()
	mutable := filepath.Join(folder, "mutable.yaml")
	if err := os.WriteFile(mutable, []byte("tags: sanity\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := append(command, testkit.Binary(t, "csi-sanity"), "-ginkgo.no-color", "-csi.stagingdir="+filepath.Join(folder, "sanity-staging"), //nolint:gocritic // a new list each time
		"-csi.mountdir="+filepath.Join(folder, "sanity-target"), "-csi.testvolumesize="+strconv.Itoa(1<<30), "-csi.testvolumeexpandsize="+strconv.Itoa(2<<30),
		"-csi.testvolumemutableparameters="+mutable)
	args = append(append(args, part...), more...)
	out, err := exec.CommandContext(t.Context(), args[0], args[1:]...).CombinedOutput() //nolint:gosec // our own programs
	ran := summary.FindStringSubmatch(string(out))
	if err != nil || ran == nil {
		t.Fatalf("csi-sanity: %v\n%s", err, failures(string(out)))
	}
	t.Logf("csi-sanity %v: %s of %s specs ran, all passed", more, ran[1], ran[2])
	if ran[1] == "0" {
		t.Error("no spec ran")
	}
}

// failures cuts the end of what csi-sanity said.
func failures(out string) string {
	const most = 12000
	if i := strings.Index(out, "Summarizing"); i >= 0 {
		out = out[max(0, i-most/2):]
	}
	return out[max(0, len(out)-most):]
}

// TestSanity runs csi-sanity against the real binary on loop devices, for file systems and for raw block volumes. It runs in parts, each against drivers of their
// own: all of it at once takes more calls than DigitalOcean, and so the driver, allows in a minute.
func TestSanity(t *testing.T) {
	t.Parallel()
	for name, part := range map[string][]string{
		"controller": {"mount", "-ginkgo.focus=Controller Service|Controller(Get|List)VolumeHealth"},
		"node/mount": {"mount", "-ginkgo.focus=Node Service|Identity Service|ExpandVolume|ModifyVolume"},
		"node/block": {"block", "-ginkgo.focus=Node Service|ExpandVolume"},
		"snapshots":  {"mount", "-ginkgo.focus=Snapshot", "-ginkgo.skip=Controller Service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			kind := part[0]
			s := newScene(t, 1, digitalocean.VolumeOptions{SnapshotEvery: -1, PerDroplet: 200})
			m := s.droplets[0]
			sanity(t, s.folder, []string{"nsenter", "--mount", "--target", s.inside(m)}, part[1:], "-csi.endpoint="+m.socket, "-csi.controllerendpoint="+s.control.socket,
				"-csi.testvolumeaccesstype="+kind)
			if left := s.sim.Account("").Volumes(); len(left) != 0 {
				t.Errorf("%d volumes are left", len(left))
			}
		})
	}
}
