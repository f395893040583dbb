#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/rename.sh NEW_MODULE NEW_DOMAIN [NEW_REGISTRY]
# for example: hack/rename.sh example.org/tether/tether tether.example.org registry.example/tether
# Changes the module path of both modules (and of the tools), the domain of API groups, labels and annotations, and what is before the images' names, in
# every file that git knows or would know. Run it on a clean tree, then `make generate manifests deps fmt`, and read the diff. After a release it is a
# migration instead: names that clusters hold do not change by themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "rename: $*" >&2; exit 1; }

[ $# = 2 ] || [ $# = 3 ] || die "two or three arguments are needed, the new module path, the new domain and perhaps the new registry; see the head of this script"
new_module=$1
new_domain=$2
# What is before the images' names has its place in the Makefile.
old_registry=$(sed -n 's/^REGISTRY *?= *//p' Makefile)
new_registry=${3:-$old_registry}
[[ $new_module =~ ^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._-]+)+$ ]] || die "'$new_module' is not a module path such as example.org/group/name"
[[ $new_domain =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+$ ]] || die "'$new_domain' is not a DNS domain such as tether.example.org"

[[ $new_registry =~ ^[a-z0-9][a-z0-9.:-]*(/[a-z0-9._-]+)*$ ]] || die "'$new_registry' is not a registry and folder such as registry.example/tether"

old_module=$(go list -m)
# The domain stands in no go.mod; its one place for this script is here, and the replacement rewrites this line too.
old_domain=mooring.dev

# Where the workflow pushes releases to, which the chart's page names: ghcr.io with the path of the repository on GitHub. Elsewhere it is the new registry.
old_home=ghcr.io/${old_module#github.com/}
case $new_module in
github.com/*) new_home=ghcr.io/${new_module#github.com/} ;;
*) new_home=$new_registry ;;
esac

# The domain must not match inside a longer name: github.com/mooring-dev is a path, xmooring.dev another domain.
export old_module new_module old_domain new_domain old_registry new_registry old_home new_home
git ls-files -co --exclude-standard -z -- ':!LICENSE' ':!go.sum' ':!lab/go.sum' ':!go.tools.sum' | xargs -0 perl -pi -e '
	BEGIN { ($om, $nm, $od, $nd, $or, $nr, $oh, $nh) = @ENV{qw(old_module new_module old_domain new_domain old_registry new_registry old_home new_home)} }
	s{(?<![\w.-])\Q$om\E(?![\w-])}{$nm}g;
	s{oci://\Q$oh\E(?=/charts/)}{oci://$nh}g;
	s{(?<![\w-])\Q$od\E(?![A-Za-z0-9-])}{$nd}g;
	s{(?<![\w./-])\Q$or\E(?=/[a-z-]+:dev\b)}{$nr}g;
	s{(?<=images\[")\Q$or\E/}{$nr/}g;
	s{^(REGISTRY *\?= *|  imageRegistry: |\tdefaultRegistry = ")\Q$or\E(?="?$)}{$1$nr};
'
# Custom resources are in files named for their group.
git ls-files -co --exclude-standard -z | { grep -zF "$old_domain" || true; } | while IFS= read -r -d '' file; do
	mv "$file" "${file//"$old_domain"/"$new_domain"}"
done
echo "rename: $old_module is $new_module, *.$old_domain is *.$new_domain; now run: make generate manifests deps fmt"
