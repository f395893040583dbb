// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package realnode runs the real machines of a lab (`lab up --real-nodes`): a kubelet, a containerd and a kube-proxy each, in namespaces of network,
// mounts, processes, host name and IPC of their own, and with a control group of their own.
//
// The process real-nodes follows the list of machines and compares it with what runs:
//
//	new in the list            a network namespace on the bridge (network.go), a certificate, a folder, and the machine's first process (package inside)
//	frozen                     its cable carries nothing: it runs on and nobody hears of it
//	off                        its first process is killed, and the kernel kills all others with it; its disk stays
//	gone, or another machine   the same, and its disk goes
//
// Each machine's first process dies with the thread that started it, so nothing outlives this process but control groups, which package cgroup
// removes: at the end, and at the next start or `lab down` after a crash.
package realnode
