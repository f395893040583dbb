// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

const (
	registry = "docker.io/mooring-lab/"
	tag      = "lab"
	// mkfsSettings are Debian's defaults for new file systems.
	mkfsSettings = "/etc/mke2fs.conf"
	// nobody is the user of images that need no rights.
	nobody = "65532:65532"
)

// Image is the name of an image of the lab's, for a program's name.
func Image(program string) string { return registry + program + ":" + tag }

// Sidecars are Kubernetes' programs alongside a volume driver, which `make real-nodes` builds into the folder csi, by the name of their image.
func Sidecars() []string {
	return []string{"csi-provisioner", "csi-attacher", "csi-resizer", "csi-snapshotter", "snapshot-controller"}
}

// helpers are programs of the lab's own: one that tells kubelet of a driver, as node-driver-registrar does, and one that writes numbers to a volume.
func helpers() []string { return []string{"registrar", "counter"} }

// systemPrograms are what the driver runs. On real clusters they are in its image (docs/components/digitalocean-csi-driver.md); here they are this
// machine's, of the same packages of Debian.
func systemPrograms() []string {
	return []string{"mkfs.ext4", "mkfs.xfs", "e2fsck", "resize2fs", "xfs_growfs"}
}

// Check returns, in one sentence with the cure, what is missing in the folder bin; nil if nothing is.
func Check(bin string) error {
	for _, name := range append(Sidecars(), helpers()...) {
		if _, err := os.Stat(filepath.Join(bin, "csi", name)); err != nil {
			return fmt.Errorf("csi/%s is not built in %s; run `make real-nodes`", name, bin)
		}
	}
	if _, err := os.Stat(filepath.Join(bin, blueprint.CSIDriver)); err != nil {
		return fmt.Errorf("%s is not built in %s; run `make build`", blueprint.CSIDriver, bin)
	}
	p := picture{files: map[string]string{}}
	return p.addSystem(systemPrograms()...)
}

// MakeImages makes the archives of all images in a folder, from programs of the folder bin. Those of a former start are replaced.
func MakeImages(bin, folder string) ([]image.Archive, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of images: %w", err)
	}
	pictures := map[string]picture{}
	for _, name := range append(Sidecars(), helpers()...) {
		user := nobody
		if name == "registrar" { // it makes a socket in a folder of kubelet's
			user = "0:0"
		}
		pictures[name] = picture{files: map[string]string{"/bin/" + name: filepath.Join(bin, "csi", name)}, entrypoint: "/bin/" + name, user: user}
	}
	program := "/bin/" + blueprint.CSIDriver
	driver := picture{files: map[string]string{program: filepath.Join(bin, blueprint.CSIDriver)}, entrypoint: program, user: "0:0"}
	if err := driver.addSystem(systemPrograms()...); err != nil {
		return nil, err
	}
	if _, err := os.Stat(mkfsSettings); err == nil {
		driver.files[mkfsSettings] = mkfsSettings
	}
	pictures[blueprint.CSIDriver] = driver
	var archives []image.Archive
	for name, p := range pictures {
		content, err := p.pack(tag)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w; run `make build real-nodes`", err)
		}
		if err != nil {
			return nil, err
		}
		file := filepath.Join(folder, name+".tar")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing the image %s: %w", name, err)
		}
		archives = append(archives, image.Archive{Path: file, Repository: registry + name})
	}
	return archives, nil
}
