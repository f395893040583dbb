// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// ends reads the first and the last MiB of a volume's file.
func (s *scene) ends(volume string) []byte {
	s.t.Helper()
	f, err := os.Open(s.disks.File(volume))
	s.must(err)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	s.must(err)
	const edge = 1 << 20
	both := make([]byte, 2*edge)
	_, first := f.ReadAt(both[:edge], 0)
	_, last := f.ReadAt(both[edge:], info.Size()-edge)
	if first != nil || last != nil && last != io.EOF {
		s.t.Fatal(first, last)
	}
	return both
}

// TestNothingButABlankDiskIsFormatted: what is not known, not readable, or not of the right size is left as it is, byte by byte.
func TestNothingButABlankDiskIsFormatted(t *testing.T) { //nolint:tparallel // the subtests share one machine
	t.Parallel()
	s := newSceneWith(t, 1, sceneOptions{volumes: digitalocean.VolumeOptions{PerDroplet: 30}})
	m := s.droplets[0]
	const size = 1 << 30
	put := func(at int64, text string) func(t *testing.T, device string) {
		return func(t *testing.T, device string) {
			t.Helper()
			f, err := os.OpenFile(device, os.O_RDWR, 0)
			if err == nil {
				_, err = f.WriteAt([]byte(text), at)
			}
			if err != nil || f.Sync() != nil || f.Close() != nil {
				t.Fatal(err)
			}
		}
	}
	run := func(program string, args ...string) func(t *testing.T, device string) {
		return func(t *testing.T, device string) {
			t.Helper()
			if out, err := exec.CommandContext(t.Context(), program, append(args, device)...).CombinedOutput(); err != nil {
				t.Fatalf("%s: %v: %s", program, err, out)
			}
		}
	}
	for name, disk := range map[string]struct {
		prepare func(t *testing.T, device string)
		ask     string
		words   string
	}{
		"LUKS":              {put(0, "LUKS\xba\xbe"), "ext4", "LUKS"},
		"a partition table": {put(512, "EFI PART"), "ext4", "partition table"},
		"a boot sector":     {put(510, "\x55\xaa"), "xfs", "partition table"},
		"LVM":               {put(512, "LABELONE"), "ext4", "LVM"},
		"one byte":          {put(size-1, "x"), "ext4", "not known"},
		"xfs for ext4":      {run("mkfs.xfs", "-q"), "ext4", "not formatted again"},
		"ext4 for xfs":      {run("mkfs.ext4", "-q"), "xfs", "not formatted again"},
		"half an xfs":       {put(0, "XFSB"+strings.Repeat("\x00", 122)+"\x01"), "xfs", "did not finish"},
	} {
		t.Run(name, func(t *testing.T) {
			volume := s.create("pvc-"+strings.ToLower(strings.ReplaceAll(name, " ", "-")), 1)
			published := s.attach(m, volume)
			disk.prepare(t, s.disks.Device(volume))
			before := s.ends(volume)
			err := s.stage(m, volume, published, mounted(disk.ask))
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), disk.words) {
				t.Errorf("%v; want FailedPrecondition and %q", err, disk.words)
			}
			if !bytes.Equal(before, s.ends(volume)) {
				t.Error("the disk has changed")
			}
		})
	}
	t.Run("a disk that cannot be read", func(t *testing.T) {
		volume := s.create("pvc-unreadable", 2)
		published := s.attach(m, volume)
		s.must(os.Truncate(s.disks.File(volume), 1<<30)) // the device keeps its size, and what is behind the end is an input/output error
		err := s.stage(m, volume, published, mounted("ext4"))
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "could be read") {
			t.Errorf("%v", err)
		}
		if !bytes.Equal(s.ends(volume), make([]byte, 2<<20)) {
			t.Error("the disk has changed")
		}
	})
	t.Run("a disk of another size", func(t *testing.T) {
		volume := s.create("pvc-small", 1)
		published := s.attach(m, volume)
		published["dobs.csi.digitalocean.com/volume-size-bytes"] = "5368709120"
		if err := s.stage(m, volume, published, mounted("ext4")); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "has 5368709120 at DigitalOcean") {
			t.Errorf("%v", err)
		}
	})
	t.Run("an attribute that keeps it from being formatted", func(t *testing.T) {
		volume := s.create("pvc-noformat", 1)
		published := s.attach(m, volume)
		for _, key := range []string{"dobs.csi.digitalocean.com/noformat", "com.digitalocean.csi.dobs/noformat"} {
			_, err := m.node().NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
				VolumeId: volume, StagingTargetPath: m.staging(volume), PublishContext: published, VolumeCapability: mounted("ext4"), VolumeContext: map[string]string{key: ""},
			})
			if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), key) {
				t.Errorf("%v", err)
			}
		}
		s.must(s.stage(m, volume, published, mounted("ext4"))) // and without it, it is
	})
}

// TestTheControllerRunsOutsideDigitalOcean: with --region it needs no metadata service, and makes volumes in that region.
func TestTheControllerRunsOutsideDigitalOcean(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0, digitalocean.VolumeOptions{})
	p := &program{name: "outside", socket: filepath.Join(s.folder, "outside.sock")}
	p.command = []string{
		s.binary, "--endpoint=unix://" + p.socket, "--url=" + s.api.URL, "--region=fra1", "--metadata-url=http://127.0.0.1:1/", "--token=" + digitalocean.DefaultToken,
	}
	s.start(p)
	t.Cleanup(func() { p.process.Kill() })
	s.control = p
	s.create("pvc-1", 1)
	if v := s.sim.Account("").Volumes()[0]; v.Region.Slug != "fra1" {
		t.Errorf("the volume is in %s", v.Region.Slug)
	}
}

// TestOldCommandLinesWork: every flag of csi-digitalocean, for both; --validate-attachment needs no effect, since the device is always checked.
func TestOldCommandLinesWork(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0, digitalocean.VolumeOptions{})
	for name, more := range map[string][]string{
		"old-controller": {
			"--token=" + digitalocean.DefaultToken, "--url=" + s.api.URL, "--do-tag=k8s", "--default-volumes-page-size=50", "--do-api-rate-limit=4.5",
		},
		"old-node": {"--validate-attachment", "--volume-limit=6", "--droplet-id=7"},
	} {
		health := testkit.FreeAddress(t)
		p := &program{name: name, socket: filepath.Join(s.folder, name+".sock")}
		p.command = append([]string{
			s.binary, "--endpoint=unix://" + p.socket, "--region=nyc1", "--driver-name=dobs.csi.digitalocean.com", "--debug-addr=" + health,
		}, more...)
		s.start(p)
		t.Cleanup(func() { p.process.Kill() })
		if body := fetch(t, "http://"+health+"/health"); body != "ok\n" {
			t.Errorf("%s: /health answers %q", name, body)
		}
	}
}

// TestTheAutomountRuleIsRemoved, which makes new volumes busy, and no other file; csi-digitalocean needs an init container with a shell for it.
func TestTheAutomountRuleIsRemoved(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0, digitalocean.VolumeOptions{})
	rule, other := filepath.Join(s.folder, "99-digitalocean-automount.rules"), filepath.Join(s.folder, "other.rules")
	for _, file := range []string{rule, other} {
		s.must(os.WriteFile(file, nil, 0o600))
	}
	p := &program{name: "node", socket: filepath.Join(s.folder, "node.sock")}
	p.command = []string{s.binary, "--endpoint=unix://" + p.socket, "--region=nyc1", "--droplet-id=7", "--remove-automount-rule=" + rule}
	for range 2 {
		s.start(p)
		p.process.Kill()
	}
	if left, _ := filepath.Glob(filepath.Join(s.folder, "*.rules")); len(left) != 1 || left[0] != other {
		t.Errorf("left: %v", left)
	}
}

func fetch(t *testing.T, url string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, response.Status, err)
	}
	return string(body)
}

// TestStatisticsOfARawBlockVolume are its size, and of no inodes.
func TestStatisticsOfARawBlockVolume(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	raw := (&disk{}).capability()
	volume := s.create("pvc-1", 3)
	published := s.attach(m, volume)
	s.must(s.stage(m, volume, published, raw))
	s.must(s.publish(m, volume, published, raw))
	stats, err := m.node().NodeGetVolumeStats(t.Context(), &spec.NodeGetVolumeStatsRequest{VolumeId: volume, VolumePath: m.target(volume)})
	if err != nil || len(stats.GetUsage()) != 1 || stats.GetUsage()[0].GetTotal() != 3<<30 || stats.GetUsage()[0].GetUnit() != spec.VolumeUsage_BYTES {
		t.Errorf("%v, %v", stats, err)
	}
}

// TestAVolumeThatIsStillMountedIsNotUnstaged, so that Kubernetes does not detach it.
func TestAVolumeThatIsStillMountedIsNotUnstaged(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	volume := s.create("pvc-1", 1)
	published := s.attach(m, volume)
	s.must(s.stage(m, volume, published, mounted("ext4")))
	elsewhere := filepath.Join(s.folder, "elsewhere")
	s.must(os.Mkdir(elsewhere, 0o700))
	s.in(m, "mount", "--bind", m.staging(volume), elsewhere)
	unstage := func() error {
		_, err := m.node().NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: m.staging(volume)})
		return err
	}
	if err := unstage(); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), elsewhere) {
		t.Errorf("%v", err)
	}
	s.in(m, "umount", elsewhere)
	s.must(unstage())
}

// in runs a program on a machine.
func (s *scene) in(m *machine, command ...string) {
	s.t.Helper()
	args := append([]string{"--mount", "--target", s.inside(m)}, command...)
	if out, err := exec.CommandContext(s.t.Context(), "nsenter", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("%v: %v: %s", command, err, out)
	}
}

// TestMountsWorkWithAnyPropagation: those of the machines here are private, which csi-digitalocean refuses; here it is shared too.
func TestMountsWorkWithAnyPropagation(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	for _, propagation := range []string{"private", "shared", "slave"} {
		s.must(os.MkdirAll(m.folder, 0o700))
		s.in(m, "mount", "--bind", m.folder, m.folder)
		s.in(m, "mount", "--make-"+propagation, m.folder)
		volume := s.create("pvc-"+propagation, 1)
		published := s.attach(m, volume)
		s.must(s.stage(m, volume, published, mounted("ext4")))
		s.must(s.publish(m, volume, published, mounted("ext4")))
		s.must(s.withdraw(m, volume))
		s.in(m, "umount", m.folder)
	}
}

// TestAStaleLinkIsNotFollowed: a link that is left from an earlier attachment leads to another volume of the same size now.
func TestAStaleLinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	right, wrong := s.create("data", 1), s.create("data-2", 1)
	published := s.attach(m, right)
	s.attach(m, wrong)
	link := filepath.Join(s.disks.Links(m.id), "scsi-0DO_Volume_data")
	s.must(os.Remove(link))
	s.must(os.Symlink(s.disks.Device(wrong), link))
	for name, c := range map[string]*spec.VolumeCapability{"mount": mounted("ext4"), "block": (&disk{}).capability()} {
		if err := s.stage(m, right, published, c); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "left from another volume") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !bytes.Equal(s.ends(wrong), make([]byte, 2<<20)) {
		t.Error("the other volume was formatted")
	}
}

// TestWhatIsAttachedByHandTakesRoom from the limit of the node that Kubernetes sees.
func TestWhatIsAttachedByHandTakesRoom(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	limit := func(want int64) {
		t.Helper()
		info, err := m.node().NodeGetInfo(t.Context(), &spec.NodeGetInfoRequest{})
		if err != nil || info.GetMaxVolumesPerNode() != want {
			t.Errorf("%v, %v; want %d", info, err, want)
		}
	}
	limit(15)
	s.attach(m, s.create("pvc-1", 1))
	limit(15) // Kubernetes counts it itself
	byHand := s.create("by-hand", 1)
	published := s.attach(m, byHand)
	limit(14)
	for _, c := range []*spec.VolumeCapability{mounted("ext4"), (&disk{}).capability()} { // of a claim, which Kubernetes counts
		s.must(s.stage(m, byHand, published, c))
		s.must(s.publish(m, byHand, published, c))
		m.process.Kill()
		s.start(m.program)
		limit(15)
		s.must(s.withdraw(m, byHand))
		limit(14)
	}
}

// TestThePluginRegistersItself with kubelet, without node-driver-registrar, and shows metrics of its own.
func TestThePluginRegistersItself(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0, digitalocean.VolumeOptions{})
	p, metrics := &program{name: "node", socket: filepath.Join(s.folder, "node.sock")}, testkit.FreeAddress(t)
	p.command = []string{
		s.binary, "--endpoint=unix://" + p.socket, "--region=nyc1", "--droplet-id=7", "--registration-dir=" + s.folder,
		"--kubelet-registration-path=/var/lib/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock", "--metrics-bind-address=" + metrics,
	}
	s.start(p)
	t.Cleanup(func() { p.process.Kill() })
	conn, err := grpc.NewClient("unix://"+filepath.Join(s.folder, "dobs.csi.digitalocean.com-reg.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	s.must(err)
	defer func() { _ = conn.Close() }()
	info, err := registration.NewRegistrationClient(conn).GetInfo(t.Context(), &registration.InfoRequest{})
	if err != nil || info.GetType() != registration.CSIPlugin || info.GetName() != "dobs.csi.digitalocean.com" ||
		info.GetEndpoint() != "/var/lib/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock" {
		t.Errorf("%v, %v", info, err)
	}
	if _, err := spec.NewNodeClient(p.conn).NodeGetInfo(context.WithoutCancel(t.Context()), &spec.NodeGetInfoRequest{}); err != nil {
		t.Error(err)
	}
	if text, want := fetch(t, "http://"+metrics+"/metrics"), fmt.Sprintf("mooring_csi_requests_total{code=%q,method=%q} 1", "OK", "NodeGetInfo"); !strings.Contains(text, want) {
		t.Errorf("no %s in\n%s", want, text)
	}
}
