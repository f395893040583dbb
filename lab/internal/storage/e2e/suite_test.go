// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/lab/internal/storage"
)

// suiteProgram is Kubernetes' own storage tests (lab/cmd/storage-e2e), beside the lab's binary.
const suiteProgram = "storage-e2e"

// suiteClass is a class for XFS whose key for the file system is the one that the suite sets too; that of the manifest has csi-digitalocean's.
const suiteClass = "suite-xfs"

//go:embed testdata/driver.yaml
var driverDefinition string

// part is one process of the suite. Parts run at once unless they are alone.
type part struct {
	name string
	// focus is a regular expression for the specs.
	focus string
	// class is the StorageClass of the volumes, and topology the driver's topology keys.
	class, topology string
	// alone is a part with specs that disturb others.
	alone bool
	// least is how many must pass, so that a focus that matches nothing is noticed.
	least int
}

func parts() []part {
	const ext4, keys, none = ext4Class, "[region]", "[]"
	return []part{
		{name: "volumes", focus: `\] volumes |volumeIO|volumeMode|capacity|topology|volumeLimits`, class: ext4, topology: keys, least: 12},
		{name: "snapshots", focus: `snapshottable|snapshotmetadata|volume-modify`, class: ext4, topology: keys, least: 15},
		{name: "paths", focus: `subPath|fsgroup`, class: ext4, topology: keys, least: 20},
		{name: "several", focus: `multiVolume`, class: ext4, topology: keys, least: 20},
		{name: "sources", focus: `provisioning|read-write-once`, class: ext4, topology: keys, least: 8},
		// With XFS: for ext4 the kernel wants a right to grow it that root does not have everywhere. Volumes that are bound at once are for drivers without topology.
		{name: "growth", focus: `volume-expand|ephemeral `, class: suiteClass, topology: none, least: 20},
		{name: "alone", focus: `\[Serial\]`, class: ext4, topology: keys, alone: true, least: 3},
	}
}

// leftOut are specs that are not run, by the reason.
func leftOut() map[string]string {
	return map[string]string{
		`Feature:Windows`:         "the machines run Linux",
		`\[Disruptive\]`:          "they stop kubelet by SSH, which the machines do not have; TestVolumesNight lets machines fail",
		`Inline-volume`:           "only drivers inside Kubernetes had them",
		`Pre-provisioned PV`:      "the suite provisions volumes of external drivers dynamically",
		`volumegroupsnapshot`:     "DigitalOcean has no snapshots of groups",
		`seLinuxMount`:            "the machines do not have SELinux",
		`data source in parallel`: "DigitalOcean takes one snapshot of a volume in ten minutes, so that five clones at once take forty",
		`any volume data source`:  "the suite installs an image that cannot be pulled",
		`performance`:             "the driver's description names no time that it must keep",
	}
}

// knownFailures are specs that fail, by the reason. Anything else that fails is an error.
func knownFailures() map[string]string {
	return map[string]string{}
}

// spec is what the suite's report tells of one.
type spec struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	LeafNodeType            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct{ Message string }
}

// name is without what all have.
func (s spec) name() string {
	all := strings.Join(append(slices.Clone(s.ContainerHierarchyTexts), s.LeafNodeText), " ")
	return strings.TrimSpace(regexp.MustCompile(`^External Storage \[Driver: [^]]*\]`).ReplaceAllString(all, ""))
}

// suite is the word after the pattern, by which Kubernetes groups them.
func (s spec) suite() string {
	_, rest, _ := strings.Cut(s.name(), "] ")
	word, _, _ := strings.Cut(strings.TrimPrefix(rest, "[Slow] "), " ")
	return word
}

// reason is the first line of what a spec says, without the object's name.
func (s spec) reason() string {
	first, _, _ := strings.Cut(strings.TrimSpace(s.Failure.Message), "\n")
	return strings.TrimSuffix(strings.TrimSuffix(first, " - skipping"), " -- skipping")
}

// TestKubernetesStorageSuite runs Kubernetes' own storage tests against the driver on two real machines, and logs what became of each.
func TestKubernetesStorageSuite(t *testing.T) {
	night(t)
	l := startSuite(t)
	t.Run("together", func(t *testing.T) {
		for _, p := range parts() {
			if !p.alone {
				t.Run(p.name, func(t *testing.T) {
					t.Parallel()
					l.with(t).judge(p, l.with(t).runPart(p))
				})
			}
		}
	})
	for _, p := range parts() {
		if p.alone {
			t.Run(p.name, func(t *testing.T) { l.with(t).judge(p, l.with(t).runPart(p)) })
		}
	}
	l.nothingLeft()
}

// startSuite starts a lab with the images that the suite's pods run.
func startSuite(t *testing.T) *lab {
	t.Helper()
	bin := filepath.Dir(testkit.Binary(t, "lab"))
	program := filepath.Join(bin, suiteProgram)
	if _, err := os.Stat(program); err != nil {
		testkit.Skip(t, "%s is not built: make bin/%s builds it", suiteProgram, suiteProgram)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	references, err := exec.CommandContext(ctx, program, "--list-images").Output()
	if err != nil {
		t.Fatal(err)
	}
	archives, err := storage.MakeSuiteImages(ctx, bin, filepath.Join(t.TempDir(), "images"), strings.Fields(string(references)))
	if err != nil {
		t.Skip(err)
	}
	args := []string{"--real-nodes", "2", "--nodes", "2"}
	for _, a := range archives {
		args = append(args, "--image", a.Repository+"="+a.Path)
	}
	l := start(t, args...)
	_, err = l.api.StorageV1().VolumeAttributesClasses().Create(t.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "tagged"}, DriverName: driver, Parameters: map[string]string{"tags": "suite"},
	}, metav1.CreateOptions{})
	l.must(err)
	_, err = l.api.StorageV1().StorageClasses().Create(t.Context(), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: suiteClass}, Provisioner: driver, Parameters: map[string]string{"csi.storage.k8s.io/fstype": "xfs"},
	}, metav1.CreateOptions{})
	l.must(err)
	return l
}

// runPart runs the specs of a part, and returns those that were chosen.
func (l *lab) runPart(p part) []spec {
	l.Helper()
	folder := l.TempDir()
	definition, report := filepath.Join(folder, "driver.yaml"), filepath.Join(folder, "report.json")
	text := strings.NewReplacer("CLASS", p.class, "TOPOLOGY", p.topology).Replace(driverDefinition)
	l.must(os.WriteFile(definition, []byte(text), 0o600))
	skip := slices.Sorted(maps.Keys(leftOut()))
	if !p.alone {
		skip = append(skip, `\[Serial\]`)
	}
	bin := filepath.Dir(testkit.Binary(l.T, "lab"))
	args := []string{
		"--storage.testdriver=" + definition, "--kubeconfig=" + l.Kubeconfig(), "--kubectl-path=" + filepath.Join(bin, "kubectl"), "--provider=skeleton",
		"--ginkgo.timeout=3h", "--ginkgo.no-color", "--ginkgo.json-report=" + report,
		"--ginkgo.focus=External.Storage.*(" + p.focus + ")", "--ginkgo.skip=" + strings.Join(skip, "|"),
	}
	command := exec.CommandContext(l.Context(), filepath.Join(bin, suiteProgram), args...)
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = time.Minute
	began := time.Now()
	output, problem := command.CombinedOutput() // a failed spec is an error, too
	content, err := os.ReadFile(report)
	if err != nil {
		l.Fatalf("%v, %v: %s", problem, err, output[max(0, len(output)-5000):])
	}
	var reports []struct{ SpecReports []spec }
	l.must(json.Unmarshal(content, &reports))
	var specs []spec
	for _, r := range reports {
		for _, s := range r.SpecReports {
			// What was not chosen is skipped without a word.
			if s.LeafNodeType == "It" && (s.State != "skipped" || s.Failure.Message != "") {
				specs = append(specs, s)
			}
		}
	}
	noneFailed := !slices.ContainsFunc(specs, func(s spec) bool { return s.State != "passed" && s.State != "skipped" })
	if problem != nil && noneFailed {
		l.Errorf("no spec failed, but the suite: %v: %s", problem, output[max(0, len(output)-5000):])
	}
	l.Logf("%s: %d specs in %v", p.name, len(specs), time.Since(began).Round(time.Second))
	return specs
}

// judge logs a table of a part's specs, and fails for each failure that is not known.
func (l *lab) judge(p part, specs []spec) {
	l.Helper()
	slices.SortFunc(specs, func(a, b spec) int { return cmp.Or(cmp.Compare(a.suite(), b.suite()), cmp.Compare(a.name(), b.name())) })
	lines, passed := map[string]*suiteLine{}, 0
	for _, s := range specs {
		if lines[s.suite()] == nil {
			lines[s.suite()] = &suiteLine{}
		}
		at := lines[s.suite()]
		switch s.State {
		case "passed":
			at.passed++
			passed++
			l.Logf("passed in %v: %s", s.RunTime.Round(time.Second), s.name())
		case "skipped":
			at.skipped++
			if !slices.Contains(at.reasons, s.reason()) {
				at.reasons = append(at.reasons, s.reason())
			}
		default:
			at.failed++
			l.failed(s)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		at := lines[name]
		l.Logf("| %s | %d | %d | %d | %s |", name, at.passed, at.failed, at.skipped, strings.Join(at.reasons, "; "))
	}
	if passed < p.least {
		l.Errorf("%d specs of %s passed, want %d at least: has the suite changed?", passed, p.name, p.least)
	}
}

// suiteLine counts the specs of one of Kubernetes' suites.
type suiteLine struct {
	passed, failed, skipped int
	// reasons are why specs were skipped.
	reasons []string
}

// failed tells of a spec that failed.
func (l *lab) failed(s spec) {
	l.Helper()
	for pattern, why := range knownFailures() {
		if regexp.MustCompile(pattern).MatchString(s.name()) {
			l.Logf("known to fail: %s: %s", s.name(), why)
			return
		}
	}
	l.Errorf("%s after %v: %s: %s", s.State, s.RunTime.Round(time.Second), s.name(), fmt.Sprintf("%.3000s", s.Failure.Message))
}
