// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command storage-e2e is the part of Kubernetes' own end-to-end tests that tests a volume driver, which a file describes (--storage.testdriver). It has the
// flags of e2e.test; --list-images prints the images that its pods run.
package main

import (
	"flag"
	"os"

	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	"k8s.io/kubernetes/test/e2e/framework"
	"k8s.io/kubernetes/test/e2e/framework/config"
	"k8s.io/kubernetes/test/e2e/framework/testfiles"
	manifests "k8s.io/kubernetes/test/e2e/testing-manifests"

	// What a spec that failed shows, and what each one checks at its end.
	_ "k8s.io/kubernetes/test/e2e/framework/debug/init"
	_ "k8s.io/kubernetes/test/e2e/framework/metrics/init"
	_ "k8s.io/kubernetes/test/e2e/framework/node/init"
	// The flag of a driver's description.
	_ "k8s.io/kubernetes/test/e2e/storage/external"
)

// runner is what ginkgo calls when a spec fails, in the place of a test of Go's.
type runner struct{ failed bool }

// Fail implements ginkgo.GinkgoTestingT.
func (r *runner) Fail() { r.failed = true }

func main() {
	config.CopyFlags(config.Flags, flag.CommandLine)
	framework.RegisterCommonFlags(flag.CommandLine)
	framework.RegisterClusterFlags(flag.CommandLine)
	flag.Parse()
	testfiles.AddFileSource(manifests.GetE2ETestingManifestsFS())
	framework.AfterReadingAllFlags(&framework.TestContext)
	gomega.RegisterFailHandler(framework.Fail)
	suite, reporter := framework.CreateGinkgoConfig()
	r := &runner{}
	if !ginkgo.RunSpecs(r, "Storage", suite, reporter) || r.failed {
		os.Exit(1)
	}
}
