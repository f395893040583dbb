#!/usr/bin/env bash
# SPDX-FileCopyrightText: The Mooring Authors
# SPDX-License-Identifier: Apache-2.0

# Usage: hack/deploy.sh install|uninstall|deploy|undeploy   (by make; reads COMPONENT, DATASTORE, IMG and KUBECTL)
set -euo pipefail
cd "$(dirname "$0")/.."
KUBECTL=${KUBECTL:-kubectl}

die() { echo "deploy: $*" >&2; exit 1; }

COMPONENT=${COMPONENT:-calico-node-sync}

# overlay prints the folder to render, or says which setting is missing.
overlay() {
	case "$COMPONENT" in
	calico-node-sync)
		case "${DATASTORE:-}" in
		etcdv3 | kubernetes) echo "config/calico-node-sync/overlays/$DATASTORE" ;;
		"") die "DATASTORE is not set: say which datastore Calico uses, DATASTORE=etcdv3 or DATASTORE=kubernetes" ;;
		*) die "DATASTORE=$DATASTORE is not known: use etcdv3 or kubernetes" ;;
		esac
		;;
	digitalocean-cloud-controller-manager) echo "config/digitalocean-cloud-controller-manager/overlays/token-file" ;;
	calico-route-reflector-operator)
		case "${DATASTORE:-kubernetes}" in
		etcdv3) echo "config/calico-route-reflector-operator/overlays/etcdv3" ;;
		kubernetes) echo "config/calico-route-reflector-operator/overlays/kubernetes" ;;
		*) die "DATASTORE=$DATASTORE is not known: use etcdv3 or kubernetes" ;;
		esac
		;;
	etcd-storage-operator) echo "config/etcd-storage-operator/base" ;;
	*) die "COMPONENT=$COMPONENT is not known: use calico-node-sync, digitalocean-cloud-controller-manager, calico-route-reflector-operator or etcd-storage-operator" ;;
	esac
}

# render prints the manifests, with the image replaced when IMG says so.
render() {
	local folder
	folder=$(overlay) || exit 1
	bin/kustomize build "$folder" |
		if [ -n "${IMG:-}" ]; then awk -v img="$IMG" '/^ *image: / { sub(/image: .*/, "image: " img) } { print }'; else cat; fi
}

# unused KIND ORDER: refuses while there are objects of the kind, which the component keeps by a finalizer until it has undone what it did for them.
unused() {
	local kinds left
	kinds=$("$KUBECTL" get customresourcedefinitions -o name)
	grep -q "/$1\." <<<"$kinds" || return 0
	left=$("$KUBECTL" get "$1" -o name)
	[ -z "$left" ] || die "there still is ${left//$'\n'/, }: $2"
}

# without_namespace leaves the Namespace out, with which everything else in it would go: here the core's credentials.
without_namespace() { awk -v RS='---\n' '!/(^|\n)kind: Namespace\n/ { printf "%s%s", separator, $0; separator = "---\n" }'; }

# delete_storages_first says why EtcdStorages stand in the way.
delete_storages_first="delete it first, with etcd-storage-operator running, which keeps or deletes its data as its spec says"

case "${1:-}" in
install) "$KUBECTL" apply --server-side -f config/crd/bases ;;
uninstall)
	# With its kind a topology goes, too, or hangs if nobody is there to bring the mesh back.
	unused routereflectortopologies "delete it first, with calico-route-reflector-operator running, which brings the mesh back"
	unused etcdstorages "$delete_storages_first"
	"$KUBECTL" delete --ignore-not-found -f config/crd/bases
	;;
deploy)
	manifest=$(render)
	# The program does not start without its kind.
	case "$COMPONENT" in
	calico-route-reflector-operator | etcd-storage-operator) "$KUBECTL" apply --server-side -f config/crd/bases ;;
	esac
	# The cloud component lives in kube-system, which is there.
	if grep -q '^  namespace: mooring-system$' <<<"$manifest"; then bin/kustomize build config/namespace | "$KUBECTL" apply -f -; fi
	"$KUBECTL" apply -f - <<<"$manifest"
	;;
undeploy)
	manifest=$(render)
	# The reflectors would stay and work, but nobody would replace one that dies. The kind stays, as the namespace does.
	if [ "$COMPONENT" = calico-route-reflector-operator ]; then unused routereflectortopologies "delete it first, so that the mesh is back; then undeploy"; fi
	if [ "$COMPONENT" = etcd-storage-operator ]; then
		unused etcdstorages "$delete_storages_first; then undeploy"
		manifest=$(without_namespace <<<"$manifest")
	fi
	"$KUBECTL" delete --ignore-not-found -f - <<<"$manifest"
	;;
*) die "unknown deed '${1:-}': use install, uninstall, deploy or undeploy" ;;
esac
