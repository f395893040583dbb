// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
)

// calicoModule is where confd's templates come from.
const calicoModule = "github.com/projectcalico/calico"

// FindTemplates returns the folder of confd's templates in Go's module cache, those of the version that this program was built with. The error
// is for users.
func FindTemplates(ctx context.Context) (string, error) {
	module, err := moduleFolder(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(module, "confd", "etc", "calico", "confd")
	if _, err := os.Stat(dir); err != nil {
		return "", fmt.Errorf("the templates of Calico's confd are not in %s; fetch them with `go mod download %s` in the folder lab", dir, calicoModule)
	}
	return dir, nil
}

// moduleFolder is where Go keeps Calico's module.
func moduleFolder(ctx context.Context) (string, error) {
	version := calicoVersion()
	if version == "" {
		// A test's binary does not know, but runs in the module's folder.
		output, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", calicoModule).Output()
		if err != nil {
			return "", fmt.Errorf("finding the module %s: %w", calicoModule, err)
		}
		return strings.TrimSpace(string(output)), nil
	}
	output, err := exec.CommandContext(ctx, "go", "env", "GOMODCACHE").Output()
	cache := strings.TrimSpace(string(output))
	if err != nil || cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("finding Go's module cache: %w", err)
		}
		cache = filepath.Join(home, "go", "pkg", "mod")
	}
	return filepath.Join(cache, filepath.FromSlash(calicoModule)+"@"+version), nil
}

func calicoVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dependency := range info.Deps {
		if dependency.Path == calicoModule {
			return dependency.Version
		}
	}
	return ""
}

// Debian's bird is the original, without what Calico's fork adds: the attribute krt_tunnel. Its assignments become ones without effect, since
// an empty block would be a syntax error.
var tunnelAssignment = regexp.MustCompile(`krt_tunnel = "[^"]*";`)

// configured is the folder that the templates write to in calico-node.
const configured = "/etc/calico/confd/config"

// copyTemplates copies confd's templates, as Debian's bird understands them, so that they write to the node's own folder. With patch, BIRD's are patched
// as kubectl mooring bird-templates does.
func copyTemplates(from, to string, patch bool) error {
	target := filepath.Join(to, "config")
	if err := os.MkdirAll(target, 0o700); err != nil {
		return err
	}
	for _, folder := range []string{"conf.d", "templates"} {
		if err := os.MkdirAll(filepath.Join(to, folder), 0o700); err != nil {
			return err
		}
		entries, err := os.ReadDir(filepath.Join(from, folder))
		if err != nil {
			return fmt.Errorf("reading confd's templates: %w", err)
		}
		for _, entry := range entries {
			content, err := os.ReadFile(filepath.Join(from, folder, entry.Name()))
			if err != nil {
				return fmt.Errorf("reading confd's templates: %w", err)
			}
			if patch && slices.Contains(birdtemplates.Files(), entry.Name()) {
				patched, err := birdtemplates.Patch(entry.Name(), string(content))
				if err != nil {
					return err
				}
				content = []byte(patched)
			}
			content = adapt(content, target)
			if err := os.WriteFile(filepath.Join(to, folder, entry.Name()), content, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

func adapt(template []byte, target string) []byte {
	template = tunnelAssignment.ReplaceAll(template, []byte("preference = preference;"))
	return bytes.ReplaceAll(template, []byte(configured), []byte(target))
}

// runit's `sv hup bird` is how confd has BIRD read its configuration again. The process is looked at, because its number may be another's by now.
const svScript = `#!/bin/sh
# Written by the lab; it stands in for runit's sv.
pid=$(cat "/var/run/calico/$2.pid" 2>/dev/null) || exit 0
[ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] && kill -HUP "$pid"
`

// FindBird returns the paths of bird and bird6. The error is ErrNoBird, for users.
func FindBird() (bird, bird6 string, err error) {
	return findBird(exec.LookPath, "/usr/sbin", "/usr/local/sbin")
}

// findBird looks where look does, and then in folders that are not on everybody's PATH. There is no bird6 alongside bird 2, which is one program
// for both.
func findBird(look func(string) (string, error), folders ...string) (bird, bird6 string, err error) {
	for _, want := range []struct {
		name string
		into *string
	}{{"bird", &bird}, {"bird6", &bird6}} {
		path, err := look(want.name)
		for _, folder := range folders {
			if err == nil {
				break
			}
			path, err = look(filepath.Join(folder, want.name))
		}
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return "", "", fmt.Errorf("%s is not installed: %w", want.name, ErrNoBird)
		}
		*want.into = path
	}
	return bird, bird6, nil
}

// ErrNoBird says how to get what is missing, and what that costs. Other versions of bird do not understand Calico's configuration.
var ErrNoBird = errors.New("the BGP network needs bird 1.6, which is Debian's package bird, not bird2 " +
	"(apt-get install -y --no-install-recommends bird); without it the operator's logic is still tested, with simulated statuses")

// exists reports whether there is such a file.
func exists(path string) bool {
	_, err := os.Stat(path)
	return !errors.Is(err, fs.ErrNotExist)
}
