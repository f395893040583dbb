# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Needs Go, make and git; everything else comes through the module proxy. `make help` lists what there is.
SHELL       := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

# Without cgo the binaries are static, build on machines without a C compiler, and share one build cache with the tests.
# The one exception is the race detector (hack/tests).
export CGO_ENABLED := 0

BINARIES := $(notdir $(patsubst %/,%,$(dir $(wildcard cmd/*/main.go))))
# The Kubernetes that the lab runs stands in lab/go.mod alone; without these clients would see v0.0.0-master.
KUBE_VERSION = $(shell cd lab && go list -m -f '{{.Version}}' k8s.io/kubernetes)
kube_part    = $(word $(1),$(subst ., ,$(patsubst v%,%,$(KUBE_VERSION))))
version_pkg  := k8s.io/component-base/version
LAB_LDFLAGS  = -s -w -X $(version_pkg).gitVersion=$(KUBE_VERSION) \
               -X $(version_pkg).gitMajor=$(call kube_part,1) -X $(version_pkg).gitMinor=$(call kube_part,2)
# No version in LDFLAGS, by choice: the version of a binary is what Go stamped into it, or what internal/platform/buildinfo/source.txt says. VERSION names images
# and releases, and is stamped into those.
# Without DWARF a link takes two thirds of the time; `go build ./cmd/...` makes binaries for a debugger.
LDFLAGS      ?= -w
VERSION      ?= $(shell git describe --tags --dirty 2>/dev/null || echo v0.0.0-dev)

# The registry and folder before the images' names. What is in config/ and in the chart has the same: hack/rename.sh changes all.
REGISTRY     ?= mooring
RELEASE_URL  ?=
BUILDER      ?=
RELEASE_FLAGS = -registry '$(REGISTRY)' -version '$(VERSION)' -url '$(RELEASE_URL)' -builder '$(BUILDER)'
IMG          ?=
KUBECTL      ?= kubectl
COMPONENT    ?= calico-node-sync
DATASTORE    ?=
E2E_FLAGS    ?=
# What `go run ./hack/tests` runs tests with.
RUNNER       := bin/gotestsum bin/testexec bin/linkcache
E2E_NEEDS    := bin/lab bin/etcd bin/etcdctl bin/etcdutl bin/kubectl bin/kube-controllers bin/calico-cni bin/helm bin/krew bin/kustomize bin/promtool build $(RUNNER) $(if $(findstring -short,$(E2E_FLAGS)),,real-nodes bin/calicoctl)
RACE         ?=
VERSIONS     ?=
SUITES       ?=
BENCH        ?= .
BENCH_PKGS   ?= ./internal/nodesync ./internal/calico ./internal/routereflector/... ./internal/etcdstorage/tenancy/wire ./internal/docloud/app ./internal/docloud/provider/simulated ./test/contract/digitalocean ./test/contract/etcdstorage/bench ./test/e2e

.PHONY: help packages debian lab demo-binaries real-nodes test e2e e2e-bgp e2e-nodes nightly matrix bench footprint screenshots lint generate manifests verify walks build images push-images release release-check push-release install deploy \
        uninstall undeploy fmt deps vuln presubmit clean FORCE

help: ## Show this list.
	@awk 'BEGIN {FS = ":.*## "} /^##@/ {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ The two commands to begin with
lab: bin/lab demo-binaries ## Build the lab, start a real cluster on this machine and show Mooring at work in it.
	@bin/lab demo

test: bin/lab bin/etcd bin/etcdctl bin/etcdutl bin/kubectl build $(RUNNER) bin/csi-sanity ## Test both modules against a real etcd and kube-apiserver: 6 to 16 minutes (RACE=1: with the race detector, MOORING_CASES=ci: more cases).
	@go run ./hack/tests unit $(if $(RACE),-race)

##@ More tests
packages: ## Install the Debian packages that some tests use, as root: a C compiler, BIRD, Chromium, e2fsprogs, xfsprogs, runc, nftables, BusyBox.
	@hack/packages.sh

e2e: $(E2E_NEEDS) ## What takes longer: scenarios in the lab, manifests, charts, pages, generators (E2E_FLAGS=-short: samples, 10 minutes; -changed: what the last day can break; -within 20m: no package begins later; a folder: that one).
	@go run ./hack/tests e2e $(E2E_FLAGS)

e2e-bgp: bin/lab bin/kubectl build $(RUNNER) ## Of these, route reflectors on real BIRD, in network namespaces (needs Debian's bird).
	@go run ./hack/tests e2e $(E2E_FLAGS) lab/internal/bgp/e2e

e2e-nodes: bin/lab bin/etcd bin/kubectl bin/helm build $(RUNNER) real-nodes ## Of these, labs with real machines and the product as pods on them (needs root, runc and nftables).
	@go run ./hack/tests e2e $(E2E_FLAGS) lab/internal/realnode/e2e test/e2e/pods

nightly: $(E2E_NEEDS) bin/storage-e2e ## All tests, with the race detector and as many cases as campaigns need: hours (no lint, matrix or vuln).
	@MOORING_CASES=night TEST_FLAGS='-timeout 240m' go run ./hack/tests unit -race
	@CGO_ENABLED=1 GORACE='suppressions=$(CURDIR)/hack/race-suppressions.txt' go test -race -count=1 -timeout 240m ./internal/etcdstorage/controller ./internal/nodesync/controller ./internal/routereflector/controller
	@MOORING_CASES=night TEST_FLAGS='-timeout 240m' go run ./hack/tests e2e
	@MOORING_CASES=night go test -count=1 -timeout 240m ./internal/nodesync -rapid.checks=10000
	@MOORING_CASES=night go test -count=1 -timeout 240m -run '^TestAnyHistory' ./internal/nodesync/controller -rapid.checks=10000
	@MOORING_CASES=night MOORING_E2E_STORM_SECONDS=1800 MOORING_E2E_STORM_MACHINES=500 go test -tags e2e -count=1 -timeout 240m -v -run '^TestStorm$$' ./test/e2e

matrix: bin/lab bin/etcd bin/kubectl build bin/helm bin/kustomize bin/promtool bin/csi/.built ## Other minor versions of kube-apiserver, built from source, under the tests that stand on one (VERSIONS=1.35; SUITES=driver,chart: these alone; VERSIONS=next: the newest release of each upstream, and what it breaks).
	@go run ./hack/matrix $(if $(SUITES),-suites '$(SUITES)') $(VERSIONS)

bench: bin/lab bin/etcd bin/kube-controllers build ## Plan time at growing cluster sizes, calls to DigitalOcean next to upstream's, the etcd proxy next to direct etcd, departures next to Calico's own controllers (BENCH, BENCH_PKGS).
	@go test -tags e2e -run '^$$' -bench '$(BENCH)' -benchmem -timeout 60m $(BENCH_PKGS)

footprint: bin/lab build ## Sizes of the programs in bin/, and their memory once they are ready (FOLDERS=before:after: of these folders).
	@MOORING_FOOTPRINT='$(FOLDERS)' go test -tags e2e -count=1 -v -run '^TestFootprint$$' ./test/e2e/footprint

screenshots: ## Take pictures of the page of kubectl mooring ui into bin/screenshots: sizes, health and trouble, light and dark, wide and narrow (needs Chromium; MOORING_AXE=axe.min.js: axe-core judges each).
	@mkdir -p bin/screenshots
	@MOORING_SCREENSHOTS='$(CURDIR)/bin/screenshots' go test -count=1 -run '^TestPictures$$' ./internal/plugin/page
	@echo 'the pictures are in bin/screenshots'

lint: bin/golangci-lint bin/actionlint ## Lint both modules, dependency directions included, and the workflows.
	@bin/actionlint -shellcheck= -pyflakes=
	@rc=0; bin/golangci-lint run --build-tags e2e ./... || rc=1; \
	  cd lab && ../bin/golangci-lint run --config ../.golangci.yaml ./... || rc=1; exit $$rc

vuln: bin/govulncheck ## Look the products' dependencies up in Go's vulnerability database (needs the network).
	@for b in $(BINARIES); do echo "$$b:"; bin/govulncheck ./cmd/$$b; done

verify: walks ## Regenerate everything and fail if that changes a file, and if a walk through the code has grown.
	@hack/verify.sh

walks: ## Count how far a reader walks through the code on named journeys; fail if a figure is above hack/walks/walks.txt.
	@go run ./hack/walks

presubmit: verify lint ## What a change must pass: verify, lint, the tests as CI runs them, and what it can break of e2e.
	@MOORING_CASES=ci $(MAKE) test RACE=1
	@MOORING_CASES=ci $(MAKE) e2e E2E_FLAGS='-changed -short'

##@ Generated files
generate: bin/controller-gen ## Generate deep copies of the API types, and docs/reference from the code.
	@if [ -d api ]; then bin/controller-gen object:headerFile=hack/boilerplate.go.txt paths=./api/...; fi
	@go run ./hack/docs
	@go run ./hack/matrix -page

manifests: bin/controller-gen bin/kustomize ## Generate CRDs, admission policies, dashboards, dist/*.yaml from config/, roles and SECURITY.md's table from internal/rights, and the list of public names.
	@if [ -d api ]; then bin/controller-gen crd:headerFile=hack/boilerplate.yaml.txt paths=./api/... output:crd:dir=config/crd/bases; fi
	@go run ./hack/policies
	@go run ./hack/dashboards
	@go run ./hack/roles
	@hack/manifests.sh
	@go run ./hack/compat

deps: ## Write cmd/*/deps.txt: what each binary is made of.
	@go run ./hack/deps

fmt: ## Format the Go code of both modules.
	@git ls-files -co --exclude-standard -z -- '*.go' | xargs -0 gofmt -s -w

##@ Build
build: ## Build the product's binaries into bin/.
	@hack/progress.sh go build -v -ldflags '$(LDFLAGS)' -o bin/ $(addprefix ./cmd/,$(BINARIES))

# The product's binaries that `lab demo` runs: a first build is long enough without the others, and without kubectl.
demo-binaries:
	@hack/progress.sh go build -v -ldflags '$(LDFLAGS)' -o bin/ ./cmd/calico-node-sync ./cmd/digitalocean-cloud-controller-manager ./cmd/kubectl-mooring

bin/lab: FORCE
	@cd lab && ../hack/progress.sh go build -v -buildvcs=false -ldflags '$(LAB_LDFLAGS)' -o ../bin/lab .

# etcd itself, for its own grpc-proxy: what etcd-storage-proxy is compared with.
bin/etcd: FORCE
	@cd lab && ../hack/progress.sh go build -v -buildvcs=false -ldflags '-s -w' -o ../bin/etcd go.etcd.io/etcd/server/v3

bin/kubectl: FORCE
	@cd lab && ../hack/progress.sh go build -v -buildvcs=false -ldflags '$(LAB_LDFLAGS)' -o ../bin/kubectl k8s.io/kubernetes/cmd/kubectl

# What real machines run (lab up --real-nodes). kubelet and kube-proxy share most packages with the lab; containerd and CoreDNS have modules of
# their own, as each pins other versions.
real-nodes: bin/csi/.built ## Build what real machines of the lab run: kubelet, kube-proxy, containerd, CNI plugins, CoreDNS, sidecars of volume drivers (7 CPU minutes after the lab).
	@cd lab && ../hack/progress.sh go build -v -buildvcs=false -ldflags '$(LAB_LDFLAGS)' -o ../bin/ k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy
	@cd lab && go build -buildvcs=false -ldflags '-s -w' -o ../bin/ ./cmd/pause ./cmd/sample
	@mkdir -p bin/cni
	@hack/progress.sh go build -v -modfile=go.containerd.mod -tags 'no_btrfs no_devmapper' -ldflags '-s -w' -o bin/ $$(grep -oE '[^[:space:]]+/containerd/v2/cmd/[^[:space:]]+' go.containerd.mod)
	@hack/progress.sh go build -v -modfile=go.containerd.mod -ldflags '-s -w' -o bin/cni/ $$(grep -oE '[^[:space:]]+/plugins/plugins/[^[:space:]]+' go.containerd.mod)
	@hack/progress.sh go build -v -modfile=go.coredns.mod -ldflags '-s -w' -o bin/ github.com/coredns/coredns

# Kubernetes' programs alongside a volume driver, and the custom resources of snapshots (lab up --with digitalocean-csi-driver). They have a module of
# their own, too; the stamp is made last, so that a build that was stopped is done again.
bin/csi/.built: go.csi.mod go.csi.sum $(wildcard lab/cmd/counter/*.go lab/cmd/registrar/*.go)
	@rm -rf bin/csi && mkdir -p bin/csi/crds
	@hack/progress.sh go build -v -modfile=go.csi.mod -ldflags '-s -w' -o bin/csi/ $$(grep -oE '[^[:space:]]+/cmd/(csi-[a-z]+|snapshot-controller)$$' go.csi.mod)
	@cp "$$(go list -modfile=go.csi.mod -m -f '{{.Dir}}' github.com/kubernetes-csi/external-snapshotter/client/v8)"/config/crd/snapshot.storage.k8s.io_*.yaml bin/csi/crds/
	@cd lab && go build -buildvcs=false -ldflags '-s -w' -o ../bin/csi/ ./cmd/counter ./cmd/registrar
	@touch $@

# Kubernetes' own storage tests, and what their pods run (TestKubernetesStorageSuite).
bin/storage-e2e: FORCE
	@cd lab && ../hack/progress.sh go build -v -buildvcs=false -ldflags '$(LAB_LDFLAGS)' -o ../bin/ ./cmd/storage-e2e ./cmd/agnhost

# Tools are copies in bin/, not `go tool` at each call: the same pins (go.tools.mod), but they also run from lab/ and start at once. The tag keeps
# the clients of twenty clouds out of promtool. A tool's package is read off the file, as asking Go would download every other tool's modules too.
bin/csi-sanity bin/gotestsum bin/golangci-lint bin/govulncheck bin/controller-gen bin/kustomize bin/helm bin/promtool bin/actionlint: go.tools.mod
	@echo "Building $(@F) (once)"
	@go build -modfile=go.tools.mod -tags remove_all_sd -o $@ "$$(grep -oE '[^[:space:]]+/$(@F)(/v[0-9]+)?$$' go.tools.mod)"
	@touch $@

# What go test runs test binaries with, to record their costs, and the linker with, to link none twice.
bin/testexec bin/linkcache: $(wildcard hack/testexec/*.go hack/linkcache/*.go) internal/testkit/scratch/scratch.go
	@go build -o $@ ./hack/$(@F)

# Calico's own controllers, for the end to end tests: one and a half minutes on two cores, as it shares no dependency's version with the product.
bin/kube-controllers: go.kube-controllers.mod
	@echo "Building Calico's kube-controllers (once)"
	@go build -modfile=$< -ldflags '-s -w' -o $@ github.com/projectcalico/calico/kube-controllers/cmd/kube-controllers
	@touch $@

# Calico's CNI plugin and calico-ipam in one program, which judges the simulator of what they write: three CPU minutes, 57 MB.
bin/calico-cni: go.calico-cni.mod
	@echo "Building Calico's CNI plugin (once)"
	@go build -modfile=$< -ldflags '-s -w' -o $@ github.com/projectcalico/calico/cni-plugin/cmd/calico
	@touch $@

bin/calicoctl: go.calicoctl.mod
	@echo "Building calicoctl (once)"
	@go build -modfile=$< -ldflags '-s -w' -o $@ github.com/projectcalico/calico/calicoctl/calicoctl
	@touch $@

bin/etcdctl bin/etcdutl: go.etcdutl.mod
	@echo "Building $(@F) (once)"
	@go build -modfile=$< -ldflags '-s -w' -o $@ go.etcd.io/etcd/$(@F)/v3
	@touch $@

bin/krew: go.krew.mod
	@echo "Building krew (once)"
	@go build -modfile=$< -ldflags '-s -w' -o $@ sigs.k8s.io/krew/cmd/krew
	@touch $@

images: ## Build OCI archives with module lists of all images, or of BINARY's, into bin/images; needs no container engine.
	@go run ./hack/release images -registry '$(REGISTRY)' -version '$(VERSION)' $(BINARY)

debian: ## Take the versions that Debian has now into hack/release/debian.txt, by which images have programs of Debian; needs apt.
	@go run ./hack/release debian

push-images: ## Push what `make images` has built to REGISTRY.
	@go run ./hack/release push -out bin/images -registry '$(REGISTRY)' $(BINARY)

##@ Releases (docs/RELEASING.md)
release: ## Make all files of a release from its tag: make release VERSION=v0.1.0 [REGISTRY=... RELEASE_URL=... BUILDER=...].
	@go run ./hack/release all $(RELEASE_FLAGS)

release-check: bin/lab bin/etcd bin/kubectl bin/helm build real-nodes ## Prove it: the same bytes again, programs that run, a chart that installs, upgrades and goes back, with these programs as pods (root, runc and nftables).
	@bin/lab doctor | grep '^ok  *real machines ' >/dev/null || { bin/lab doctor | grep -A 1 -E '^[a-z]+ +real machines ' >&2; \
	  echo 'release-check: the lab cannot run pods on this machine, so the upgrade under traffic cannot be proven: check the release as root, after `make packages`' >&2; exit 1; }
	@go run ./hack/release check $(RELEASE_FLAGS)
	@hack/previous.sh bin/release/previous
	@CI=true MOORING_CHART='$(CURDIR)/bin/release/$(VERSION)/mooring-$(VERSION:v%=%).tgz' MOORING_PROGRAMS='$(CURDIR)/bin/release/programs' \
	  MOORING_PREVIOUS_BINARIES='$(CURDIR)/bin/release/previous' \
	  go test -count=1 -timeout 30m -v -tags e2e -run '^(TestUpgradeAndGoBack|TestChartUpgradeWithTraffic)$$' ./test/charts ./test/e2e/pods

push-release: ## Push images and chart of a release to REGISTRY.
	@go run ./hack/release push -out 'bin/release/$(VERSION)' -registry '$(REGISTRY)'

clean: ## Remove bin/ (Go's build cache stays).
	rm -rf bin

##@ In your cluster (the current context of KUBECTL)
install: ## Install the CRDs.
	@hack/deploy.sh install

uninstall: ## Remove the CRDs, if there are no objects of them.
	@hack/deploy.sh uninstall

deploy: bin/kustomize ## Deploy calico-node-sync (DATASTORE=etcdv3|kubernetes) or another COMPONENT: make deploy [COMPONENT=...] [IMG=...].
	@COMPONENT='$(COMPONENT)' DATASTORE='$(DATASTORE)' IMG='$(IMG)' KUBECTL='$(KUBECTL)' hack/deploy.sh deploy

undeploy: bin/kustomize ## Remove what deploy has deployed, with the same settings; the namespace and the CRDs stay.
	@COMPONENT='$(COMPONENT)' DATASTORE='$(DATASTORE)' KUBECTL='$(KUBECTL)' hack/deploy.sh undeploy
