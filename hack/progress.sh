#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/progress.sh go build -v [FLAG...] -o OUTPUT PACKAGE...
# Runs a build and shows what it builds and how much is left. Errors of the build pass through. Exit code: the build's.
#
# If OUTPUT does not exist yet, the modules are downloaded first, and the standard library is compiled meanwhile. Then the packages to compile
# are counted: a package weighs as much as it has files, plus one.
set -euo pipefail

# A compiler lives for a second: with less garbage collection a build takes less CPU time. Without any it takes a sixth
# more again, since the kernel clears every page that is used for the first time. The limit keeps large packages from
# taking all memory. Neither is part of the build cache's keys.
export GOGC="${GOGC-400}" GOMEMLIMIT="${GOMEMLIMIT-1GiB}"

flags=() packages=() output=
for ((i = 3; i <= $#; i++)); do
	case ${!i} in
	-v) ;;
	-o) ((++i)) && output=${!i} ;;
	-ldflags) ((++i)) ;; # changes no package but main
	-tags) ((++i)) && flags+=(-tags "${!i}") ;;
	-*) flags+=("${!i}") ;;
	*) packages+=("${!i}") ;;
	esac
done

# first succeeds if a part of the output is missing.
first() {
	local package
	[[ $output == */ ]] || { [ ! -e "$output" ]; return; }
	for package in "${packages[@]}"; do
		[ -e "$output${package##*/}" ] || return 0
	done
	return 1
}

# show replaces the last line on a terminal; elsewhere it prints a line if the last one is half a minute old.
shown=-30
if [ -t 2 ]; then tty=1; else tty=; fi
show() {
	if [ "$tty" ]; then
		printf '\r  %s\033[K' "$1"
	elif ((SECONDS - shown >= 30)); then
		printf '  %s\n' "$1"
	else
		return 0
	fi >&2
	shown=$SECONDS
}

declare -A weight=()
count=0 total=0 done=0 compiled=0 modules=0 begin=0

# left prints how much is left of a first build.
left() {
	local seconds=$((SECONDS - begin)) rest=
	# The first few packages are no basis for an estimate.
	if ((seconds >= 20 && done > 0)); then
		rest=$((seconds * (total - done) / done))
		if ((rest < 60)); then rest=', less than a minute left'; else rest=", about $(((rest + 59) / 60)) min left"; fi
	fi
	echo "$compiled of $count packages, $((100 * done / total)) %$rest"
}

# follow turns the names of packages and modules into counters, and passes everything else on. A line that is one import path is a package;
# compile errors begin with "#", contain blanks or name files.
follow() {
	local line
	while IFS= read -r line; do
		case $line in
		'go: downloading '*)
			modules=$((modules + 1))
			show "$modules modules downloaded"
			;;
		'' | *[!A-Za-z0-9._/~-]* | *.go)
			if [ "$tty" ] && ((shown >= 0)); then echo >&2; fi
			printf '%s\n' "$line" >&2
			;;
		*)
			compiled=$((compiled + 1)) done=$((done + ${weight[$line]:-0}))
			if ((compiled < count)); then
				show "$(left)"
			elif ((compiled == count)); then
				shown=-30
				show "$compiled of $count packages, linking"
			else
				show "$compiled packages"
			fi
			;;
		esac
	done
	if [ "$tty" ] && ((shown >= 0)); then echo >&2; fi
}

if first; then
	echo "Building ${packages[*]##*/} into ${output#../} for the first time" >&2
	go build std &
	# By default Go downloads as many modules at a time as there are CPUs.
	GOMAXPROCS=16 go list -deps "${flags[@]}" "${packages[@]}" 2>&1 >/dev/null | follow
	wait $!
	while read -r package files; do
		weight[$package]=$((files + 1)) count=$((count + 1)) total=$((total + files + 1))
	done < <(go list -deps -f '{{if .Stale}}{{.ImportPath}} {{len .GoFiles}}{{end}}' "${flags[@]}" "${packages[@]}")
	begin=$SECONDS
fi
{ "$@" 2>&1 1>&3 | follow; } 3>&1
