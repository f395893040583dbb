#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/rename.sh NEW_MODULE NEW_DOMAIN     for example: hack/rename.sh example.org/tether/tether tether.example.org
# Changes the module path of both modules (and of the tools) and the domain of API groups, labels and annotations, in every file that git
# knows or would know. Run it on a clean tree, then `make generate manifests deps fmt`, and read the diff. After a release it is a
# migration instead: names that clusters hold do not change by themselves.
set -euo pipefail
cd "$(dirname "$0")/.."

die() { echo "rename: $*" >&2; exit 1; }

[ $# = 2 ] || die "two arguments are needed, the new module path and the new domain; see the head of this script"
new_module=$1
new_domain=$2
[[ $new_module =~ ^[a-z0-9.-]+\.[a-z]+(/[A-Za-z0-9._-]+)+$ ]] || die "'$new_module' is not a module path such as example.org/group/name"
[[ $new_domain =~ ^[a-z0-9-]+(\.[a-z0-9-]+)+$ ]] || die "'$new_domain' is not a DNS domain such as tether.example.org"

old_module=$(go list -m)
# The domain stands in no go.mod; its one place for this script is here, and the replacement rewrites this line too.
old_domain=mooring.dev

# The domain must not match inside a longer name: github.com/mooring-dev is a path, xmooring.dev another domain.
export old_module new_module old_domain new_domain
git ls-files -co --exclude-standard -z -- ':!LICENSE' ':!go.sum' ':!lab/go.sum' ':!go.tools.sum' | xargs -0 perl -pi -e '
	BEGIN { ($om, $nm, $od, $nd) = @ENV{qw(old_module new_module old_domain new_domain)} }
	s{(?<![\w.-])\Q$om\E(?![\w-])}{$nm}g;
	s{(?<![\w-])\Q$od\E(?![A-Za-z0-9-])}{$nd}g;
'
# Custom resources are in files named for their group.
git ls-files -co --exclude-standard -z | { grep -zF "$old_domain" || true; } | while IFS= read -r -d '' file; do
	mv "$file" "${file//"$old_domain"/"$new_domain"}"
done
echo "rename: $old_module is $new_module, *.$old_domain is *.$new_domain; now run: make generate manifests deps fmt"
