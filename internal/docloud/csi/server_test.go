// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// served is all three services on a socket, with folders in place of disks.
type served struct {
	sim    *digitalocean.Simulator
	host   *folders
	node   string // ID
	folder string
	socket string
	conn   *grpc.ClientConn
}

func serve(t *testing.T, options digitalocean.VolumeOptions) *served {
	t.Helper()
	s := &served{
		folder: testkit.Folder(t, "csi"),
		sim:    digitalocean.New(digitalocean.Options{RateLimits: ratelimit.Limits{Hour: -1, Minute: -1}, Volumes: options}),
	}
	s.socket = filepath.Join(s.folder, "csi.sock")
	d, err := s.sim.Account("").CreateDroplet(digitalocean.DropletSpec{Name: "node"})
	if err != nil {
		t.Fatal(err)
	}
	s.node, s.host = strconv.Itoa(d.ID), newFolders(s.sim.Account(""), d.ID)
	client, err := doapi.New(doapi.Options{Token: doapi.StaticToken(digitalocean.DefaultToken), Transport: s.sim.Transport()})
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	spec.RegisterIdentityServer(server, &Identity{Name: DriverName, Version: "v0"})
	spec.RegisterControllerServer(server, NewController(ControllerOptions{
		API: client, Region: "nyc1", Droplet: d.ID, PollInterval: 10 * time.Millisecond, Clock: clock.RealClock{}, Log: logr.Discard(),
	}))
	spec.RegisterNodeServer(server, NewNode(NodeOptions{Host: s.host, Droplet: s.node, Region: "nyc1", VolumeLimit: 15, Log: logr.Discard()}))
	socket, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", s.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(socket) }()
	t.Cleanup(server.Stop)
	if s.conn, err = grpc.NewClient("unix://"+s.socket, grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.conn.Close() })
	return s
}

// summary is the last line of csi-sanity.
var summary = regexp.MustCompile(`Ran (\d+) of (\d+) Specs`)

// notRunSpecs are specs of csi-sanity that do not run.
type notRunSpecs struct {
	name   string // a part of theirs
	count  int
	reason string
}

// notRun are those of csi-sanity v5.6.0.
func notRun() []notRunSpecs {
	return []notRunSpecs{
		{"[GroupController ", 6, "DigitalOcean has no snapshots of groups of volumes"},
		{"Node Service / NodeGet", 3, "the node plugin has no health RPCs (ADR 32)"},
		{"GetCapacity", 1, "DigitalOcean tells no capacity"},
		{"max attach limit", 1, "it needs a flag, and Kubernetes' scheduler counts"},
		{"published but is incompatible", 1, "a volume is not published read-only by the controller"},
		{"with accessibility requirements", 1, "snapshots are in the region of their volume"},
		{"pagination should detect volumes added between pages", 1, "it is pending in csi-sanity itself"},
	}
}

// sanitySpecs are csi-sanity's, and which of them have passed.
type sanitySpecs struct {
	mu     sync.Mutex
	passed map[string]bool // guarded by mu
}

// read adds a report of one run.
func (s *sanitySpecs) read(t *testing.T, path string) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var reports []struct {
		SpecReports []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if err := json.Unmarshal(content, &reports); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			if spec.LeafNodeType == "It" {
				name := strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " / ")
				s.passed[name] = s.passed[name] || spec.State == "passed"
			}
		}
	}
}

func (s *sanitySpecs) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int{}
	for name, passed := range s.passed {
		part := slices.IndexFunc(notRun(), func(of notRunSpecs) bool { return strings.Contains(name, of.name) })
		switch {
		case passed:
		case part < 0:
			t.Errorf("csi-sanity's spec %q does not run", name)
		default:
			left[notRun()[part].name]++
		}
	}
	sum := 0
	for _, of := range notRun() {
		if sum += of.count; left[of.name] != of.count {
			t.Errorf("%d specs %q do not run, want %d: %s", left[of.name], of.name, of.count, of.reason)
		}
	}
	// What the page says of the driver's capabilities.
	want := fmt.Sprintf("%d of csi-sanity's %d specs", len(s.passed)-sum, len(s.passed))
	page, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "digitalocean-csi-driver-compared.md"))
	if err != nil || !strings.Contains(strings.Join(strings.Fields(string(page)), " "), want) {
		t.Errorf("the page does not say %q (%v)", want, err)
	}
}

// TestSanityWithoutRoot runs csi-sanity against the services with folders in place of disks, for file systems and for raw block volumes. It runs in parts, since
// all of it at once takes more calls than the driver makes in a minute. Each spec passes in one of them but for those that notRun lists.
func TestSanityWithoutRoot(t *testing.T) {
	t.Parallel()
	program := testkit.Binary(t, "csi-sanity")
	seen := &sanitySpecs{passed: map[string]bool{}}
	t.Cleanup(func() { seen.check(t) })
	for name, part := range map[string][]string{
		"controller": {"mount", "-ginkgo.focus=Controller Service|Controller(Get|List)VolumeHealth"},
		"node/mount": {"mount", "-ginkgo.focus=Node Service|Identity Service|ExpandVolume|ModifyVolume"},
		"node/block": {"block", "-ginkgo.focus=Node Service|ExpandVolume"},
		"snapshots":  {"mount", "-ginkgo.focus=Snapshot", "-ginkgo.skip=Controller Service"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, digitalocean.VolumeOptions{SnapshotEvery: -1, PerDroplet: 200})
			mutable := filepath.Join(s.folder, "mutable.yaml")
			if err := os.WriteFile(mutable, []byte("tags: sanity\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			args := append([]string{
				"-ginkgo.no-color", "-csi.endpoint=" + s.socket, "-csi.stagingdir=" + filepath.Join(s.folder, "staging"), "-csi.mountdir=" + filepath.Join(s.folder, "target"),
				"-csi.testvolumesize=" + strconv.Itoa(1<<30), "-csi.testvolumeexpandsize=" + strconv.Itoa(2<<30), "-csi.testvolumemutableparameters=" + mutable,
				"-csi.testvolumeaccesstype=" + part[0], "-ginkgo.json-report=" + filepath.Join(s.folder, "report.json"),
			}, part[1:]...)
			out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput() //nolint:gosec // our own program
			ran := summary.FindStringSubmatch(string(out))
			if err != nil || ran == nil || ran[1] == "0" {
				const most = 8000
				t.Fatalf("csi-sanity: %v\n%s", err, out[max(0, len(out)-most):])
			}
			seen.read(t, filepath.Join(s.folder, "report.json"))
			if left := s.sim.Account("").Volumes(); len(left) != 0 {
				t.Errorf("%d volumes are left", len(left))
			}
		})
	}
}
