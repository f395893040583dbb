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

// findAPIServer finds the API server that the user has named, if any.
func findAPIServer(o blueprint.Options) (blueprint.Options, error) {
	if o.APIServerProgram == "" {
		return o, nil
	}
	path, err := filepath.Abs(o.APIServerProgram)
	if err != nil {
		return o, fmt.Errorf("--kube-apiserver: %w", err)
	}
	if info, err := os.Stat(path); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
		return o, fmt.Errorf("--kube-apiserver %s is not a program; name one, or leave it out for the lab's own", o.APIServerProgram)
	}
	o.APIServerProgram = path
	return o, nil
}

// findCalicoNodeSync finds that component's program alongside the lab's own and its manifests in the repository both were built in.
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

// findVolumes finds the volume driver's manifest in the repository that the lab's program was built in.
func (a *app) findVolumes(o blueprint.Options) (blueprint.Options, error) {
	if !slices.Contains(o.With, blueprint.CSIDriver) {
		return o, nil
	}
	executable, err := a.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	o.CSIManifest = filepath.Join(filepath.Dir(filepath.Dir(executable)), "dist", blueprint.CSIDriver+".yaml")
	if _, err := os.Stat(o.CSIManifest); err != nil {
		return o, fmt.Errorf("the manifest of %s is not at %s; run the lab from the repository's bin folder", blueprint.CSIDriver, o.CSIManifest)
	}
	return o, nil
}

// findCloud finds the cloud controller manager's program alongside the lab's own, and its manifests, and decides whether there is a cloud if the user
// does not say it: there is one if it can be, unless the user has chosen which processes run.
func (a *app) findCloud(o blueprint.Options) (blueprint.Options, error) {
	executable, err := a.Executable()
	if err != nil {
		return o, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	bin := filepath.Dir(executable)
	there := func(path string) string {
		if _, err := os.Stat(path); err != nil {
			return ""
		}
		return path
	}
	o.CloudProgram = there(filepath.Join(bin, blueprint.CloudControllerManager))
	o.CloudManifests = there(filepath.Join(filepath.Dir(bin), "config", blueprint.CloudControllerManager))
	switch {
	case o.Cloud != "":
	case len(o.Components) == 0 && o.CloudProgram != "" && o.CloudManifests != "":
		o.Cloud = blueprint.CloudDigitalOcean
	default:
		o.Cloud = blueprint.CloudNone
	}
	return o, nil
}
