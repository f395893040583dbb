// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/controlplane"
)

// run runs the program to its end, with nothing of our environment but what is given, and returns its exit code and all that it said.
func (s *site) run(env []string, args ...string) (code int, said string) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, s.binary, args...)
	command.Env = append([]string{"HOME=/nonexistent"}, env...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, &out
	err := command.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return -1, err.Error()
	}
	return command.ProcessState.ExitCode(), out.String()
}

// refusal is a start that must end with one sentence.
type refusal struct {
	name string
	env  []string
	args []string
	want string
}

// Whatever is wrong with what it is given, the program ends with exit code 1 and one sentence, and has written nothing: not one request that
// writes reached the API server, and etcd's revision has not moved. A machine is gone there, and would be cleaned up.
func TestBadSettingsWriteNothing(t *testing.T) {
	t.Parallel()
	s := newDirtySite(t, "settings", goes)
	etcd := "ETCD_ENDPOINTS=" + s.through.EtcdURL
	plain := []refusal{
		{"no datastore", nil, nil, "no datastore is named: set --datastore-type"},
		{"an unknown datastore", []string{"DATASTORE_TYPE=etcdv2"}, nil, `datastore type "etcdv2" is unknown`},
		{"two datastores", []string{etcd, "DATASTORE_TYPE=kubernetes"}, nil, "unset one of them"},
		{"flag and variable differ", []string{etcd, "DATASTORE_TYPE=etcdv3"}, []string{"--datastore-type=kubernetes"}, "set one of them, or both alike"},
		{"no endpoints", []string{"DATASTORE_TYPE=etcdv3"}, nil, "no endpoint is named: set ETCD_ENDPOINTS"},
		{"two lists of endpoints", []string{etcd, "CALICO_ETCD_ENDPOINTS=http://127.0.0.1:1"}, nil, "ETCD_ENDPOINTS and CALICO_ETCD_ENDPOINTS are both set and differ"},
		{"no URL", []string{"ETCD_ENDPOINTS=127.0.0.1:2379"}, nil, "which is not a URL such as https://10.0.0.1:2379"},
		{"two schemes", []string{etcd + ",https://127.0.0.1:1"}, nil, "mixes http and https"},
		{"a password in the URL", []string{"ETCD_ENDPOINTS=http://me:secret@127.0.0.1:1"}, nil, "use ETCD_USERNAME and ETCD_PASSWORD"},
		{"a service record", []string{etcd, "ETCD_DISCOVERY_SRV=example.com"}, nil, "ETCD_DISCOVERY_SRV is set, which is not supported"},
		{"a user without password", []string{etcd, "ETCD_USERNAME=me"}, nil, "only one of ETCD_USERNAME and ETCD_PASSWORD is set"},
		{"a negative grace period", []string{etcd}, []string{"--grace-period=-1s"}, "it must not be negative"},
		{"an unknown flag", []string{etcd}, []string{"--grace-perod=1s"}, "did you mean --grace-period?"},
	}
	s.expectRefusals(slices.Concat(plain, s.badEtcdCertificates(), s.badKubernetesCredentials(etcd)))
}

// expectRefusals runs the controller, and the commands that read the same settings, with each thing that is wrong.
func (s *dirtySite) expectRefusals(cases []refusal) {
	s.t.Helper()
	commands := [][]string{
		{"--leader-elect=false", "--metrics-bind-address=0", "--health-probe-bind-address=0"}, // the controller
		{"plan"},
		{"apply", "--yes"},
	}
	work := make(chan func())
	var workers sync.WaitGroup
	for range 8 { // most of them wait for a server that does not respond
		workers.Go(func() {
			for do := range work {
				do()
			}
		})
	}
	for _, c := range cases {
		for _, command := range commands {
			work <- func() { s.expectRefusal(c, command) }
		}
	}
	close(work)
	workers.Wait()
	s.expectUntouched("all of this")
}

func (s *dirtySite) expectRefusal(c refusal, command []string) {
	args := slices.Concat(command, c.args)
	if !slices.Contains(args, "--kubeconfig") {
		args = append(args, "--kubeconfig", s.through.Kubeconfig)
	}
	code, said := s.run(c.env, args...)
	lines := strings.Split(strings.TrimSpace(said), "\n")
	last := lines[len(lines)-1]
	if code != 1 || !strings.HasPrefix(last, "error: ") || !strings.Contains(last, c.want) || strings.Count(said, "error: ") != 1 {
		s.t.Errorf("%s (%q): got exit code %d and\n%s\nwant 1 and one sentence with %q", c.name, command, code, said, c.want)
	}
}

// dirtySite is a site in which a machine is gone, nothing has been cleaned, and a cluster is recorded.
type dirtySite struct {
	*site
	through *interposer
	// before is the datastore, and revision its revision.
	before   map[string]string
	revision int64
}

// newDirtySite makes three machines that stay, and those that are named, which have no Kubernetes Node.
func newDirtySite(t *testing.T, name string, gone ...string) *dirtySite {
	t.Helper()
	s := &dirtySite{site: newSite(t, controlplane.Shared(t), name)}
	for i := range 3 {
		machine := fmt.Sprintf("stays-%d", i)
		s.addNode(machine)
		s.install(machine, byte(i+1), 1)
	}
	s.recordCluster()
	for i, machine := range gone {
		s.install(machine, byte(goesByte+i), 2)
	}
	s.through = s.interpose()
	s.photograph()
	return s
}

// recordCluster has the product look around once, which makes it record the cluster.
func (s *site) recordCluster() {
	s.t.Helper()
	process := s.start(s.interpose())
	testkit.Eventually(s.t, "the cluster to be recorded", func() string {
		if strings.Contains(s.etcd.Dump(s.t)[clusterInformationKey], nodesync.BindingAnnotation) {
			return ""
		}
		return "its log:\n" + tail(process)
	})
	process.Stop()
}

func (s *dirtySite) photograph() {
	s.t.Helper()
	s.before, s.revision = s.etcd.Dump(s.t), s.etcd.Revision(s.t)
}

// expectUntouched fails if anything was written, or was asked to be.
func (s *dirtySite) expectUntouched(after string) {
	s.t.Helper()
	if now := s.etcd.Revision(s.t); now != s.revision {
		s.t.Fatalf("%s: etcd has moved from revision %d to %d (-before +after):\n%s", after, s.revision, now, cmp.Diff(s.before, s.etcd.Dump(s.t)))
	}
	if writes := s.through.Writes(); len(writes) > 0 {
		s.t.Fatalf("%s: writes were sent: %v", after, writes)
	}
}
