// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package realnode_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/realnode/cgroup"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

// What is missing is said in one sentence that names the cure, and the first thing to do comes first.
func TestJudge(t *testing.T) {
	t.Parallel()
	good := realnode.Facts{Root: true, Instances: realnode.WantedInstances, Bin: "/bin"}
	if err := realnode.Judge(good); err != nil {
		t.Errorf("nothing is missing: %v", err)
	}
	for want, spoil := range map[string]func(*realnode.Facts){
		"run the lab as root": func(f *realnode.Facts) { f.Root = false },
		"apt-get install -y --no-install-recommends runc nftables": func(f *realnode.Facts) { f.Missing = []string{"runc", "nftables"} },
		"no groups, mount them":                               func(f *realnode.Facts) { f.Cgroups = errors.New("no groups, mount them") },
		"sysctl -w fs.inotify.max_user_instances=1024":        func(f *realnode.Facts) { f.Instances = 128 },
		"kubelet is not built in /bin; run `make real-nodes`": func(f *realnode.Facts) { f.Unbuilt = []string{"kubelet"} },
	} {
		f := good
		spoil(&f)
		if err := realnode.Judge(f); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
}

func TestCheckDir(t *testing.T) {
	t.Parallel()
	for dir, allowed := range map[string]bool{"/run/lab": false, "/var/lib": false, "/var/log/x/y": false, "/var/library": true, "/tmp/lab": true, "/home/x/run": true} {
		if err := realnode.CheckDir(dir); (err == nil) != allowed {
			t.Errorf("%s: %v, want it allowed: %t", dir, err, allowed)
		}
	}
}

func TestControlGroups(t *testing.T) {
	t.Parallel()
	mount := t.TempDir()
	if err := cgroup.Check(mount); err == nil || !strings.Contains(err.Error(), "controllers cpu, ") {
		t.Errorf("without hierarchies: %v", err)
	}
	if err := os.WriteFile(filepath.Join(mount, "cgroup.controllers"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := cgroup.Check(mount); err == nil || !strings.Contains(err.Error(), "systemd.unified_cgroup_hierarchy=0") {
		t.Errorf("with version 2: %v", err)
	}
	if a, b := cgroup.Of("/a", "node-1"), cgroup.Of("/b", "node-1"); a == b || !strings.HasPrefix(a, cgroup.Root("/a")+"/") {
		t.Errorf("groups %s and %s", a, b)
	}
}

func TestImageArchives(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if _, err := image.Make(dir, filepath.Join(dir, "images"), nil); err == nil || !strings.Contains(err.Error(), "run `make real-nodes`") {
		t.Errorf("without programs: %v", err)
	}
	for _, name := range image.Own() {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("a program"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	made, err := image.Make(dir, filepath.Join(dir, "images"), nil)
	if err != nil || len(made) != len(image.Own()) || made[0].Repository+":"+image.Tag != image.Pause {
		t.Errorf("made %+v, %v", made, err)
	}
	if found, err := image.Find(made[0].Path); err != nil || found.Repository != "docker.io/mooring/pause" {
		t.Errorf("found %+v, %v", found, err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "none.tar"): "build it with `make images BINARY=none`",
		filepath.Join(dir, "pause"):    "name a .tar file",
	} {
		if _, err := image.Find(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}
