// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package buildinfo

import (
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	platform := runtime.GOOS + "/" + runtime.GOARCH
	checkout := &debug.BuildInfo{
		Main: debug.Module{Version: "(devel)"},
		Settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: "0123456789abcdef"}, {Key: "vcs.time", Value: "2026-01-02T03:04:05Z"},
		},
	}
	tests := map[string]struct {
		linked   Info
		embedded *debug.BuildInfo
		own      Info
		want     Info
	}{
		"nothing known": {Info{}, nil, Info{}, Info{Version: Unknown, Commit: Unknown, Date: Unknown}},
		"the source alone": {
			Info{}, &debug.BuildInfo{Main: debug.Module{Version: "(devel)"}}, Info{Version: "v0.1.0-dev"},
			Info{Version: "v0.1.0-dev", Commit: Unknown, Date: Unknown},
		},
		"the linker wins": {
			Info{Version: "v1.2.3", Commit: "feed", Date: "2026-02-03T04:05:06Z"}, checkout, Info{Version: "v0.1.0", Commit: "0000", Date: "never"},
			Info{Version: "v1.2.3", Commit: "feed", Date: "2026-02-03T04:05:06Z"},
		},
		"a build in a checkout": {Info{}, checkout, Info{Version: "v0.1.0-dev"}, Info{Version: "v0.1.0-dev", Commit: "0123456789abcdef", Date: "2026-01-02T03:04:05Z"}},
		"go install of a version": {
			Info{}, &debug.BuildInfo{Main: debug.Module{Version: "v0.9.0"}}, Info{Version: "v0.1.0-dev"},
			Info{Version: "v0.9.0", Commit: Unknown, Date: Unknown},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tt.want.GoVersion, tt.want.Platform = runtime.Version(), platform
			if diff := cmp.Diff(tt.want, merge(tt.linked, tt.embedded, tt.own)); diff != "" {
				t.Errorf("merge differs (-want +got):\n%s", diff)
			}
		})
	}
}

// TestFromSource: a checkout knows the version that is being made, an archive of a commit the commit, and an archive of a tag the tag.
func TestFromSource(t *testing.T) {
	t.Parallel()
	const commit, date = "0123456789abcdef", "2026-01-02T03:04:05Z"
	for text, want := range map[string]Info{
		"v0.2.0\n$Format:%(describe:tags=true) %H %cI$\n": {Version: "v0.2.0-dev"},
		"v0.2.0\nv0.1.0 " + commit + " " + date + "\n":    {Version: "v0.1.0", Commit: commit, Date: date},
		"v0.2.0\n " + commit + " " + date + "\n":          {Version: "v0.2.0-dev", Commit: commit, Date: date},
	} {
		if got := fromSource(text); got != want {
			t.Errorf("fromSource(%q) = %+v, want %+v", text, got, want)
		}
	}
	if got := fromSource(source); !regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+`).MatchString(got.Version) {
		t.Errorf("the source says %+v", got)
	}
}

// TestSourceIsStampedByGit: git knows which file to write the commit into.
func TestSourceIsStampedByGit(t *testing.T) {
	t.Parallel()
	attributes := must.Get(os.ReadFile("../../../.gitattributes")).Or(t)
	if !strings.Contains(string(attributes), "internal/platform/buildinfo/source.txt export-subst\n") {
		t.Errorf(".gitattributes does not name source.txt:\n%s", attributes)
	}
}

// The strings below are read by scripts, audit logs and dashboards.
func TestPublicStrings(t *testing.T) {
	t.Parallel()
	i := Info{Version: "v1.2.3", Commit: "0123456789abcdef", Date: "2026-01-02T03:04:05Z", GoVersion: "go1.26.8", Platform: "linux/amd64"}
	if got, want := i.String(), "v1.2.3 (commit 0123456789ab, date 2026-01-02T03:04:05Z, go1.26.8, linux/amd64)"; got != want {
		t.Errorf("String() = %q, want %q", got, want)
	}
	if got, want := i.UserAgent("calico-node-sync"), "calico-node-sync/v1.2.3 (linux/amd64) mooring/0123456789ab"; got != want {
		t.Errorf("UserAgent() = %q, want %q", got, want)
	}
	if got, want := (Info{Version: "v1 (bad)\n"}).UserAgent("a/b"), "a-b/v1--bad-- () mooring/"; got != want {
		t.Errorf("UserAgent() of odd values = %q, want %q", got, want)
	}
	const metrics = `
# HELP mooring_build_info Always 1; the labels say which build is running.
# TYPE mooring_build_info gauge
mooring_build_info{commit="0123456789ab",component="calico-node-sync",go_version="go1.26.8",version="v1.2.3"} 1
`
	if err := testutil.CollectAndCompare(i.Collector("calico-node-sync"), strings.NewReader(metrics)); err != nil {
		t.Error(err)
	}
}

func TestGetIsComplete(t *testing.T) {
	t.Parallel()
	got := Get()
	for _, s := range []string{got.Version, got.Commit, got.Date, got.GoVersion, got.Platform} {
		if s == "" {
			t.Errorf("Get() has an empty field: %+v", got)
		}
	}
}
