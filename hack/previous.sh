#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Builds the programs of etcd storage as they were in the version before this one, into a folder, for tests that upgrade from it (MOORING_PREVIOUS_BINARIES).
# The commit of that version is in test/charts/testdata/previous/COMMIT.
#
# Usage: hack/previous.sh FOLDER
set -euo pipefail
cd "$(dirname "$0")/.."
die() {
	echo "previous.sh: $*" >&2
	exit 1
}

[ $# = 1 ] || die "name one argument, the folder for the programs"
mkdir -p "$1"
folder=$(cd "$1" && pwd)
commit=$(<test/charts/testdata/previous/COMMIT)
git cat-file -e "$commit^{commit}" 2>/dev/null ||
	die "commit $commit, the version to upgrade from, is not in this clone: fetch all of the history (git fetch --unshallow)"

checkout=$(mktemp -d)
trap 'rm -rf "$checkout"' EXIT
git archive "$commit" | tar -x -C "$checkout"
cd "$checkout"
CGO_ENABLED=0 go build -trimpath -buildvcs=false -o "$folder/" ./cmd/etcd-storage-operator ./cmd/etcd-storage-proxy
