// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
)

// The components whose Events are shown are called as their binaries are, but for the controllers of k8s.io/cloud-provider.
func TestEventSourcesAreBinaries(t *testing.T) {
	t.Parallel()
	for source := range eventSources() {
		if slices.Contains([]string{"cloud-node-controller", "cloud-node-lifecycle-controller", "service-controller"}, source) {
			continue
		}
		if _, err := os.Stat(filepath.Join(testkit.Root(t), "cmd", source)); err != nil {
			t.Error(err)
		}
	}
}
