#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/deploy.sh install|uninstall|deploy|undeploy   (by make; reads DATASTORE, IMG and KUBECTL)
set -euo pipefail
cd "$(dirname "$0")/.."
KUBECTL=${KUBECTL:-kubectl}

die() { echo "deploy: $*" >&2; exit 1; }

# render prints the manifests for the chosen datastore, with the image replaced when IMG says so.
render() {
	case "${DATASTORE:-}" in
	etcdv3 | kubernetes) ;;
	"") die "DATASTORE is not set: say which datastore Calico uses, DATASTORE=etcdv3 or DATASTORE=kubernetes" ;;
	*) die "DATASTORE=$DATASTORE is not known: use etcdv3 or kubernetes" ;;
	esac
	bin/kustomize build "config/calico-node-sync/overlays/$DATASTORE" |
		if [ -n "${IMG:-}" ]; then awk -v img="$IMG" '/^ *image: / { sub(/image: .*/, "image: " img) } { print }'; else cat; fi
}

case "${1:-}" in
install | uninstall)
	crds=$(find config/crd -name '*.yaml' 2>/dev/null || true)
	[ -n "$crds" ] || { echo "There are no custom resources yet: calico-node-sync needs none."; exit 0; }
	if [ "$1" = install ]; then "$KUBECTL" apply --server-side -f config/crd/bases; else "$KUBECTL" delete --ignore-not-found -f config/crd/bases; fi
	;;
deploy)
	manifest=$(render)
	bin/kustomize build config/namespace | "$KUBECTL" apply -f -
	"$KUBECTL" apply -f - <<<"$manifest"
	;;
undeploy)
	manifest=$(render)
	"$KUBECTL" delete --ignore-not-found -f - <<<"$manifest"
	;;
*) die "unknown deed '${1:-}': use install, uninstall, deploy or undeploy" ;;
esac
