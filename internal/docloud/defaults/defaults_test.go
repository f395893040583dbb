// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package defaults_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const two = "# of the cluster\n" + annotation.SizeUnit + ": \"2\"\n" + annotation.AllowRules + ": ip:192.0.2.1,cidr:10.0.0.0/8\n"

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1]
			}
		}
		return ""
	}
}

// One variable is enough; a file does as well, by flag or by variable.
func TestLoad(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	must.Do(t, os.WriteFile(file, []byte(two), 0o600))
	want := annotation.Defaults{annotation.SizeUnit: "2", annotation.AllowRules: "ip:192.0.2.1,cidr:10.0.0.0/8"}
	for name, tt := range map[string]struct {
		env  func(string) string
		file string
		want annotation.Defaults
		err  string
	}{
		"nothing":            {env: env(), want: annotation.Defaults{}},
		"blanks":             {env: env(defaults.EnvText, " \n"), want: annotation.Defaults{}},
		"the variable":       {env: env(defaults.EnvText, two), want: want},
		"JSON":               {env: env(defaults.EnvText, `{"`+annotation.SizeUnit+`":"2"}`), want: annotation.Defaults{annotation.SizeUnit: "2"}},
		"the flag":           {env: env(defaults.EnvFile, "nowhere"), file: file, want: want},
		"the file's own":     {env: env(defaults.EnvFile, file, defaults.EnvText, "\n"), want: want},
		"two of them":        {env: env(defaults.EnvText, two), file: file, err: "there are two lists of defaults, DO_LOAD_BALANCER_DEFAULTS and the file " + file + ": give one of them"},
		"no file":            {env: env(), file: file + "x", err: "reading defaults for annotations: open " + file + "x: no such file or directory"},
		"a wrong entry":      {env: env(defaults.EnvText, annotation.Name+": x"), err: "DO_LOAD_BALANCER_DEFAULTS: annotation " + annotation.Name + " cannot have a default: names are unique in an account"},
		"a number":           {env: env(defaults.EnvText, annotation.SizeUnit+": 2"), err: "DO_LOAD_BALANCER_DEFAULTS: annotation " + annotation.SizeUnit + " is 2, which is not text: put it between quotation marks"},
		"nothing in it":      {env: env(defaults.EnvText, annotation.SizeUnit+":"), err: "DO_LOAD_BALANCER_DEFAULTS: annotation " + annotation.SizeUnit + " is <nil>, which is not text: put it between quotation marks"},
		"no object":          {env: env(defaults.EnvText, "size"), err: "DO_LOAD_BALANCER_DEFAULTS: it must be one line for each annotation, NAME: VALUE, each name once: "},
		"a name twice":       {env: env(defaults.EnvText, two+annotation.SizeUnit+": \"3\""), err: "DO_LOAD_BALANCER_DEFAULTS: it must be one line for each annotation, NAME: VALUE, each name once: "},
		"a file that is bad": {env: env(defaults.EnvFile, file+"y"), err: "reading defaults for annotations: "},
	} {
		got, _, err := defaults.Load(tt.env, tt.file)
		if tt.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tt.err) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %s", name, err, tt.err)
			}
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v\n%s", name, err, diff)
		}
	}
}

// Names that manifests hold.
func TestContract(t *testing.T) {
	t.Parallel()
	got := []string{defaults.EnvText, defaults.EnvFile, defaults.Flag}
	want := []string{"DO_LOAD_BALANCER_DEFAULTS", "DO_LOAD_BALANCER_DEFAULTS_FILE", "load-balancer-defaults-file"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// FuzzParse: whatever is read is one sentence, or defaults that are read again as they are.
func FuzzParse(f *testing.F) {
	f.Add([]byte(two))
	f.Add([]byte("{}"))
	f.Add([]byte("a: [1"))
	f.Fuzz(func(t *testing.T, text []byte) {
		d, _, err := defaults.Parse(text)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q", err)
			}
			return
		}
		if again, _, err := annotation.NewDefaults(d); err != nil || cmp.Diff(d, again) != "" {
			t.Errorf("%q: %v, %v", d, again, err)
		}
	})
}
