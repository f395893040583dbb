// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doctor_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// The page of supported versions says what the program says, and names the versions that the tests are built from.
func TestThePageOfVersionsIsTrue(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/components/calico-node-sync-versions.md")
	product, lab := read(t, "go.mod"), read(t, "lab/go.mod")
	tested := map[string][]string{
		doctor.ProductKubernetes: {
			"kube-apiserver " + required(t, lab, "k8s.io/kubernetes"), "client-go " + required(t, product, "k8s.io/client-go"),
		},
		doctor.ProductEtcd: {
			"server " + required(t, lab, "go.etcd.io/etcd/server/v3"), "client " + required(t, product, "go.etcd.io/etcd/client/v3"),
		},
		// Of newer versions there is no module: what they write is tested as bytes (internal/calico: cooldown_test.go), and none of their programs was run.
		doctor.ProductCalico: {"libcalico-go and kube-controllers of 3.31", "IPAM data of 3.32 and " + doctor.Supported()[2].Newest + " as bytes"},
	}
	for _, r := range doctor.Supported() {
		row := regexp.MustCompile(`(?m)^\| ` + r.Product + ` \|.*$`).FindString(page)
		for _, want := range append(tested[r.Product], fmt.Sprintf("| %s to %s |", r.Oldest, r.Newest)) {
			if !strings.Contains(row, want) {
				t.Errorf("the page's row of %s does not say %q: %q", r.Product, want, row)
			}
		}
	}
	component := read(t, "docs/components/calico-node-sync.md")
	for _, r := range doctor.Supported() {
		if want := fmt.Sprintf("%s %s to %s", r.Product, r.Oldest, r.Newest); !strings.Contains(component, want) {
			t.Errorf("the component's page does not say %q", want)
		}
	}
	const calico = "github.com/projectcalico/calico"
	for _, program := range []string{"kube-controllers", "calicoctl", "calico-cni"} {
		if ours, other := required(t, product, calico), required(t, read(t, "go."+program+".mod"), calico); ours != other {
			t.Errorf("%s is built from %s, the product from %s: the tests would not run what the page says", program, other, ours)
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	content := must.Get(os.ReadFile(filepath.Join("..", "..", "..", filepath.FromSlash(name)))).Or(t)
	return string(content)
}

// required is the version of a module that a go.mod requires, without the v.
func required(t *testing.T, gomod, module string) string {
	t.Helper()
	match := regexp.MustCompile(`(?m)^\t` + regexp.QuoteMeta(module) + ` v(\S+)`).FindStringSubmatch(gomod)
	if match == nil {
		t.Fatalf("no version of %s is required", module)
	}
	return match[1]
}
