// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
	"github.com/mooring-dev/mooring/lab/internal/realnode"
	"github.com/mooring-dev/mooring/lab/internal/storage"
)

// patience is how long anything may take on a busy machine.
const patience = 8 * time.Minute

// lab is a lab with real machines and volumes.
type lab struct {
	*testing.T
	blueprint.Layout

	api     kubernetes.Interface
	dynamic dynamic.Interface
	// records is the folder of what counters say that they have written.
	records string
	// patience is how long anything may take.
	patience time.Duration
}

// start starts a lab with real machines, some simulated ones, and volumes; it stops it, come what may, at the end of the test.
func start(t *testing.T, args ...string) *lab {
	t.Helper()
	bin := filepath.Dir(testkit.Binary(t, "lab"))
	for _, err := range []error{realnode.Judge(realnode.Examine(bin)), storage.Check(bin), loopDevices()} {
		if err != nil {
			testkit.Skip(t, "%v", err)
		}
	}
	top := t.TempDir()
	l := &lab{T: t, Layout: blueprint.Layout{Dir: filepath.Join(top, "lab")}, records: filepath.Join(top, "records"), patience: patience}
	l.must(os.MkdirAll(l.records, 0o700))
	t.Cleanup(func() {
		if t.Failed() {
			l.showLogs()
		}
		_, _ = l.try("down", "--delete")
	})
	began := time.Now()
	args = append([]string{"up", "--with", blueprint.CSIDriver, "--calico-datastore", "none", "--pods-per-node", "0"}, args...)
	if out, err := l.try(args...); err != nil {
		t.Fatal(err, out)
	}
	config, err := clientcmd.BuildConfigFromFlags("", l.Kubeconfig())
	l.must(err)
	config.QPS, config.Burst = 200, 400
	l.api, err = kubernetes.NewForConfig(config)
	l.must(err)
	l.dynamic, err = dynamic.NewForConfig(config)
	l.must(err)
	l.awaitDriver()
	t.Logf("the lab and the driver are up after %v", time.Since(began).Round(time.Second))
	return l
}

// loopDevices reports why there are none.
func loopDevices() error {
	if _, err := os.Stat("/dev/loop-control"); err != nil {
		return fmt.Errorf("volumes need loop devices: %w", err)
	}
	return nil
}

// with is the lab for another test, such as a part of the one that started it.
func (l *lab) with(t *testing.T) *lab {
	other := *l
	other.T = t
	return &other
}

func (l *lab) try(args ...string) (string, error) {
	return testkit.TryLab(l.T, patience, l.Dir, args...)
}

func (l *lab) run(args ...string) string {
	l.Helper()
	return testkit.RunLab(l.T, patience, l.Dir, args...)
}

func (l *lab) must(err error) {
	l.Helper()
	if err != nil {
		l.Fatal(err)
	}
}

func (l *lab) await(what string, wrong func() error) time.Duration {
	l.Helper()
	return testkit.Await(l.T, l.patience, what, wrong)
}

// see is where a path of a machine is to be seen from here: by way of the machine's first process.
func (l *lab) see(machine, path string) (string, error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return "", err
	}
	for _, file := range files {
		words, _ := os.ReadFile(file)
		if strings.Contains(string(words), "\x00real-node\x00"+filepath.Join(l.RealNode(machine), "machine.json")) {
			return filepath.Join(filepath.Dir(file), "root", path), nil
		}
	}
	return "", fmt.Errorf("machine %s does not run", machine)
}

// showLogs logs the ends of what the processes, machines and containers have said.
func (l *lab) showLogs() {
	var files []string
	for _, name := range []string{"supervisor", blueprint.Setup, blueprint.RealNodes, blueprint.DigitalOcean, blueprint.ControllerManager} {
		files = append(files, l.Log(name))
	}
	for _, pattern := range []string{"*/logs/kubelet.log", "*/logs/machine.log", "*/disk/log/pods/*/*/*.log"} {
		more, _ := filepath.Glob(filepath.Join(l.RealNodes(), pattern))
		files = append(files, more...)
	}
	testkit.LogEnds(l.T, 3000, files...)
}

// ask reads something of the simulated cloud as its administrator.
func (l *lab) ask(path string, into any) {
	l.Helper()
	var running folder.Lab
	l.must(folder.ReadJSON(l.LabFile(), &running))
	access := running.DigitalOcean
	pair, err := tls.LoadX509KeyPair(access.CertFile, access.KeyFile)
	l.must(err)
	authority, err := os.ReadFile(access.CAFile)
	l.must(err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	client := &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12,
	}}}
	request, err := http.NewRequestWithContext(l.Context(), http.MethodGet, access.AdminURL+path, nil)
	l.must(err)
	response, err := client.Do(request)
	l.must(err)
	defer func() { _ = response.Body.Close() }()
	l.must(json.NewDecoder(response.Body).Decode(into))
}

// cloud is all that the account has.
func (l *lab) cloud() digitalocean.AccountState {
	l.Helper()
	var state digitalocean.State
	l.ask("/v1/state", &state)
	return state.Accounts[0]
}

// mark is the number of the last request to DigitalOcean's API.
func (l *lab) mark() uint64 {
	l.Helper()
	var stats journal.Stats
	l.ask("/v1/stats", &stats)
	return uint64(stats.Total)
}

// volumeRequests are the requests for volumes since a mark.
func (l *lab) volumeRequests(since uint64) []journal.Entry {
	l.Helper()
	var all, found []journal.Entry
	l.ask(fmt.Sprintf("/v1/requests?after=%d", since), &all)
	for _, e := range all {
		if strings.Contains(e.Route, "/v2/volumes") || strings.Contains(e.Route, "/v2/snapshots") || strings.Contains(e.Route, "/v2/actions") {
			found = append(found, e)
		}
	}
	return found
}

// actions counts the actions of a kind among requests that were accepted.
func actions(requests []journal.Entry, kind string) int {
	count := 0
	for _, e := range requests {
		var body struct{ Type string }
		if e.Method == http.MethodPost && strings.HasSuffix(e.Route, "/actions") && e.Status < http.StatusBadRequest &&
			json.Unmarshal(e.Body, &body) == nil && body.Type == kind {
			count++
		}
	}
	return count
}

// left waits until the account has no more volumes than a number.
func (l *lab) left(count int) {
	l.Helper()
	l.await("volumes to be gone", func() error {
		if n := len(l.cloud().Volumes); n > count {
			return fmt.Errorf("there are %d, want %d", n, count)
		}
		return nil
	})
}

// nothingLeft waits until the account has neither volumes nor snapshots.
func (l *lab) nothingLeft() {
	l.Helper()
	l.await("all volumes to be gone", func() error {
		if left := l.cloud(); len(left.Volumes)+len(left.Snapshots) > 0 {
			return fmt.Errorf("%d volumes and %d snapshots are left", len(left.Volumes), len(left.Snapshots))
		}
		return nil
	})
	left, err := filepath.Glob(filepath.Join(l.Disks(), "volume-*"))
	if err != nil || len(left) > 0 {
		l.Errorf("disks are left: %v, %v", left, err)
	}
}
