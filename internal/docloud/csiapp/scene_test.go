// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csiapp

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/sim/disks"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/blocklog"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

func TestMain(m *testing.M) {
	blocklog.Serve()
	testkit.Main(m)
}

// scene is the real binary against a simulator whose volumes are loop devices.
type scene struct {
	t        *testing.T
	binary   string
	folder   string
	more     sceneOptions
	sim      *digitalocean.Simulator
	disks    *disks.Disks
	api      *httptest.Server
	control  *program
	droplets []*machine
}

// sceneOptions are what few tests need.
type sceneOptions struct {
	volumes digitalocean.VolumeOptions
	seed    uint64
	// between is what stands between the driver and the simulator, and programs a folder that the node plugin's programs are looked for in first.
	between  func(http.Handler) http.Handler
	programs string
}

// program is one process of the driver.
type program struct {
	name    string
	command []string
	env     []string
	process *testkit.Process
	socket  string
	conn    *grpc.ClientConn
}

// machine is a droplet: a mount namespace of its own, and the node plugin in it.
type machine struct {
	*program
	id     int
	holder *testkit.Process // keeps the namespace while the plugin is down
	folder string
}

// newScene starts a simulator, the controller and a node plugin for each of some droplets.
func newScene(t *testing.T, droplets int, options digitalocean.VolumeOptions) *scene {
	t.Helper()
	return newSceneWith(t, droplets, sceneOptions{volumes: options})
}

func newSceneWith(t *testing.T, droplets int, more sceneOptions) *scene {
	t.Helper()
	needDevices(t)
	s := &scene{t: t, binary: testkit.Binary(t, Component), folder: testkit.Folder(t, "csi"), more: more}
	s.disks = disks.New(s.folder)
	t.Cleanup(s.disks.Close)
	t.Cleanup(s.showLogs)
	s.disks.Show(shown(t, cases.Seed(t)))
	more.volumes.Devices = s.disks
	s.sim = digitalocean.New(digitalocean.Options{Seed: more.seed, RateLimits: ratelimit.Limits{Hour: -1, Minute: -1}, Volumes: more.volumes})
	handler := s.sim.Handler()
	if more.between != nil {
		handler = more.between(handler)
	}
	s.api = httptest.NewServer(handler)
	t.Cleanup(s.api.Close)
	for i := range droplets {
		d, err := s.sim.Account("").CreateDroplet(digitalocean.DropletSpec{Name: "node-" + strconv.Itoa(i)})
		if err != nil {
			t.Fatal(err)
		}
		m := &machine{id: d.ID, folder: filepath.Join(s.folder, "node-"+strconv.Itoa(d.ID))}
		s.boot(m)
		t.Cleanup(func() {
			m.process.Kill()
			m.holder.Kill()
		})
		s.droplets = append(s.droplets, m)
	}
	s.control = s.newController("controller")
	return s
}

// shown returns how many bytes of their names disks show in a test, as the serial number and as the designator: each
// test has each variant for one of a few commits.
func shown(t *testing.T, seed uint64) (serial, designator int) {
	t.Helper()
	hash := fnv.New64a()
	_, _ = fmt.Fprint(hash, t.Name()) // it never fails
	serials, designators := assumed.DiskSerialBytes(), assumed.DiskDesignatorBytes()
	n := int((seed + hash.Sum64()) % uint64(len(serials)*len(designators))) //nolint:gosec // a small number
	serial, designator = serials[n%len(serials)], designators[n/len(serials)]
	t.Logf("disks show %d bytes of a serial number and %d of a designator", serial, designator)
	return serial, designator
}

// showLogs logs the ends of the programs' logs if the test failed.
func (s *scene) showLogs() {
	if s.t.Failed() {
		files, _ := filepath.Glob(filepath.Join(s.folder, "*.log"))
		testkit.LogEnds(s.t, 20000, files...)
	}
}

// needDevices skips where there are no loop devices or not the programs.
func needDevices(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		testkit.Skip(t, "it needs root, for loop devices and mounts")
	}
	for _, one := range []string{"mkfs.ext4", "mkfs.xfs", "xfs_growfs", "resize2fs", "e2fsck", "nsenter", "unshare"} {
		if _, err := exec.LookPath(one); err != nil {
			testkit.Skip(t, "it needs %s: apt-get install e2fsprogs xfsprogs util-linux", one)
		}
	}
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		testkit.Skip(t, "it needs loop devices: %v", err)
	}
}

// newController starts a controller, of which there may be several.
func (s *scene) newController(name string) *program {
	s.t.Helper()
	p := &program{name: name, socket: s.socket(name)}
	p.command = []string{
		s.binary, "--endpoint=unix://" + p.socket, "--url=" + s.api.URL, "--region=nyc1", "--token=" + digitalocean.DefaultToken, "--action-poll-interval=20ms", "-v=2",
	}
	if len(s.droplets) > 0 {
		p.command = append(p.command, "--droplet-id="+s.droplets[0].nodeID())
	}
	s.start(p)
	s.t.Cleanup(func() { p.process.Kill() })
	return p
}

// socket is in a folder of the program's own, next to which it keeps what outlives it.
func (s *scene) socket(name string) string {
	s.t.Helper()
	folder := filepath.Join(s.folder, "plugin-"+name)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		s.t.Fatal(err)
	}
	return filepath.Join(folder, "csi.sock")
}

// boot starts a machine: its namespace, and the node plugin.
func (s *scene) boot(m *machine) {
	s.t.Helper()
	m.holder = testkit.Start(s.t, filepath.Join(s.folder, "holder.log"), nil, "unshare", "--mount", "--propagation", "private", "sleep", "infinity")
	name := "node-" + strconv.Itoa(m.id)
	m.program = &program{name: name, socket: s.socket(name)}
	m.command = []string{
		"nsenter", "--mount", "--target", s.inside(m), s.binary, "--endpoint=unix://" + m.socket, "--region=nyc1", "--droplet-id=" + strconv.Itoa(m.id),
		"--device-links=" + s.disks.Links(m.id), "--device-sysfs=" + s.disks.Sysfs(), "--device-wait=5s", "-v=2",
	}
	if s.more.programs != "" {
		m.env = []string{"PATH=" + s.more.programs + ":" + os.Getenv("PATH")}
	}
	s.start(m.program)
}

// inside is the number of the process that holds a machine's namespace, when it has one.
func (s *scene) inside(m *machine) string {
	s.t.Helper()
	pid := strconv.Itoa(m.holder.PID())
	own, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		s.t.Fatal(err)
	}
	testkit.Eventually(s.t, "the namespace of a machine", func() string {
		if its, err := os.Readlink("/proc/" + pid + "/ns/mnt"); err != nil || its == own {
			return fmt.Sprintf("its namespace is %s (%v)", its, err)
		}
		return ""
	})
	return pid
}

// see is where a path of a machine is to be seen from here.
func (s *scene) see(m *machine, path string) string {
	return filepath.Join("/proc", strconv.Itoa(m.holder.PID()), "root", path)
}

// start runs a program until it serves, again and again should it end before that, as kubelet does.
func (s *scene) start(p *program) {
	s.t.Helper()
	if p.conn != nil {
		_ = p.conn.Close()
	}
	conn, err := grpc.NewClient("unix://"+p.socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithConnectParams(grpc.ConnectParams{
		Backoff: backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1, MaxDelay: 20 * time.Millisecond}, MinConnectTimeout: time.Second,
	}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	p.conn = conn
	run := func() {
		p.process = testkit.Start(s.t, filepath.Join(s.folder, p.name+".log"), p.env, p.command[0], p.command[1:]...)
	}
	run()
	testkit.Eventually(s.t, "the driver at "+p.socket, func() string {
		if p.ended() {
			run()
		}
		ctx, cancel := context.WithTimeout(s.t.Context(), time.Second)
		defer cancel()
		if _, err := spec.NewIdentityClient(conn).Probe(ctx, &spec.ProbeRequest{}); err != nil {
			return err.Error()
		}
		return ""
	})
}

// ended reports whether the process is gone.
func (p *program) ended() bool {
	select {
	case <-p.process.Done():
		return true
	default:
		return false
	}
}

func (s *scene) controller() spec.ControllerClient { return spec.NewControllerClient(s.control.conn) }
func (m *machine) node() spec.NodeClient           { return spec.NewNodeClient(m.conn) }
func (m *machine) nodeID() string                  { return strconv.Itoa(m.id) }

// staging and target are where the kubelet stages and publishes a volume.
func (m *machine) staging(volume string) string {
	return filepath.Join(m.folder, "plugins/kubernetes.io/csi", volume)
}

func (m *machine) target(volume string) string {
	return filepath.Join(m.folder, "volumes/kubernetes.io~csi", volume)
}

func mounted(fileSystem string) *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{FsType: fileSystem}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func gibibytes(n int64) *spec.CapacityRange { return &spec.CapacityRange{RequiredBytes: n << 30} }

// made are the attributes of the PersistentVolume of a volume that the driver has made of nothing.
func made() map[string]string {
	return map[string]string{csi.FormatKey: string(volume.FormatFirst)}
}

// create makes a volume and returns its ID.
func (s *scene) create(name string, gib int64) string {
	s.t.Helper()
	answer, err := s.controller().CreateVolume(s.t.Context(), &spec.CreateVolumeRequest{
		Name: name, CapacityRange: gibibytes(gib), VolumeCapabilities: []*spec.VolumeCapability{mounted("ext4")},
	})
	if err != nil {
		s.t.Fatalf("creating %s: %v", name, err)
	}
	return answer.GetVolume().GetVolumeId()
}

// attach attaches, and returns the publish context.
func (s *scene) attach(m *machine, volume string) map[string]string {
	s.t.Helper()
	answer, err := s.controller().ControllerPublishVolume(s.t.Context(), &spec.ControllerPublishVolumeRequest{
		VolumeId: volume, NodeId: m.nodeID(), VolumeCapability: mounted("ext4"), VolumeContext: made(),
	})
	if err != nil {
		s.t.Fatalf("attaching %s: %v", volume, err)
	}
	return answer.GetPublishContext()
}

func (s *scene) detach(m *machine, volume string) {
	s.t.Helper()
	if _, err := s.controller().ControllerUnpublishVolume(s.t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: m.nodeID()}); err != nil {
		s.t.Fatalf("detaching %s: %v", volume, err)
	}
}

func (s *scene) stage(m *machine, volume string, published map[string]string, c *spec.VolumeCapability) error {
	_, err := m.node().NodeStageVolume(s.t.Context(), &spec.NodeStageVolumeRequest{
		VolumeId: volume, StagingTargetPath: m.staging(volume), PublishContext: published, VolumeCapability: c,
	})
	return err
}

func (s *scene) publish(m *machine, volume string, published map[string]string, c *spec.VolumeCapability) error {
	_, err := m.node().NodePublishVolume(s.t.Context(), &spec.NodePublishVolumeRequest{
		VolumeId: volume, StagingTargetPath: m.staging(volume), TargetPath: m.target(volume), PublishContext: published, VolumeCapability: c,
	})
	return err
}

// withdraw unpublishes and unstages.
func (s *scene) withdraw(m *machine, volume string) error {
	ctx := s.t.Context()
	if _, err := m.node().NodeUnpublishVolume(ctx, &spec.NodeUnpublishVolumeRequest{VolumeId: volume, TargetPath: m.target(volume)}); err != nil {
		return err
	}
	_, err := m.node().NodeUnstageVolume(ctx, &spec.NodeUnstageVolumeRequest{VolumeId: volume, StagingTargetPath: m.staging(volume)})
	return err
}

func (s *scene) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}
