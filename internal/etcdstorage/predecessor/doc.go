// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package predecessor knows the objects of etcdproxy-controller, which etcd-storage-operator succeeds: the kind EtcdStorage of the group
// etcd.xmudrii.com. [Convert] makes an EtcdStorage of our group from one of them and says what it could not carry over.
//
// The old group is somebody else's name, so nothing here serves it, registers it in a scheme or has Go types for it (docs/adr): an old object is read
// as a tree of JSON values. The field names, and which values the old kind let pass, are those of its pkg/apis/etcd/v1alpha1/types.go and
// artifacts/etcdstorage/crd.yaml.
package predecessor
