// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"os"
	"path/filepath"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// TestALife makes a volume of each kind, writes to it, moves it to another machine and reads it there, grows it, and deletes it.
func TestALife(t *testing.T) {
	t.Parallel()
	s := newScene(t, 2, digitalocean.VolumeOptions{})
	for _, fileSystem := range []string{"ext4", "xfs"} {
		s.life(t, fileSystem)
	}
	if left := s.sim.Account("").Volumes(); len(left) != 0 {
		t.Errorf("volumes are left: %v", left)
	}
}

func (s *scene) life(t *testing.T, fileSystem string) {
	t.Helper()
	first, second := s.droplets[0], s.droplets[1]
	volume := s.create("pvc-"+fileSystem, 1)
	published := s.attach(first, volume)
	s.must(s.stage(first, volume, published, mounted(fileSystem)))
	s.must(s.stage(first, volume, published, mounted(fileSystem)))
	s.must(s.publish(first, volume, published, mounted(fileSystem)))
	s.must(s.publish(first, volume, published, mounted(fileSystem)))
	s.must(os.WriteFile(s.see(first, filepath.Join(first.target(volume), "file")), []byte("what was written"), 0o600))
	s.must(s.withdraw(first, volume))
	s.must(s.withdraw(first, volume))
	s.detach(first, volume)
	s.detach(first, volume)

	grown, err := s.controller().ControllerExpandVolume(t.Context(), &spec.ControllerExpandVolumeRequest{
		VolumeId: volume, CapacityRange: gibibytes(2), VolumeCapability: mounted(fileSystem),
	})
	s.must(err)
	if grown.GetCapacityBytes() != 2<<30 {
		t.Errorf("it was grown to %d bytes", grown.GetCapacityBytes())
	}
	published = s.attach(second, volume)
	s.must(s.stage(second, volume, published, mounted(fileSystem)))
	s.must(s.publish(second, volume, published, mounted(fileSystem)))
	got, err := os.ReadFile(s.see(second, filepath.Join(second.target(volume), "file")))
	if err != nil || string(got) != "what was written" {
		t.Errorf("on the second machine: %q, %v", got, err)
	}
	stats, err := second.node().NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: second.target(volume)})
	s.must(err)
	if total := stats.GetUsage()[0].GetTotal(); total < 3<<29 {
		t.Errorf("the file system has %d bytes after it was grown to 2 GiB", total)
	}
	s.must(s.withdraw(second, volume))
	s.detach(second, volume)
	_, err = s.controller().DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: volume})
	s.must(err)
}
