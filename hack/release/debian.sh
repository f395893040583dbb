#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/release/debian.sh >hack/release/debian.txt
# Asks Debian by apt, in a folder of its own, for the newest packages that the image of digitalocean-csi-driver has programs and libraries of, and prints their
# checksums and paths. Run it to take up security fixes, and read the diff.
set -euo pipefail
suite=bookworm
packages=(e2fsprogs xfsprogs util-linux libc6 libext2fs2 libcom-err2 libblkid1 libuuid1 libinih1 liburcu8)
at=$(mktemp -d)
trap 'rm -rf "$at"' EXIT
mkdir -p "$at/state/lists/partial" "$at/cache/archives/partial" "$at/etc/preferences.d"
touch "$at/state/status"
key=/usr/share/keyrings/debian-archive-keyring.gpg
for source in "debian $suite" "debian $suite-updates" "debian-security $suite-security"; do
	echo "deb [signed-by=$key] http://deb.debian.org/$source main"
done >"$at/etc/sources.list"
options=(
	-o "Dir::State=$at/state" -o "Dir::State::status=$at/state/status" -o "Dir::Cache=$at/cache" -o "Dir::Etc=$at/etc" -o "Dir::Etc::sourcelist=$at/etc/sources.list"
	-o APT::Architecture=amd64 -o APT::Architectures::=amd64 -o APT::Architectures::=arm64 -o Acquire::Languages=none
	-o APT::Sandbox::User=root
)
apt-get "${options[@]}" update >/dev/null
cat <<EOF
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0
#
# Written by hack/release/debian.sh; do not edit. Packages of Debian that the image of digitalocean-csi-driver has programs and libraries of: architecture,
# SHA-256, and path on a mirror. Mirrors keep the newest alone; snapshot.debian.org has all others as of
# snapshot $(date -u +%Y%m%dT000000Z)
EOF
for arch in amd64 arm64; do
	apt-get "${options[@]}" download --print-uris "${packages[@]/%/:$arch}" |
		sed -nE "s|^'http://deb.debian.org/([^']+)' [^ ]+ [0-9]+ SHA256:([0-9a-f]{64})$|$arch \2 \1|p" | sort -k3
done
