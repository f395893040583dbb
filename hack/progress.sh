#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/progress.sh go build -v ...
# Runs a build and turns the list of package names that -v prints into a counter, so that a first build of Kubernetes is seen to move
# without a thousand lines. Everything else the build says (errors) passes through. Exit code: the build's.
set -euo pipefail

tty=0
if [ -t 2 ]; then tty=1; fi
# A line that is one import path is a package; compile errors begin with "#", contain blanks or name files.
{ "$@" 2>&1 1>&3 | awk -v tty="$tty" '
	# What a first build downloads is not worth hundreds of lines either.
	/^go: downloading / { next }
	/^[A-Za-z0-9._\/~-]+$/ && !/\.go$/ {
		n++
		if (tty) { printf "\r  %d packages compiled", n; fflush() }
		else if (n % 250 == 0) { printf "  %d packages compiled\n", n; fflush() }
		next
	}
	{ if (tty && n) { printf "\n"; n = 0 } print; fflush() }
	END { if (tty && n) printf "\n" }' >&2; } 3>&1
