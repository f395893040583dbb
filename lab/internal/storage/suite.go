// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/lab/internal/realnode/image"
)

// shellImages are the images of Kubernetes' tests of which storage tests need a shell, its usual programs, and agnhost.
func shellImages() []string { return []string{"busybox", "agnhost", "glibc-dns-testing", "nginx"} }

// gnuImage is the one of them of which they need a dd that knows more than BusyBox's, and the shell of Debian, as BusyBox's takes its own dd.
const gnuImage = "glibc-dns-testing"

// MakeSuiteImages makes, in a folder, archives in the place of the images that Kubernetes' storage tests run in pods: BusyBox of this machine, of which one
// has sh and dd as well, and the lab's agnhost of the folder bin. Of the references, which `storage-e2e --list-images` prints, those that need more are left
// out. The error has the cure.
func MakeSuiteImages(ctx context.Context, bin, folder string, references []string) ([]image.Archive, error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of images: %w", err)
	}
	plain, err := suitePicture(ctx, bin)
	if err != nil {
		return nil, err
	}
	gnu, err := suitePicture(ctx, bin, "sh", "dd")
	if err != nil {
		return nil, err
	}
	var archives []image.Archive
	for _, reference := range references {
		repository, tag, tagged := strings.Cut(reference, ":")
		if !tagged || !slices.Contains(shellImages(), path.Base(repository)) {
			continue
		}
		p := plain
		if path.Base(repository) == gnuImage {
			p = gnu
		}
		content, err := p.pack(tag)
		if err != nil {
			return nil, err
		}
		file := filepath.Join(folder, path.Base(repository)+"-"+tag+".tar")
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return nil, fmt.Errorf("writing the image %s: %w", reference, err)
		}
		archives = append(archives, image.Archive{Path: file, Repository: repository})
	}
	return archives, nil
}

// suitePicture is BusyBox with a link for each of its programs, but for those that are of this machine, and agnhost.
func suitePicture(ctx context.Context, bin string, machines ...string) (picture, error) {
	p := picture{files: map[string]string{"/agnhost": filepath.Join(bin, "agnhost")}, links: map[string]string{}, entrypoint: "/agnhost", user: "0:0"}
	file, err := exec.LookPath("busybox")
	if err != nil {
		return p, fmt.Errorf("BusyBox is not installed; run `apt-get install -y --no-install-recommends busybox-static`: %w", err)
	}
	names, err := exec.CommandContext(ctx, file, "--list").Output()
	if err != nil {
		return p, fmt.Errorf("asking BusyBox for its programs: %w", err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		if name != "busybox" && !slices.Contains(machines, name) {
			p.links["/bin/"+name] = "busybox"
		}
	}
	for _, name := range append(machines, "busybox") {
		file, err := exec.LookPath(name)
		if err != nil {
			return p, fmt.Errorf("looking for a program of this machine: %w", err)
		}
		if err := p.addNeeded("/bin/"+name, file); err != nil {
			return p, err
		}
	}
	return p, nil
}
