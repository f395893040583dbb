#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Installs those packages of Debian that the tests use and that are not there: a C compiler for the race detector, BIRD for route reflectors, a browser for
# the page, mkfs and its kin for volumes, runc and nftables for real machines, BusyBox for pods of Kubernetes' storage tests. A test that lacks one says what
# it needs: it is skipped, and fails under CI=true, but for BusyBox. No service is started. As root it also allows as many inotify instances as real machines
# take. Exit code 1 if something could not be had.
set -uo pipefail
missing=0

# wanted are the packages whose programs are not there.
wanted=()
command -v gcc >/dev/null || wanted+=(gcc libc6-dev)
command -v chromium >/dev/null || wanted+=(chromium)
[ -x /usr/sbin/bird6 ] || wanted+=(bird)
[ -x /usr/sbin/mkfs.ext4 ] || wanted+=(e2fsprogs)
[ -x /usr/sbin/mkfs.xfs ] || wanted+=(xfsprogs)
[ -x /usr/sbin/runc ] || wanted+=(runc)
[ -x /usr/sbin/nft ] || wanted+=(nftables)
command -v busybox >/dev/null || wanted+=(busybox-static)

# install installs each package by itself, so that one that cannot be had takes no other with it. What it puts into policy-rc.d keeps services from starting.
install() {
	local policy=/usr/sbin/policy-rc.d mine= package
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod 755 "$policy"
		mine=yes
	fi
	timeout 300 apt-get update >/dev/null 2>&1
	for package in "$@"; do
		if ! DEBIAN_FRONTEND=noninteractive timeout 600 apt-get install -y --no-install-recommends "$package" >/dev/null 2>&1; then
			echo "apt-get could not install $package: tests that need it are skipped, or fail under CI=true."
			missing=1
		fi
	done
	if [ -n "$mine" ]; then rm -f "$policy"; fi
}

if [ ${#wanted[@]} = 0 ]; then
	echo "All packages that the tests use are there."
elif [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
	echo "Only root can install what is missing, on Debian or Ubuntu: apt-get install ${wanted[*]}"
	exit 1
else
	echo "Installing ${wanted[*]}"
	install "${wanted[@]}"
fi

instances=/proc/sys/fs/inotify/max_user_instances
if [ "$(id -u)" = 0 ] && [ "$(cat "$instances")" -lt 1024 ] && ! echo 1024 >"$instances"; then
	echo "Too few inotify instances: real machines cannot run."
	missing=1
fi
exit "$missing"
