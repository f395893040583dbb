// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package buildinfo

import (
	"cmp"
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Set by the linker and never written by Go code:
//
//	-ldflags "-X github.com/mooring-dev/mooring/internal/platform/buildinfo.version=v1.2.3 …"
//
// The names MUST not be changed without hack/release.
var (
	version string // a semantic version with leading v
	commit  string //nolint:gochecknoglobals // the full git commit; only the linker writes it
	date    string //nolint:gochecknoglobals // the commit's time, RFC 3339, so that builds stay reproducible; likewise
)

// source is what the source itself knows, for builds of which neither the linker nor the go command knows more: the version that is being made, and, in an
// archive that git or a forge made of a commit, that commit (gitattributes(5), export-subst; without a tag there is no first word).
//
//go:embed source.txt
var source string

// Unknown stands for what a build does not tell about itself.
const Unknown = "unknown"

// shortCommit is how many hex digits of a commit are shown to people.
const shortCommit = 12

// Info describes a build. All fields are filled; what is not known is [Unknown]. The JSON names are
// what `kubectl mooring version -o json` prints.
type Info struct {
	Version   string `json:"version"`
	Commit    string `json:"commit"`
	Date      string `json:"date"`
	GoVersion string `json:"goVersion"`
	Platform  string `json:"platform"` // GOOS/GOARCH
}

// Get returns the running binary's build. What the linker was not told comes from the build
// information that the go command embeds: the module version for `go install …@v1.2.3`, and version
// control settings for a build from a checkout. What neither knows, as with -buildvcs=false or in an
// unpacked archive, comes from the source itself.
func Get() Info {
	embedded, _ := debug.ReadBuildInfo()
	return merge(Info{Version: version, Commit: commit, Date: date}, embedded, fromSource(source))
}

// fromSource reads source.txt: a line with the version that is being made, and one with the tag, the commit and its time, which only an archive has. Without a
// tag the version is that of the first line with -dev, which comes before it.
func fromSource(text string) Info {
	base, archived, _ := strings.Cut(strings.TrimSpace(text), "\n")
	out := Info{Version: base + "-dev"}
	words := strings.Fields(archived)
	if len(words) < 2 || strings.Contains(archived, "$") {
		return out
	}
	if len(words) > 2 {
		out.Version = words[0]
	}
	out.Commit, out.Date = words[len(words)-2], words[len(words)-1]
	return out
}

// merge fills the gaps of linked from embedded, which may be nil, and then from own.
func merge(linked Info, embedded *debug.BuildInfo, own Info) Info {
	out := linked
	out.GoVersion = runtime.Version()
	out.Platform = runtime.GOOS + "/" + runtime.GOARCH
	if embedded != nil {
		if v := embedded.Main.Version; out.Version == "" && v != "(devel)" {
			out.Version = v
		}
		for _, s := range embedded.Settings {
			switch {
			case s.Key == "vcs.revision" && out.Commit == "":
				out.Commit = s.Value
			case s.Key == "vcs.time" && out.Date == "":
				out.Date = s.Value
			}
		}
	}
	out.Version = cmp.Or(out.Version, own.Version, Unknown)
	out.Commit, out.Date = cmp.Or(out.Commit, own.Commit, Unknown), cmp.Or(out.Date, own.Date, Unknown)
	return out
}

// String is the text of --version without the binary's name, on one line.
func (i Info) String() string {
	return fmt.Sprintf("%s (commit %s, date %s, %s, %s)", i.Version, short(i.Commit), i.Date, i.GoVersion, i.Platform)
}

// UserAgent is what component sends as User-Agent, for example
// "calico-node-sync/v1.2.3 (linux/amd64) mooring/0123456789ab". API server audit logs and priority
// levels tell clients apart by it.
func (i Info) UserAgent(component string) string {
	return fmt.Sprintf("%s/%s (%s) mooring/%s", headerToken(component), headerToken(i.Version), i.Platform, short(i.Commit))
}

// Collector exports the constant gauge mooring_build_info{component, version, commit, go_version} 1.
func (i Info) Collector(component string) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "mooring_build_info",
		Help: "Always 1; the labels say which build is running.",
		ConstLabels: prometheus.Labels{
			"component":  component,
			"version":    i.Version,
			"commit":     short(i.Commit),
			"go_version": i.GoVersion,
		},
	}, func() float64 { return 1 })
}

func short(c string) string {
	if len(c) > shortCommit {
		return c[:shortCommit]
	}
	return c
}

// headerToken keeps a value from breaking the product/version grammar of the User-Agent header.
func headerToken(s string) string {
	return strings.Map(func(r rune) rune {
		if r <= ' ' || r > '~' || strings.ContainsRune(`()/<>@,;:\"[]?={}`, r) {
			return '-'
		}
		return r
	}, s)
}
