// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package controlplane holds the processes that the lab's binary runs when it executes itself: etcd, kube-apiserver,
// kube-controller-manager and kube-scheduler, each from its upstream module.
//
// They are separate operating system processes because upstream's commands install signal handlers once per process, keep feature
// gates and metrics in globals, and because fault tests kill them one by one. Only the main package imports this package: it is by far the
// most expensive one to link.
package controlplane
