// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package operatorapp is the command line of etcd-storage-operator: its flags, those of etcdproxy-controller among them, and what is started.
package operatorapp
