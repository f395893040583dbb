// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package image says which binary of this machine an image of a container stands for. There is no registry and nothing is pulled: the lab runs what is
// built here, so a pod's image only names it. Tags and digests are not looked at.
package image

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// Nobody is the user and group of the product's images (hack/release).
const Nobody = 65532

// Image is what an image is made of.
type Image struct {
	// Program is the path of the binary on this machine.
	Program string
	// Paths are where it stands in the container, the first one being the file and the others links to it.
	Paths []string
	// Entrypoint is what runs if the container names no command; a container's arguments are added to it.
	Entrypoint []string
	// User is the user that the image names; its group is of the same number.
	User int
}

// Table is the images by repository, without tag and digest.
type Table struct {
	images map[string]Image
}

// Own is the prefix of the images that only a lab has: what the lab's own binary can do, by the name of its subcommand, and kubectl.
const Own = "mooring-lab/"

// Applets are the subcommands of the lab's binary that are images of their own: mooring-lab/NAME.
func Applets() []string { return []string{"sample"} }

// APIServer is the subcommand that a container knows by its own name.
const APIServer = "kube-apiserver"

// Arguments are the arguments of the lab's binary when it is called with argv: called by the name of a program that is one of its subcommands, as in
// a container, it is that.
func Arguments(argv []string) []string {
	if len(argv) > 0 && path.Base(argv[0]) == APIServer {
		return append([]string{APIServer}, argv[1:]...)
	}
	return argv[min(1, len(argv)):]
}

// products are the binaries of the product that run in a cluster; their images are mooring/NAME, as in config/.
func products() []string {
	return []string{
		"calico-node-sync", "calico-route-reflector-operator", "digitalocean-cloud-controller-manager",
		"digitalocean-cloud-controller-manager-admission-server", "etcd-storage-operator", "etcd-storage-proxy",
	}
}

// NewTable returns the table for binaries in the folder bin and the lab's own binary at lab. extra are further images, "REPOSITORY=PATH"; each has
// its binary at /entrypoint and /bin/BASENAME. They replace images of the same name.
func NewTable(bin, lab string, extra []string) (Table, error) {
	t := Table{images: map[string]Image{}}
	for _, name := range products() {
		t.images["mooring/"+name] = product(filepath.Join(bin, name), Nobody)
	}
	for _, name := range Applets() {
		t.images[Own+name] = Image{Program: lab, Paths: []string{"/bin/lab"}, Entrypoint: []string{"/bin/lab", name}, User: Nobody}
	}
	t.images[Own+"kubectl"] = product(filepath.Join(bin, "kubectl"), Nobody)
	etcd := Image{
		Program: filepath.Join(bin, "etcd"), Paths: []string{"/usr/local/bin/etcd", "/bin/etcd", "/entrypoint"}, Entrypoint: []string{"/usr/local/bin/etcd"},
	}
	for _, repository := range []string{"quay.io/coreos/etcd", "gcr.io/etcd-development/etcd", "registry.k8s.io/etcd"} {
		t.images[repository] = etcd
	}
	// Kubernetes' API server is one of the lab's own subcommands.
	const at = "/usr/local/bin/" + APIServer
	t.images["registry.k8s.io/"+APIServer] = Image{Program: lab, Paths: []string{at}, Entrypoint: []string{at}}
	for _, pair := range extra {
		repository, program, ok := strings.Cut(pair, "=")
		if !ok || repository == "" || !filepath.IsAbs(program) {
			return Table{}, fmt.Errorf("image %q is not of the form REPOSITORY=/PATH/OF/BINARY", pair)
		}
		t.images[Repository(repository)] = product(program, Nobody)
	}
	return t, nil
}

// product has its binary where hack/release puts it, and at /entrypoint.
func product(program string, user int) Image {
	inside := "/bin/" + filepath.Base(program)
	return Image{Program: program, Paths: []string{inside, "/entrypoint"}, Entrypoint: []string{"/entrypoint"}, User: user}
}

// Find returns the image that a reference names. An error is one sentence for the pod's status: the image is unknown, or its binary is not built.
func (t Table) Find(reference string) (Image, error) {
	found, ok := t.images[Repository(reference)]
	if !ok {
		return Image{}, fmt.Errorf("image %q is unknown here, and the lab pulls nothing; it knows %s", reference, strings.Join(t.Names(), ", "))
	}
	info, err := os.Stat(found.Program)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return Image{}, fmt.Errorf("image %q stands for %s, which is not built; run `make build`, or `make bin/%s`", reference, found.Program, filepath.Base(found.Program))
	case err != nil:
		return Image{}, fmt.Errorf("image %q stands for %s: %w", reference, found.Program, err)
	case info.IsDir() || info.Mode()&0o111 == 0:
		return Image{}, fmt.Errorf("image %q stands for %s, which is no program", reference, found.Program)
	}
	return found, nil
}

// Names are the known repositories, sorted.
func (t Table) Names() []string { return slices.Sorted(maps.Keys(t.images)) }

// Repository is a reference without tag and digest. A registry's name may hold a port: a colon before the last slash separates no tag. Docker's
// own registry may be named or not.
func Repository(reference string) string {
	reference, _, _ = strings.Cut(reference, "@")
	if colon := strings.LastIndexByte(reference, ':'); colon > strings.LastIndexByte(reference, '/') {
		reference = reference[:colon]
	}
	return strings.TrimPrefix(reference, "docker.io/")
}
