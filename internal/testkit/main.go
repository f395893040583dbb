// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/scratch"
)

// LabBinaryVariable names the lab binary to use instead of bin/lab of the repository.
const LabBinaryVariable = "MOORING_LAB_BINARY"

// APIServerVariable names a kube-apiserver that the tests run on in place of the lab's own, of another version for instance (hack/matrix).
const APIServerVariable = "MOORING_KUBE_APISERVER"

// shared is what the tests of one package share.
var shared struct { //nolint:gochecknoglobals // there is one test process per package, which starts each server once
	mu    sync.Mutex
	stops []func()
	etcds []*Etcd // idle ones
	tls   struct {
		authority *Authority // of all
		etcds     []*Etcd    // idle ones
	}
}

// Main runs the tests of a package with all their temporary files in one folder, stops what they shared, and exits.
func Main(m *testing.M) {
	leave, err := scratch.Enter()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		os.Exit(1)
	}
	code := m.Run()
	shared.mu.Lock()
	for _, stop := range slices.Backward(shared.stops) {
		stop()
	}
	if err := leave(); err != nil {
		fmt.Fprintln(os.Stderr, "testkit:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// Binary returns the path of a binary in bin/, or skips the test with the command that builds it. Under CI=true it fails the test.
func Binary(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(Root(tb), "bin", name)
	if name == "lab" && os.Getenv(LabBinaryVariable) != "" {
		path = os.Getenv(LabBinaryVariable)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		Skip(tb, "it needs bin/%s: run `make build`", name)
	}
	return path
}

// APIServer returns the command that is a kube-apiserver: that of bin/lab, or the one that APIServerVariable names.
func APIServer(tb testing.TB) []string {
	tb.Helper()
	if path := os.Getenv(APIServerVariable); path != "" {
		return []string{path}
	}
	return []string{Binary(tb, "lab"), "kube-apiserver"}
}

// Skip skips a test that lacks something it needs; under CI=true it fails it, since there everything is installed.
func Skip(tb testing.TB, format string, args ...any) {
	tb.Helper()
	if os.Getenv("CI") == "true" {
		tb.Fatalf("would be skipped elsewhere, must run under CI: "+format, args...)
	}
	tb.Skipf(format, args...)
}

// Root is the folder of the repository's root module.
func Root(tb testing.TB) string {
	tb.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		tb.Fatal("the path of the sources is unknown")
	}
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Folder returns a new folder that Main removes: it may outlive the test.
func Folder(tb testing.TB, name string) string {
	tb.Helper()
	path, err := os.MkdirTemp("", name) //nolint:usetesting // as it may outlive the test
	must.Do(tb, err)
	return path
}

// AtEnd has Main call stop after the tests, the last one first.
func AtEnd(stop func()) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.stops = append(shared.stops, stop)
}
