// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/ulikunitz/xz"
)

// tarOf packs files as dpkg does, by their paths.
func tarOf(t *testing.T, headers []tar.Header, content string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, h := range headers {
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		must.Do(t, w.WriteHeader(&h))
		if h.Typeflag == tar.TypeReg {
			must.Get(io.WriteString(w, content)).Or(t)
		}
	}
	must.Do(t, w.Close())
	return out.Bytes()
}

// compressed compresses as the end of a member's name says.
func compressed(t *testing.T, content []byte, end string) []byte {
	t.Helper()
	var out bytes.Buffer
	var w io.WriteCloser
	switch end {
	case ".gz":
		w = gzip.NewWriter(&out)
	case ".xz":
		var err error
		if w, err = xz.NewWriter(&out); err != nil {
			t.Fatal(err)
		}
	default:
		return content
	}
	must.Get(w.Write(content)).Or(t)
	must.Do(t, w.Close())
	return out.Bytes()
}

// member is one of an ar archive, with a byte after it if its length is odd.
func member(name string, content []byte) string {
	return fmt.Sprintf("%-16s%-12d%-6d%-6d%-8s%-10d`\n%s%s", name, 0, 0, 0, "100644", len(content), content, strings.Repeat("\n", len(content)%2))
}

// debOf makes a package of which each regular file has the same content.
func debOf(t *testing.T, name, end, content string, headers ...tar.Header) []byte {
	t.Helper()
	control := tarOf(t, []tar.Header{{Typeflag: tar.TypeReg, Name: "./control"}}, "Package: "+name+"\n")
	return []byte("!<arch>\n" + member("debian-binary", []byte("2.0\n")) + member("control.tar"+end, compressed(t, control, end)) +
		member("data.tar"+end, compressed(t, tarOf(t, headers, content), end)))
}

func dir(name string) tar.Header { return tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755} }
func regular(name string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o4755, Uid: 1, Uname: "a"}
}
func symbolic(name, link string) tar.Header {
	return tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: link}
}

// TestDebUnpacks: each way of packing gives the same files.
func TestDebUnpacks(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"", ".gz", ".xz"} {
		hard := tar.Header{Typeflag: tar.TypeLink, Name: "./sbin/b", Linkname: "./sbin/a"}
		got, err := readDeb(debOf(t, "tool", end, "odd", dir("./"), dir("./sbin/"), regular("./sbin/a"), hard, symbolic("./sbin/c", "a")))
		if err != nil {
			t.Fatalf("%q: %v", end, err)
		}
		file := debFile{mode: 0o4755, content: []byte("odd")}
		want := deb{[]byte("Package: tool\n"), map[string]debFile{"sbin/a": file, "sbin/b": file, "sbin/c": {link: "a"}}}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(deb{}, debFile{})); diff != "" {
			t.Errorf("%q (-want +got):\n%s", end, diff)
		}
	}
}

// TestDebRefusals: what is not a package of Debian, or leads out of it, is refused.
func TestDebRefusals(t *testing.T) {
	t.Parallel()
	whole := debOf(t, "tool", "", "content", regular("./sbin/a"))
	for name, tt := range map[string]struct{ content, want string }{
		"a page":             {"<html>", "it is not an ar archive"},
		"damaged":            {strings.Replace(string(whole), "`\n", "``", 1), "its ar archive is damaged"},
		"cut off":            {string(whole[:len(whole)-600]), "its ar archive is cut off"},
		"another format":     {strings.Replace(string(whole), "2.0\n", "3.0\n", 1), `its format is "3.0\n", not 2`},
		"no data":            {strings.Replace(string(whole), "data.tar", "date.tar", 1), "it has no data.tar"},
		"no control file":    {strings.Replace(string(whole), "./control\x00", "./contrxl\x00", 1), "control.tar: "},
		"zstd":               {strings.Replace(string(whole), "data.tar    ", "data.tar.zst", 1), `data.tar.zst: compression ".zst" is not known: use a package of Debian, which has xz`},
		"a path that leaves": {string(debOf(t, "tool", "", "", regular("./../../etc/passwd"))), `data.tar: it holds "./../../etc/passwd"`},
		"a device":           {string(debOf(t, "tool", "", "", tar.Header{Typeflag: tar.TypeBlock, Name: "./dev/sda"})), `data.tar: "./dev/sda" is neither a file nor a link nor a folder`},
		"a link to nothing":  {string(debOf(t, "tool", "", "", tar.Header{Typeflag: tar.TypeLink, Name: "./b", Linkname: "./a"})), `data.tar: "./b" is a link to "./a", which is not before it`},
	} {
		if _, err := readDeb([]byte(tt.content)); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// tree makes a tree of packages, added in the order of names.
func tree(t *testing.T, arch string, packages map[string][]byte, names ...string) *debianTree {
	t.Helper()
	out := newDebianTree(arch)
	for _, name := range names {
		must.Do(t, out.add(debianPackage{name: name}, packages[name]))
	}
	return out
}

// TestDebianLayerIsWhatIsNeeded: programs by way of links in files and folders, licenses with the texts that they refer to, and nothing
// else; with one owner, one time and no set-user-ID, whatever the order of the packages.
func TestDebianLayerIsWhatIsNeeded(t *testing.T) {
	t.Parallel()
	packages := map[string][]byte{
		"tool": debOf(t, "tool", ".xz", "see /usr/share/common-licenses/GPL-2.\n", dir("./sbin/"), regular("./sbin/tool.real"), regular("./sbin/other"), symbolic("./sbin/tool", "tool.real"),
			regular("./usr/share/man/man8/tool.8.gz"), symbolic("./usr/share/doc/tool", "tool-base"), regular("./usr/share/doc/tool-base/copyright")),
		"texts": debOf(t, "texts", ".xz", "text\n", regular("./usr/share/common-licenses/GPL-2"), regular("./usr/share/common-licenses/GPL-3"), regular("./usr/lib/os-release"),
			symbolic("./etc/os-release", "../usr/lib/os-release"), regular("./usr/share/doc/texts/copyright")),
	}
	wanted := []debianWanted{{"tool", "MIT", []string{"sbin/tool"}}, {"texts", "MIT", []string{"etc/os-release"}}}
	when := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	var layers [][]byte
	for _, order := range [][]string{{"tool", "texts"}, {"texts", "tool"}} {
		all := tree(t, "amd64", packages, order...)
		must.Do(t, all.choose(wanted))
		layer := must.Get(all.render(when)).Or(t)
		layers = append(layers, layer)
	}
	if !bytes.Equal(layers[0], layers[1]) {
		t.Error("the order of packages changes the layer")
	}
	var held []string
	for r := tar.NewReader(bytes.NewReader(layers[0])); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		must.Do(t, err)
		held = append(held, fmt.Sprintf("%o %s %s", h.Mode, h.Name, h.Linkname))
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(when) {
			t.Errorf("%s has owner %d:%d %q and time %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
	}
	want := []string{
		"755 etc/ ", "777 etc/os-release ../usr/lib/os-release", "755 sbin/ ", "777 sbin/tool tool.real", "755 sbin/tool.real ", "755 usr/ ", "755 usr/lib/ ", "755 usr/lib/os-release ",
		"755 usr/share/ ", "755 usr/share/common-licenses/ ", "755 usr/share/common-licenses/GPL-2 ", "755 usr/share/doc/ ", "755 usr/share/doc/texts/ ", "755 usr/share/doc/texts/copyright ",
		"777 usr/share/doc/tool tool-base", "755 usr/share/doc/tool-base/ ", "755 usr/share/doc/tool-base/copyright ", "755 var/ ", "755 var/lib/ ", "755 var/lib/dpkg/ ",
		"755 var/lib/dpkg/status.d/ ", "644 var/lib/dpkg/status.d/texts ", "644 var/lib/dpkg/status.d/tool ",
	}
	if diff := cmp.Diff(want, held); diff != "" {
		t.Errorf("the layer (-want +got):\n%s", diff)
	}
}

// TestDebianLayerRefusals: an image that would not work, or hold what it does not need, is not made.
func TestDebianLayerRefusals(t *testing.T) {
	t.Parallel()
	self := must.Get(os.Readlink("/proc/self/exe")).Or(t)
	license := regular("./usr/share/doc/tool/copyright")
	pack := func(headers ...tar.Header) map[string][]byte {
		return map[string][]byte{"tool": debOf(t, "tool", "", "content", headers...)}
	}
	for name, tt := range map[string]struct {
		arch     string
		packages map[string][]byte
		want     string
	}{
		"no such program":       {"amd64", pack(license), "tool needs /sbin/tool, which no package in hack/release/debian.txt holds"},
		"a link to nothing":     {"amd64", pack(license, symbolic("./sbin/tool", "/sbin/gone")), "tool needs /sbin/gone, which no package in hack/release/debian.txt holds"},
		"a link to itself":      {"amd64", pack(license, symbolic("./sbin/tool", "tool")), "tool needs /sbin/tool, which no package in hack/release/debian.txt holds"},
		"no license":            {"amd64", pack(regular("./sbin/tool")), "tool needs /usr/share/doc/tool/copyright, which no package in hack/release/debian.txt holds"},
		"for another processor": {"mips", map[string][]byte{"tool": debOf(t, "tool", "", read(t, self), regular("./sbin/tool"))}, ""},
	} {
		err := tree(t, tt.arch, tt.packages, "tool").choose([]debianWanted{{"tool", "MIT", []string{"sbin/tool"}}})
		if tt.arch == "mips" { // this program is for neither, or for one only
			other := map[string]string{"amd64": "arm64", "arm64": "amd64"}[machine()]
			err = tree(t, other, tt.packages, "tool").choose([]debianWanted{{"tool", "MIT", []string{"sbin/tool"}}})
			tt.want = "reading /sbin/tool of the package tool: it is for "
		}
		if err == nil || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	unused := tree(t, "amd64", pack(license), "tool")
	want := "nothing of the package tool is needed: take it from the list in hack/release/debian.go"
	if err := unused.choose([]debianWanted{{"tool", "MIT", nil}}); err == nil || err.Error() != want {
		t.Errorf("a package that nothing needs: %v, want %s", err, want)
	}
	if err := unused.add(debianPackage{name: "copy"}, pack(license)["tool"]); err == nil || err.Error() != "it holds /usr/share/doc/tool/copyright, as tool does" {
		t.Errorf("two packages with one file: %v", err)
	}
}

// mirror is a web server that answers with files by their paths and counts what it is asked for.
type mirror struct {
	files map[string]string
	lock  sync.Mutex
	asked []string
}

func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.lock.Lock()
	defer m.lock.Unlock()
	m.asked = append(m.asked, r.URL.Path)
	content, ok := m.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	_, _ = io.WriteString(w, content)
}

func serve(t *testing.T, files map[string]string) (*mirror, string) {
	t.Helper()
	m := &mirror{files: files}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	return m, server.URL
}

// TestDebianFetch: a package is fetched once, from the mirror or, when mirrors have forgotten it, from the archive of snapshots. One with
// another content is refused.
func TestDebianFetch(t *testing.T) {
	t.Parallel()
	const content, other, longer = "a package", "A package", "a package and more"
	sum := sha256.Sum256([]byte(content))
	p := debianPackage{name: "tool", version: "1.0-1", arch: "arm64", path: "debian/pool/main/t/tool_1.0-1_arm64.deb", size: int64(len(content)), sum: hex.EncodeToString(sum[:])}
	const onMirror, onArchive = "/debian/pool/main/t/tool_1.0-1_arm64.deb", "/archive/debian/20260102T000000Z/pool/main/t/tool_1.0-1_arm64.deb"
	for name, tt := range map[string]struct {
		mirror, archive, cached, want string
		asked                         [2]int
	}{
		"on the mirror":                 {mirror: content, asked: [2]int{1, 0}},
		"only in the archive":           {archive: content, asked: [2]int{1, 1}},
		"in the cache":                  {cached: content},
		"damaged in the cache":          {cached: other, mirror: content, asked: [2]int{1, 0}},
		"another one on the mirror":     {mirror: other, archive: content, asked: [2]int{1, 0}, want: "MIRROR" + onMirror + " is not the package tool 1.0-1 for arm64 that hack/release/debian.txt names: its SHA-256 is "},
		"another size":                  {mirror: longer, asked: [2]int{1, 0}, want: "MIRROR" + onMirror + " is not the package tool 1.0-1 for arm64 that hack/release/debian.txt names: it is not 9 bytes long: set DEBIAN_MIRROR to another mirror"},
		"nowhere":                       {asked: [2]int{1, 1}, want: "the package tool 1.0-1 for arm64 cannot be fetched (MIRROR" + onMirror + " responds with 404 Not Found; ARCHIVE" + onArchive + " responds with 404 Not Found): set DEBIAN_MIRROR to a mirror that this machine reaches, or put the file there as "},
		"another one in the archive":    {archive: other, asked: [2]int{1, 1}, want: "ARCHIVE" + onArchive + " is not the package tool 1.0-1 for arm64 that "},
		"a mirror that cannot be asked": {archive: content, asked: [2]int{0, 1}},
	} {
		files := func(path, content string) map[string]string {
			if content == "" {
				return nil
			}
			return map[string]string{path: content}
		}
		first, mirrorURL := serve(t, files(onMirror, tt.mirror))
		second, archiveURL := serve(t, files(onArchive, tt.archive))
		from := debianSource{mirror: mirrorURL + "/", archive: archiveURL, cache: filepath.Join(t.TempDir(), "debian"), day: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		if tt.asked[0] == 0 {
			from.mirror = "http://127.0.0.1:1"
		}
		if tt.cached != "" {
			write(t, from.cache, p.sum+".deb", tt.cached)
		}
		for range 2 { // a second time everything is in the cache, or fails as before
			got, err := from.get(t.Context(), p)
			said := strings.NewReplacer(mirrorURL, "MIRROR", archiveURL, "ARCHIVE").Replace(fmt.Sprint(err))
			if tt.want == "" && (err != nil || string(got) != content) || tt.want != "" && (err == nil || !strings.HasPrefix(said, tt.want) || strings.Contains(said, "\n")) {
				t.Errorf("%s: %q, %s, want %q", name, got, said, tt.want)
			}
		}
		if times := 1 + min(1, len(tt.want)); len(first.asked) != tt.asked[0]*times || len(second.asked) != tt.asked[1]*times {
			t.Errorf("%s: the mirror was asked for %q and the archive for %q", name, first.asked, second.asked)
		}
	}
}

// TestDebianListIsWhole: the list in the repository has each package for both platforms, from one source each, and reads back as it is written.
func TestDebianListIsWhole(t *testing.T) {
	t.Parallel()
	text := read(t, debianListFile(root))
	list := must.Get(parseDebianList(text)).Or(t)
	if list.render() != text {
		t.Error("hack/release/debian.txt is not as make debian writes it")
	}
	if got, want := len(list.packages), 2*len(debianContents()); got != want {
		t.Errorf("the list has %d packages, want %d", got, want)
	}
	versions := map[string]string{}
	for _, arch := range []string{"amd64", "arm64"} {
		packages := must.Get(list.of(arch)).Or(t)
		for _, p := range packages {
			file := "_" + strings.ReplaceAll(p.version[strings.Index(p.version, ":")+1:], ":", "") + "_" + arch + ".deb"
			if !regexp.MustCompile(`^debian(-security)?/pool/`).MatchString(p.path) || !strings.HasSuffix(p.path, "/"+p.name+file) {
				t.Errorf("%s is at %s", p, p.path)
			}
			if before := versions[p.source]; before != "" && before != p.sourceVersion {
				t.Errorf("%s is made from %s %s and %s", p, p.source, before, p.sourceVersion)
			}
			versions[p.source] = p.sourceVersion
		}
	}
}

// TestDebianListRefusals: a line that is not understood is named.
func TestDebianListRefusals(t *testing.T) {
	t.Parallel()
	const again = ": write the list again with make debian"
	line := "tool amd64 1 tool 1 debian/pool/tool.deb 9 " + strings.Repeat("a", 64)
	for text, want := range map[string]string{
		"# nothing\n":     "hack/release/debian.txt has no line that begins with day" + again,
		"\nday yesterday": "line 2 of hack/release/debian.txt has no day of the form 2006-01-02" + again,
		"tool amd64 1":    "line 1 of hack/release/debian.txt does not have eight columns" + again,
		strings.Replace(line, " 9 ", " much ", 1):          "line 1 of hack/release/debian.txt has no size" + again,
		strings.Replace(line, "aaa", "", 1):                "line 1 of hack/release/debian.txt has no SHA-256 or no path below a mirror" + again,
		strings.Replace(line, "debian/pool", "../pool", 1): "line 1 of hack/release/debian.txt has no SHA-256 or no path below a mirror" + again,
		"day 2026-01-02\n" + line:                          "hack/release/debian.txt lacks base-files for amd64" + again,
	} {
		list, err := parseDebianList(text)
		if err == nil {
			_, err = list.of("amd64")
		}
		if err == nil || err.Error() != want {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

// TestStanza: what apt says becomes a line of the list.
func TestStanza(t *testing.T) {
	t.Parallel()
	got, err := parseStanza("Package: libtool1\nSource: tool (1:1.0-1)\nVersion: 1:1.0-1+b2\nArchitecture: arm64\nDescription: short\n long: longer\nFilename: pool/updates/main/t/libtool1.deb\nSize: 12\nSHA256: ab\n")
	want := debianPackage{"libtool1", "arm64", "1:1.0-1+b2", "tool", "1:1.0-1", "debian-security/pool/updates/main/t/libtool1.deb", 12, "ab"}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	if _, err := parseStanza("Package: tool\nVersion: 1\n"); err == nil {
		t.Error("a package without a file is accepted")
	}
}

// TestImageWithDebian: the image has Debian's layer below the program's, with the same bytes each time; the program is found in it; scanners
// find the packages.
func TestImageWithDebian(t *testing.T) {
	t.Parallel()
	when := time.Unix(1_000_000_000, 0).UTC()
	a := about{binary: debianBinary, source: source{version: "v1.2.3", commit: "0123456789abcdef", module: "example.org/tiny", time: when}}
	p := program{platform: platform{"linux", "arm64"}, content: []byte("a program"), info: &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Path: "example.org/tiny"}}}
	p.debian = &debianLayer{content: tarOf(t, []tar.Header{regular("sbin/e2fsck")}, "content"), day: when, packages: []debianPackage{
		{"libc6", "arm64", "1:2.36-9+deb12u14", "glibc", "1:2.36-9+deb12u14", "debian/pool/main/g/glibc/libc6_2.36-9+deb12u14_arm64.deb", 9, "ab"},
	}}
	var digests []string
	for range 2 {
		index := must.Get(assemble(a, []program{p})).Or(t)
		digest := must.Get(index.Digest()).Or(t)
		digests = append(digests, digest.String())
	}
	if digests[0] != digests[1] {
		t.Errorf("two images of the same are %q", digests)
	}
	image := must.Get(picture(a, p)).Or(t)
	layers, err := image.Layers()
	if err != nil || len(layers) != 2 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	for i, file := range []string{"sbin/e2fsck", "bin/" + debianBinary} {
		content := must.Get(layers[i].Uncompressed()).Or(t)
		if _, err := fileOf(content, file); err != nil {
			t.Errorf("layer %d: %v", i, err)
		}
	}
	config := must.Get(image.ConfigFile()).Or(t)
	if config.Config.User != "0:0" || !slices.Equal(config.Config.Env, []string{"PATH=/bin:/usr/sbin:/sbin"}) || config.History[0].Comment != "of Debian 12: libc6 1:2.36-9+deb12u14" {
		t.Errorf("configuration %+v, history %+v", config.Config, config.History)
	}
	const licenses = "Apache-2.0 AND BSD-3-Clause AND GPL-2.0-only AND GPL-2.0-or-later AND GPL-3.0-or-later WITH GCC-exception-3.1 AND LGPL-2.0-only AND LGPL-2.1-only AND LGPL-2.1-or-later AND MIT"
	if got := config.Config.Labels["org.opencontainers.image.licenses"]; got != licenses {
		t.Errorf("licenses %q, want %q", got, licenses)
	}
	if none, some := debianNotices([]string{"tiny"}), debianNotices([]string{"tiny", debianBinary}); len(none) > 0 || strings.Count(string(some), "/copyright, ") != len(debianContents()) {
		t.Errorf("notices %q and %q", none, some)
	}
	list := must.Get(modules(a, p)).Or(t)
	got := document(t, string(list)).Packages[2]
	text := must.Get(json.Marshal(got)).Or(t)
	const want = `{"SPDXID":"SPDXRef-deb-libc6","name":"libc6","versionInfo":"1:2.36-9+deb12u14","packageFileName":"libc6_2.36-9+deb12u14_arm64.deb","primaryPackagePurpose":"LIBRARY",` +
		`"downloadLocation":"https://snapshot.debian.org/archive/debian/20010910T014640Z/pool/main/g/glibc/libc6_2.36-9+deb12u14_arm64.deb","filesAnalyzed":false,` +
		`"checksums":[{"algorithm":"SHA256","checksumValue":"ab"}],"sourceInfo":"some files of this package of Debian; its source is glibc 1:2.36-9+deb12u14, ` +
		`https://snapshot.debian.org/package/glibc/1:2.36-9+deb12u14/","licenseDeclared":"LGPL-2.1-or-later","licenseComments":"all authors and licenses are in /usr/share/doc/libc6/copyright of the image",` +
		`"externalRefs":[{"referenceCategory":"PACKAGE-MANAGER","referenceType":"purl","referenceLocator":"pkg:deb/debian/libc6@1%3A2.36-9%2Bdeb12u14?arch=arm64\u0026distro=bookworm"}]}`
	if string(text) != want {
		t.Errorf("list %s\nwant %s", text, want)
	}
}

// TestDebianHasWhatTheDriverRuns: each program that internal/docloud/blockdevice runs is among what is taken.
func TestDebianHasWhatTheDriverRuns(t *testing.T) {
	t.Parallel()
	files := must.Get(filepath.Glob(filepath.Join(root, "internal", "docloud", "blockdevice", "*.go"))).Or(t)
	var taken, run []string
	for _, w := range debianContents() {
		for _, file := range w.files {
			taken = append(taken, filepath.Base(file))
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, match := range regexp.MustCompile(`\brun\(ctx, "([^"]+)"|return "(mkfs\.[^"]+)"`).FindAllStringSubmatch(read(t, file), -1) {
			run = append(run, match[1]+match[2])
		}
	}
	slices.Sort(run)
	run = slices.Compact(run)
	if want := []string{"e2fsck", "mkfs.ext4", "mkfs.xfs", "resize2fs", "xfs_growfs"}; !slices.Equal(run, want) {
		t.Errorf("the driver runs %q, want %q: change debianContents and this test", run, want)
	}
	for _, name := range run {
		if !slices.Contains(taken, name) {
			t.Errorf("the driver runs %s, which the image does not have", name)
		}
	}
}
