// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cloud

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// The component and the cloud are killed while they work, in turn and together; at last the whole lab ends and starts again. No droplet, no load
// balancer and no Node is lost or there twice, and all keep their identity.
func TestKilledAtAnyTime(t *testing.T) {
	t.Parallel()
	s := newSite(t, "--nodes=2", "--calico-datastore=none")
	rounds := [][]string{{manager}, {"digitalocean"}, {manager, "digitalocean"}}
	if !testing.Short() {
		rounds = append(rounds, []string{"digitalocean", manager}, []string{"kube-apiserver", manager}, []string{"nodes", "digitalocean"})
	}
	var services []string
	for i, victims := range rounds {
		name := fmt.Sprintf("web-%d", i)
		services = append(services, name)
		s.service(name)
		s.run("droplet", "create", fmt.Sprintf("late-%d", i))
		s.pause(i)
		s.kill(victims...)
	}
	testkit.Eventually(t, "everything to be as it should", func() string { return s.complete(len(rounds)+2, services) })
	before := s.identities()

	s.run("down")
	s.up()
	testkit.Eventually(t, "everything to be as it was", func() string { return s.complete(len(rounds)+2, services) })
	if after := s.identities(); after != before {
		t.Errorf("after the next start there are\n%s\nbefore there were\n%s", after, before)
	}
}

// pause lets the component get further in one round than in another.
func (s *site) pause(round int) {
	end := time.Now().Add(time.Duration(round) * 150 * time.Millisecond)
	testkit.Eventually(s.t, "a moment to pass", func() string {
		if time.Now().Before(end) {
			return "not yet"
		}
		return ""
	})
}

// complete says what is not as it should be: a Node for each droplet, all initialized, and a load balancer for each Service.
func (s *site) complete(machines int, services []string) string {
	count := 0
	for _, d := range s.droplets() {
		if !d.Node {
			continue
		}
		count++
		if lack := s.initialized(d); lack != "" {
			return d.Name + ": " + lack
		}
	}
	nodes, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		return err.Error()
	}
	if count != machines || len(nodes.Items) != machines {
		return fmt.Sprintf("%d droplets and %d Nodes, want %d", count, len(nodes.Items), machines)
	}
	return s.served(services...)
}

// identities names everything by what must never change.
func (s *site) identities() string {
	text := fmt.Sprintln(s.droplets())
	all, err := s.balancers()
	s.must(err)
	for _, lb := range all {
		text += fmt.Sprintln(lb.ID, lb.Name, lb.IP, lb.DropletIDs, lb.Tags)
	}
	nodes, err := s.client.CoreV1().Nodes().List(s.t.Context(), metav1.ListOptions{})
	s.must(err)
	for _, node := range nodes.Items {
		text += fmt.Sprintln(node.Name, node.UID, node.Spec.ProviderID)
	}
	return text
}

// The two processes of the cloud end with the lab, nothing of them is anywhere but in its folder, and the token is in no log.
func TestNothingStaysBehind(t *testing.T) {
	t.Parallel()
	elsewhere := t.TempDir()
	s := &site{t: t, dir: filepath.Join(t.TempDir(), "lab"), env: []string{"PATH=" + os.Getenv("PATH"), "PWD=" + elsewhere}}
	for variable, folder := range map[string]string{"HOME": "home", "TMPDIR": "tmp", "XDG_RUNTIME_DIR": "runtime"} {
		s.must(os.Mkdir(filepath.Join(elsewhere, folder), 0o700))
		s.env = append(s.env, variable+"="+filepath.Join(elsewhere, folder))
	}
	testkit.Binary(t, manager)
	t.Cleanup(func() { _, _ = s.try("down") })
	s.up("--nodes=1", "--calico-datastore=none")
	running := map[string]int{}
	for _, p := range s.described().Processes {
		if p.PID != 0 {
			running[p.Name] = p.PID
		}
	}
	for _, name := range []string{manager, "digitalocean"} {
		if running[name] == 0 || !alive(running[name], s.dir) {
			t.Fatalf("%s does not run as process %d", name, running[name])
		}
	}
	token, err := os.ReadFile(filepath.Join(s.dir, "etc", "digitalocean-token"))
	s.must(err)
	for name := range running {
		if out := s.run("logs", name); strings.Contains(out, strings.TrimSpace(string(token))) {
			t.Errorf("the token is in the log of %s", name)
		}
	}
	s.run("down")
	for name, pid := range running {
		if alive(pid, s.dir) {
			t.Errorf("%s (process %d) is still there", name, pid)
		}
	}
	s.run("down", "--delete")
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	s.must(filepath.WalkDir(elsewhere, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			t.Errorf("it left %s", path)
		}
		return err
	}))
}

// alive reports whether a process still runs that has to do with a folder: numbers of processes are used again.
func alive(pid int, dir string) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	return err == nil && strings.Contains(string(line), dir)
}
