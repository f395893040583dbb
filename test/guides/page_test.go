// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package guides

import (
	"os"
	"testing"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/testkit/pages"
)

// asPlugin makes this test's own binary kubectl-mooring.
const asPlugin = "MOORING_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(command.Main(plugin.NewCommand(plugin.Builtin()...)))
	}
	testkit.Main(m)
}

// newReader opens a page of docs/ for somebody with this kubeconfig, who has kubectl and our plugin in PATH.
func newReader(t *testing.T, page, kubeconfig string) *pages.Reader {
	t.Helper()
	self := must.Get(os.Executable()).Or(t)
	r := pages.Open(t, page, "KUBECONFIG="+kubeconfig)
	r.Provide("kubectl-mooring", asPlugin+"=1 exec '"+self+"' \"$@\"\n")
	return r
}
