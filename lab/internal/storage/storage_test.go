// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
)

// site is that of a lab, with the manifest of the repository.
func site(t *testing.T) Site {
	t.Helper()
	folder := t.TempDir()
	for name, content := range map[string]string{
		"ca": "an authority", "token": "dop_v1_x\n", "kind.yaml": "kind: CustomResourceDefinition\nmetadata: {name: k}\n",
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Site{
		Manifest: filepath.Join("..", "..", "..", "dist", blueprint.CSIDriver+".yaml"), Kinds: folder, APIURL: "https://172.30.0.1:1234",
		CAFile: filepath.Join(folder, "ca"), TokenFile: filepath.Join(folder, "token"), Sysfs: "/lab/data/disks/sys",
	}
}

// TestObjects: of the manifest's workloads only what is named in Adapt differs, and no image is one that a lab cannot have.
func TestObjects(t *testing.T) {
	t.Parallel()
	objects, err := Objects(site(t))
	if err != nil {
		t.Fatal(err)
	}
	kinds := map[string]int{}
	var all strings.Builder
	for _, o := range objects {
		kinds[o.GetKind()]++
		text, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for kind, want := range map[string]int{
		"CustomResourceDefinition": 1, "Secret": 1, "StatefulSet": 1, "DaemonSet": 1, "Deployment": 1, "CSIDriver": 1, "StorageClass": 4,
	} {
		if kinds[kind] != want {
			t.Errorf("there are %d of kind %s, want %d", kinds[kind], kind, want)
		}
	}
	for _, name := range append(Sidecars(), blueprint.CSIDriver) {
		if !strings.Contains(all.String(), `"`+Image(name)+`"`) {
			t.Errorf("no container has the image %s", Image(name))
		}
	}
	for _, wrong := range []string{"registry.k8s.io", "mooring/" + blueprint.CSIDriver, `"/etc/udev/rules.d","type"`} {
		if strings.Contains(all.String(), wrong) {
			t.Errorf("%s is left of the manifest", wrong)
		}
	}
	for _, want := range []string{
		"--url=https://172.30.0.1:1234", `"access-token":"dop_v1_x"`, "--token-file=", "--remove-automount-rule=", "--device-sysfs=" + diskFacts,
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("there is no %s", want)
		}
	}
}

// TestAdaptKeepsOthers: objects without containers are as released.
func TestAdaptKeepsOthers(t *testing.T) {
	t.Parallel()
	o := &unstructured.Unstructured{Object: map[string]any{"kind": "StorageClass", "provisioner": "p"}}
	if err := (Site{}).Adapt(o); err != nil || len(o.Object) != 2 {
		t.Errorf("%v, %v", o.Object, err)
	}
}

func TestObjectsWithoutKinds(t *testing.T) {
	t.Parallel()
	s := site(t)
	s.Kinds = t.TempDir()
	if _, err := Objects(s); err == nil || !strings.Contains(err.Error(), "make real-nodes") {
		t.Errorf("%v", err)
	}
}

// TestPack: an archive names what it consists of by its sum, and its layer has the files and their folders.
func TestPack(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(program, []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	archive, err := picture{
		files: map[string]string{"/usr/sbin/program": program, "/bin/other": program}, links: map[string]string{"/bin/link": "other"},
		entrypoint: "/bin/other", user: nobody,
	}.pack("lab")
	if err != nil {
		t.Fatal(err)
	}
	// Two empty blocks end an archive; without them other programs than Go's call it cut off.
	ending := make([]byte, 1024)
	if !bytes.HasSuffix(archive, ending) {
		t.Error("the archive has no end")
	}
	files := untar(t, archive)
	var index struct {
		Manifests []struct{ Digest string }
	}
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%s: %v", files["index.json"], err)
	}
	var manifest struct {
		Layers []struct{ Digest string }
	}
	blob := func(digest string) []byte { return files["blobs/sha256/"+strings.TrimPrefix(digest, "sha256:")] }
	if err := json.Unmarshal(blob(index.Manifests[0].Digest), &manifest); err != nil || len(manifest.Layers) != 1 {
		t.Fatalf("%s: %v", blob(index.Manifests[0].Digest), err)
	}
	layer := untar(t, blob(manifest.Layers[0].Digest))
	if !bytes.HasSuffix(blob(manifest.Layers[0].Digest), ending) {
		t.Error("the layer has no end")
	}
	want := []string{"bin/", "bin/link", "bin/other", "usr/", "usr/sbin/", "usr/sbin/program"}
	if got := slices.Sorted(maps.Keys(layer)); !slices.Equal(got, want) || string(layer["bin/other"]) != "a program" {
		t.Errorf("the layer has %v, want %v", got, want)
	}
}

// TestSystemPrograms: a program comes with all that it needs to start.
func TestSystemPrograms(t *testing.T) {
	t.Parallel()
	p := picture{files: map[string]string{}}
	if err := p.addSystem("mkfs.ext4"); err != nil {
		testkit.Skip(t, "it needs mkfs.ext4 (apt-get install e2fsprogs): %v", err)
	}
	names := strings.Join(slices.Sorted(maps.Keys(p.files)), " ")
	for _, want := range []string{"/usr/sbin/mkfs.ext4", "/usr/lib/libc.so.6", "/usr/lib/libext2fs.so.2", "ld-linux"} {
		if !strings.Contains(names, want) {
			t.Errorf("%s is not among %s", want, names)
		}
	}
	if err := p.addSystem("no-such-program"); err == nil || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("%v", err)
	}
}

// TestSuiteImages: each image that a storage test runs has a shell and agnhost, and no other image is made.
func TestSuiteImages(t *testing.T) {
	t.Parallel()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "agnhost"), []byte("a program"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("busybox"); err != nil {
		t.Skipf("it needs BusyBox (apt-get install busybox-static): %v", err)
	}
	archives, err := MakeSuiteImages(t.Context(), bin, filepath.Join(bin, "images"), []string{"r.example/busybox:1", "r.example/perl:5", "r.example/agnhost:2"})
	if err != nil || len(archives) != 2 || archives[0].Repository != "r.example/busybox" || archives[1].Repository != "r.example/agnhost" {
		t.Fatalf("%+v, %v", archives, err)
	}
	content, err := os.ReadFile(archives[0].Path)
	if err != nil {
		t.Fatal(err)
	}
	for name, blob := range untar(t, content) {
		if strings.HasPrefix(name, "blobs/") && len(blob) > 1<<16 {
			layer := untar(t, blob)
			for _, want := range []string{"agnhost", "bin/busybox", "bin/sh", "bin/dd"} {
				if _, there := layer[want]; !there {
					t.Errorf("%s is missing", want)
				}
			}
			return
		}
	}
	t.Error("there is no layer")
}

func untar(t *testing.T, content []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	r := tar.NewReader(bytes.NewReader(content))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[header.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}
