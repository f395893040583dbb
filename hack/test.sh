#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/test.sh   (by make test, which builds what this needs)
# Runs the tests of both modules. TEST_FLAGS adds flags; TEST_JSON_DIR says where the event streams go (default bin/test).
#
# The race detector needs a C compiler and doubles what is compiled, so it is used where it costs little: for every package whose tests
# link neither Kubernetes' nor etcd's server. Those two are other people's code and make up most of the build. The one other exception lets hours
# pass for thousands of Nodes: it takes a minute, and with the race detector more than fifteen; the packages that it drives have tests with it.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
# Tests wait for clusters more than they compute, so that three packages at a time do well on two processors; four make each slower, and all of them no faster.
parallel=$(($(nproc) > 3 ? $(nproc) : 3))
json=${TEST_JSON_DIR:-$root/bin/test}
mkdir -p "$json"
rm -f "$json"/*.json

race=()
if printf 'int main(void){return 0;}' | "$(go env CC)" -x c -o /dev/null - 2>/dev/null; then
	race=(-race)
	export GORACE="suppressions=$root/hack/race-suppressions.txt"
else
	echo "No C compiler that links ($(go env CC)): the tests run without the race detector. Debian: apt-get install gcc libc6-dev."
fi

# packages prints the packages with tests in the current module whose test binaries do (heavy) or do not (light) link a server.
packages() {
	go list -test -f '{{.ImportPath}} {{join .Deps " "}}' ./... | awk -v want="$1" '
		$1 ~ /\.test$/ {
			kind = /^[^ ]*\/docloud\/provider\/simulated\.test / || / (k8s\.io\/kubernetes|go\.etcd\.io\/etcd\/server)\// ? "heavy" : "light"
			sub(/\.test$/, "", $1)
			if (kind == want) print $1
		}'
}

# slow_first puts the packages that take minutes before the others, so that none of them runs alone at the end. An order alone: a name that is gone
# does no harm.
slow_first() {
	awk '
		BEGIN {
			n = split("routereflector/controller etcdstorage/controller nodesync/controller provider/balancertest test/manifests etcdstorage/isolation " \
				"internal/calico internal/routereflector admission/policy etcdstorage/pki test/contract/digitalocean test/charts internal/plugin", slow)
		}
		{
			for (i = 1; i <= n; i++) if (substr($0, length($0) - length(slow[i])) == "/" slow[i]) { first[i] = $0; next }
			rest[++m] = $0
		}
		END {
			for (i = 1; i <= n; i++) if (i in first) print first[i]
			for (i = 1; i <= m; i++) print rest[i]
		}'
}

# run NAME FLAGS...: tests the packages named on standard input; a failure is remembered, so that the rest runs too.
failed=0
run() {
	local name=$1 list
	shift
	mapfile -t list < <(slow_first)
	[ "${#list[@]}" -gt 0 ] || return 0
	echo "== ${PWD#"$root"/} $name: ${#list[@]} packages $*"
	# shellcheck disable=SC2086 # TEST_FLAGS is a list
	"$root/bin/gotestsum" --format pkgname-and-test-fails --format-hide-empty-pkg --jsonfile "$json/$name.json" -- \
		-p "$parallel" -shuffle=on -timeout 30m "$@" ${TEST_FLAGS:-} "${list[@]}" || failed=1
}

cgo=0
if [ "${#race[@]}" -gt 0 ]; then cgo=1; fi
CGO_ENABLED=$cgo run root "${race[@]}" < <(packages light)
run root-heavy < <(packages heavy)
cd lab
CGO_ENABLED=$cgo run lab "${race[@]}" < <(packages light)
run lab-heavy < <(packages heavy)
exit "$failed"
