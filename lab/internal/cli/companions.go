// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// findCalicoNodeSync finds that component's program beside the lab's own and its manifests in the repository both were built in.
func (a *app) findCalicoNodeSync(o blueprint.Options) (blueprint.Options, error) {
	if !slices.Contains(o.With, blueprint.CalicoNodeSync) {
		return o, nil
	}
	executable, err := a.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	bin := filepath.Dir(executable)
	o.CalicoNodeSyncProgram = filepath.Join(bin, blueprint.CalicoNodeSync)
	if _, err := os.Stat(o.CalicoNodeSyncProgram); err != nil {
		return o, fmt.Errorf("%s is not there; build it with `make build`", o.CalicoNodeSyncProgram)
	}
	manifests := filepath.Join(filepath.Dir(bin), "config", blueprint.CalicoNodeSync)
	if _, err := os.Stat(manifests); err != nil {
		return o, fmt.Errorf("the manifests of calico-node-sync are not in %s; run the lab from the repository's bin folder", manifests)
	}
	o.CalicoNodeSyncManifests = manifests
	return o, nil
}
