#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/verify.sh   (by make verify)
# Regenerates everything that is generated and fails if that changed, added or removed a file. It compares with the working tree
# rather than with git's last commit, so it also works alongside uncommitted changes. What it regenerated stays, ready to be committed.
set -euo pipefail
cd "$(dirname "$0")/.."
problems=()

# snapshot prints a checksum for each file that git tracks or would track.
snapshot() {
	git ls-files -co --exclude-standard -z | while IFS= read -r -d '' f; do
		if [ -f "$f" ]; then sha256sum -- "$f"; fi
	done | sort -k2
}

before=$(snapshot)
${MAKE:-make} generate manifests deps
after=$(snapshot)
stale=$(diff <(echo "$before") <(echo "$after") | awk '/^[<>]/ {print $3}' | sort -u || true)
if [ -n "$stale" ]; then
	problems+=("generated files were out of date (regenerated now; commit them): $(tr '\n' ' ' <<<"$stale")")
fi

unformatted=$(git ls-files -co --exclude-standard -z -- '*.go' | xargs -0 gofmt -s -l)
if [ -n "$unformatted" ]; then
	problems+=("not formatted, run make fmt: $(tr '\n' ' ' <<<"$unformatted")")
fi

for module in . lab; do
	if ! tidy=$(cd "$module" && go mod tidy -diff 2>&1); then
		problems+=("$module/go.mod is not tidy, run go mod tidy there:"$'\n'"$(head -40 <<<"$tidy")")
	fi
done

# Four lines, since controller-gen puts the build tag before the header.
unmarked=$(git ls-files -co --exclude-standard -- '*.go' '*.sh' '*.yaml' Makefile | grep -v '/testdata/' | while IFS= read -r f; do
	head -4 -- "$f" | grep -q 'SPDX-License-Identifier: Apache-2.0' || echo "$f"
done)
if [ -n "$unmarked" ]; then
	problems+=("without the two SPDX lines: $(tr '\n' ' ' <<<"$unmarked")")
fi

if [ "${#problems[@]}" -gt 0 ]; then
	printf 'verify: %s\n' "${problems[@]}" >&2
	exit 1
fi
echo "verify: everything is as generated, formatted, tidy and marked"
