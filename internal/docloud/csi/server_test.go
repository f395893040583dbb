// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
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

// TestSanityWithoutRoot runs csi-sanity against the services with folders in place of disks, for file systems and for raw block volumes. It runs in parts, since
// all of it at once takes more calls than the driver makes in a minute.
func TestSanityWithoutRoot(t *testing.T) {
	t.Parallel()
	program := testkit.Binary(t, "csi-sanity")
	for name, part := range map[string][]string{
		"controller": {"mount", "-ginkgo.focus=Controller Service"},
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
				"-csi.testvolumeaccesstype=" + part[0],
			}, part[1:]...)
			out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput() //nolint:gosec // our own program
			ran := summary.FindStringSubmatch(string(out))
			if err != nil || ran == nil || ran[1] == "0" {
				const most = 8000
				t.Fatalf("csi-sanity: %v\n%s", err, out[max(0, len(out)-most):])
			}
			t.Logf("%s of %s specs ran, all passed", ran[1], ran[2])
			if left := s.sim.Account("").Volumes(); len(left) != 0 {
				t.Errorf("%d volumes are left", len(left))
			}
		})
	}
}
