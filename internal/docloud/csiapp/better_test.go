// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
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

// TestATokenOfAnotherAccountDoesNotStart: the controller ends with one sentence if the token's account has not its droplet, by the
// flag or by the metadata service. A number that is none is refused as well.
func TestATokenOfAnotherAccountDoesNotStart(t *testing.T) {
	t.Parallel()
	s := newScene(t, 0, digitalocean.VolumeOptions{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, map[string]string{"/metadata/v1/region": "nyc1", "/metadata/v1/id": "4242"}[r.URL.Path])
	}))
	t.Cleanup(service.Close)
	for name, row := range map[string]struct {
		flags []string
		words string
	}{
		"by the flag":     {[]string{"--region=nyc1", "--droplet-id=4243"}, "the token is of another account, which has no droplet 4243"},
		"by the metadata": {[]string{"--metadata-url=" + service.URL}, "the token is of another account, which has no droplet 4242"},
		"no number":       {[]string{"--region=nyc1", "--droplet-id=node-1"}, `the droplet's ID is "node-1": it must be a number`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := append([]string{
				"--endpoint=unix://" + filepath.Join(s.folder, strings.ReplaceAll(name, " ", "-")+".sock"), "--url=" + s.api.URL,
				"--token=" + digitalocean.DefaultToken,
			}, row.flags...)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, s.binary, args...).CombinedOutput() //nolint:gosec // our own program
			if err == nil || ctx.Err() != nil || !strings.Contains(string(out), row.words) {
				t.Errorf("%v, %s; want %q", err, out, row.words)
			}
		})
	}
}

// TestTheDriverServesWhileTheAPIFails: what fails is the answer of each request, and as soon as the API responds all is well.
func TestTheDriverServesWhileTheAPIFails(t *testing.T) {
	t.Parallel()
	var fails atomic.Bool
	fails.Store(true)
	s := newSceneWith(t, 0, sceneOptions{between: func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if fails.Load() {
				http.Error(w, "under maintenance", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r)
		})
	}})
	if _, err := s.controller().ControllerGetCapabilities(t.Context(), &spec.ControllerGetCapabilitiesRequest{}); err != nil {
		t.Error(err)
	}
	_, err := s.controller().CreateVolume(t.Context(), &spec.CreateVolumeRequest{
		Name: "pvc-1", CapacityRange: gibibytes(1), VolumeCapabilities: []*spec.VolumeCapability{mounted("ext4")},
	})
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "DigitalOcean's API at "+s.api.URL+" responds with an error") {
		t.Errorf("%v", err)
	}
	fails.Store(false)
	s.create("pvc-1", 1)
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

// TestADiskIsNotUnstagedWhileSomethingHasIt: a program in another mount namespace, which this one does not see, or a pod with the raw device. A mount
// in another namespace that no program uses ends when the staging path is removed (Linux since 3.18).
func TestADiskIsNotUnstagedWhileSomethingHasIt(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	unstage := func(volume string) error {
		_, err := m.node().NodeUnstageVolume(t.Context(), &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: m.staging(volume)})
		return err
	}
	refused := func(err error, words string) {
		t.Helper()
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), words) {
			t.Errorf("%v; want FailedPrecondition and %q", err, words)
		}
	}

	volume := s.create("pvc-1", 1)
	published := s.attach(m, volume)
	s.must(s.stage(m, volume, published, mounted("ext4")))
	holder := testkit.Start(t, filepath.Join(s.folder, "other.log"), nil,
		"nsenter", "--mount", "--target", s.inside(m), "unshare", "--mount", "--propagation", "private", "sh", "-c", "cd "+m.staging(volume)+" && echo ready && exec sleep infinity")
	t.Cleanup(holder.Kill)
	testkit.Eventually(t, "the other namespace", func() string {
		if strings.Contains(holder.Output(), "ready") {
			return ""
		}
		return "it is not ready: " + holder.Output()
	})
	for range 2 {
		refused(unstage(volume), "a program in another mount namespace may have it")
	}
	m.process.Kill() // what is staged is remembered
	s.start(m.program)
	refused(unstage(volume), "a program in another mount namespace may have it")
	holder.Kill()
	testkit.Eventually(t, "unstaging", func() string {
		if err := unstage(volume); err != nil {
			return err.Error()
		}
		return ""
	})

	raw := s.create("pvc-raw", 1)
	published = s.attach(m, raw)
	block := (&disk{}).capability()
	s.must(s.stage(m, raw, published, block))
	s.must(s.publish(m, raw, published, block))
	refused(unstage(raw), m.target(raw))
	s.must(s.withdraw(m, raw))
	if left, _ := filepath.Glob(filepath.Join(s.folder, "plugin-*", "staged-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestReadOnlyWritesNothing: not one byte of a disk changes that is staged for reading only, not even where its journal was not
// replayed yet and the disk has grown.
func TestReadOnlyWritesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	for _, fileSystem := range []string{"ext4", "xfs"} {
		source := s.create("pvc-source-"+fileSystem, 1)
		s.must(s.stage(m, source, s.attach(m, source), mounted(fileSystem)))
		s.in(m, "sh", "-c", "echo hello > "+m.staging(source)+"/file && sync && mv "+m.staging(source)+"/file "+m.staging(source)+"/moved && sync")
		volume := s.create("pvc-copy-"+fileSystem, 2)
		published := s.attach(m, volume)
		device, err := os.OpenFile(s.disks.Device(volume), os.O_RDWR, 0)
		s.must(err)
		s.blocks(source, func(at int64, data []byte) { // as after a power cut: mounted, and with a journal to replay
			_, err := device.WriteAt(data, at)
			s.must(err)
		})
		s.must(errors.Join(device.Sync(), device.Close()))
		before := s.sum(volume)
		only := mounted(fileSystem)
		only.AccessMode.Mode = spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY
		s.must(s.stage(m, volume, published, only))
		s.in(m, "ls", m.staging(volume))
		s.must(s.withdraw(m, volume))
		if s.sum(volume) != before {
			t.Errorf("%s: the disk has changed", fileSystem)
		}
		s.must(s.stage(m, volume, published, mounted(fileSystem)))
		s.in(m, "grep", "-q", "hello", m.staging(volume)+"/moved")
		s.must(s.withdraw(m, volume))
		if s.sum(volume) == before {
			t.Errorf("%s: with a journal that was replayed the disk is as before, so that nothing is shown", fileSystem)
		}
	}
}

// blocks calls back for each MiB of a volume's disk that has data. Its file is sparse.
func (s *scene) blocks(volume string, see func(at int64, data []byte)) {
	s.t.Helper()
	s.must(exec.CommandContext(s.t.Context(), "blockdev", "--flushbufs", s.disks.Device(volume)).Run())
	f, err := os.Open(s.disks.File(volume))
	s.must(err)
	defer func() { _ = f.Close() }()
	const unit = 1 << 20
	for at := int64(0); ; at += unit {
		if at, err = unix.Seek(int(f.Fd()), at, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) {
			return
		}
		s.must(err)
		at = at / unit * unit
		data := make([]byte, unit)
		_, err := f.ReadAt(data, at)
		s.must(err)
		see(at, data)
	}
}

// sum is a hash of a volume's whole disk.
func (s *scene) sum(volume string) string {
	s.t.Helper()
	hash := sha256.New()
	s.blocks(volume, func(at int64, data []byte) {
		if len(bytes.Trim(data, "\x00")) > 0 {
			fmt.Fprintf(hash, "%d %x\n", at, sha256.Sum256(data))
		}
	})
	return fmt.Sprintf("%x", hash.Sum(nil))
}

// TestALinkIsNoTarget: what is mounted would appear where the link leads to.
func TestALinkIsNoTarget(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1, digitalocean.VolumeOptions{})
	m := s.droplets[0]
	volume := s.create("pvc-1", 1)
	published := s.attach(m, volume)
	elsewhere := filepath.Join(s.folder, "elsewhere")
	s.must(os.Mkdir(elsewhere, 0o700))
	for _, path := range []string{m.staging(volume), m.target(volume)} {
		s.must(os.MkdirAll(filepath.Dir(path), 0o700))
		s.must(os.Symlink(elsewhere, path))
	}
	refused := func(err error, path string) {
		t.Helper()
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), path+" is a symbolic link: remove it") {
			t.Error(err)
		}
	}
	refused(s.stage(m, volume, published, mounted("ext4")), m.staging(volume))
	if !bytes.Equal(s.ends(volume), make([]byte, 2<<20)) {
		t.Error("it was refused after the disk was formatted")
	}
	s.must(os.Remove(m.staging(volume)))
	s.must(s.stage(m, volume, published, mounted("ext4")))
	refused(s.publish(m, volume, published, mounted("ext4")), m.target(volume))
	refused(s.withdraw(m, volume), m.target(volume)) // or what is mounted where the link leads to would go
	s.must(os.Remove(m.target(volume)))
	s.must(s.publish(m, volume, published, mounted("ext4")))
	s.must(s.withdraw(m, volume))
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
		if err := s.stage(m, right, published, c); status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), " left ") {
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
