// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package guides

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/plugin"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// asPlugin makes this test's own binary kubectl-mooring.
const asPlugin = "MOORING_TEST_AS_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(asPlugin) != "" {
		os.Exit(command.Main(plugin.NewCommand(plugin.Builtin()...)))
	}
	testkit.Main(m)
}

// A reader follows a page with a shell.
type reader struct {
	t         *testing.T
	page, dir string
	env       []string
}

// newReader opens a page of docs/ for somebody with this kubeconfig, who has kubectl and our plugin in PATH.
func newReader(t *testing.T, page, kubeconfig string) *reader {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", filepath.FromSlash(page)))
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, page: string(text), dir: t.TempDir()}
	script := "#!/bin/sh\n" + asPlugin + "=1 exec '" + self + "' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(r.dir, "kubectl-mooring"), []byte(script), 0o700); err != nil { //nolint:gosec // a script is run
		t.Fatal(err)
	}
	r.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HOME="+r.dir, "PATH="+r.dir+":"+filepath.Dir(testkit.Binary(t, "kubectl"))+":"+os.Getenv("PATH"))
	return r
}

var shellBlock = regexp.MustCompile("(?s)```sh\n(.*?)```")

// blocks are the shell blocks below a heading.
func (r *reader) blocks(heading string) []string {
	r.t.Helper()
	_, text, found := strings.Cut(r.page, "\n"+heading+"\n")
	if !found {
		r.t.Fatalf("the page has no heading %q", heading)
	}
	if level, _, _ := strings.Cut(heading, " "); level != "" {
		text, _, _ = strings.Cut(text, "\n"+level+" ")
	}
	var out []string
	for _, match := range shellBlock.FindAllStringSubmatch(text, -1) {
		out = append(out, match[1])
	}
	if len(out) == 0 {
		r.t.Fatalf("below %q there are no commands", heading)
	}
	return out
}

// run runs a block from the root of the repository and returns what it prints. What one block exports the next ones have.
func (r *reader) run(block string) string {
	r.t.Helper()
	variables := filepath.Join(r.dir, "variables")
	script := "[ ! -e " + variables + " ] || . " + variables + "\n" + block + "\nexport -p > " + variables + "\n"
	cmd := exec.CommandContext(r.t.Context(), "bash", "-euo", "pipefail", "-c", script)
	cmd.Dir, cmd.Env = testkit.Root(r.t), r.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%s\n%v\n%s", block, err, out)
	}
	return string(out)
}
