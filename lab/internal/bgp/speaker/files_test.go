// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package speaker

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/testkit"
)

func TestAdapt(t *testing.T) {
	t.Parallel()
	in := "dest = \"/etc/calico/confd/config/bird.cfg\"\n  krt_tunnel = \"\";  {{- /* no tunnel */}}\n  krt_tunnel = \"{{$data.ipip}}\";\n"
	want := "dest = \"/x/bird.cfg\"\n  preference = preference;  {{- /* no tunnel */}}\n  preference = preference;\n"
	if got := string(adapt([]byte(in), "/x")); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// calicoPaths are paths of calico-node's own file system.
var calicoPaths = regexp.MustCompile(`/etc/calico/confd/config|krt_tunnel`)

// TestCopyOfTheRealTemplates sees that nothing of the pinned templates is left that a lab has not or Debian's bird does not understand.
func TestCopyOfTheRealTemplates(t *testing.T) {
	t.Parallel()
	from, err := FindTemplates(t.Context())
	if err != nil {
		testkit.Skip(t, "Calico's module is needed: %v", err)
	}
	to := t.TempDir()
	if err := copyTemplates(from, to, false); err != nil {
		t.Fatal(err)
	}
	seen := 0
	err = filepath.WalkDir(to, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if strings.HasSuffix(path, ".template") || strings.HasSuffix(path, ".toml") {
			seen++
			if found := calicoPaths.Find(content); found != nil {
				t.Errorf("%s still has %s", entry.Name(), found)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 12 {
		t.Errorf("%d templates were copied; there should be at least 12", seen)
	}
}

// TestWhatTheTemplatesOfferAgainstSilence sees what docs/components/calico-route-reflector-operator.md says of the timers of Calico's sessions.
func TestWhatTheTemplatesOfferAgainstSilence(t *testing.T) {
	t.Parallel()
	from, err := FindTemplates(t.Context())
	if err != nil {
		testkit.Skip(t, "Calico's module is needed: %v", err)
	}
	client, err := os.ReadFile(filepath.Join(from, "..", "..", "..", "pkg", "backends", "calico", "client.go"))
	if want := fmt.Sprintf("%q", strconv.Itoa(assumed.CalicoASNumber)); err != nil || !strings.Contains(string(client), want) {
		t.Errorf("confd has no AS number %s by default: %v", want, err)
	}
	for _, name := range []string{"bird.cfg.template", "bird6.cfg.template"} {
		content, err := os.ReadFile(filepath.Join(from, "templates", name))
		if err != nil {
			t.Fatal(err)
		}
		text := strings.ToLower(string(content))
		for _, absent := range []string{"bfd", "hold time", "keepalive"} {
			if strings.Contains(text, absent) {
				t.Errorf("%s has %q now: the documentation denies it", name, absent)
			}
		}
		for _, present := range []string{"graceful restart;", "graceful restart time {{$data.restart_time}};", "connect delay time 2;", "connect retry time 5;", "error wait time 5,30;"} {
			if !strings.Contains(text, present) {
				t.Errorf("%s has no %q: the documentation says so", name, present)
			}
		}
	}
}

// TestFindBird looks for bird in a folder that is not on PATH, with and without bird6, which bird 2 has not.
func TestFindBird(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	nowhere := func(name string) (string, error) {
		if !filepath.IsAbs(name) {
			return "", exec.ErrNotFound
		}
		return exec.LookPath(name)
	}
	const sentence = " is not installed: the BGP network needs bird 1.6, which is Debian's package bird, not bird2 " +
		"(apt-get install -y --no-install-recommends bird); without it the operator's logic is still tested, with simulated statuses"
	for _, name := range []string{"bird", "bird6"} {
		if _, _, err := findBird(nowhere, dir); !errors.Is(err, ErrNoBird) || err.Error() != name+sentence {
			t.Errorf("without %s: %v", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	bird, bird6, err := findBird(nowhere, t.TempDir(), dir)
	if err != nil || bird != filepath.Join(dir, "bird") || bird6 != filepath.Join(dir, "bird6") {
		t.Errorf("found %s and %s, %v", bird, bird6, err)
	}
}
