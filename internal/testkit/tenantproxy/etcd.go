// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package tenantproxy

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// StartEtcd starts an etcd for one test alone and returns its client URL. Unlike those of testkit.NewEtcd it may be left in any state, and
// it can wait for the disk with each write.
func StartEtcd(tb testing.TB, fsync bool) (endpoint string, process *testkit.Process) {
	tb.Helper()
	dir := tb.TempDir()
	ready := filepath.Join(dir, "ready.json")
	args := []string{
		"etcd", "--data-dir", filepath.Join(dir, "data"), "--listen-client", "http://127.0.0.1:0", "--listen-peer", "http://127.0.0.1:0",
		"--ready-file", ready,
	}
	if !fsync {
		args = append(args, "--unsafe-no-fsync")
	}
	process = testkit.Start(tb, filepath.Join(dir, "log"), nil, testkit.Binary(tb, "lab"), args...)
	tb.Cleanup(process.Kill)
	var answer struct {
		Client string `json:"client"`
	}
	testkit.Eventually(tb, "etcd", func() string {
		data, err := os.ReadFile(ready)
		if err != nil {
			return "it has not written its address yet; its log: " + process.Output()
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return err.Error()
		}
		return ""
	})
	return answer.Client, process
}
