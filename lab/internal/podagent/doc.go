// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package podagent is the node agent of a lab with real pods: it runs the pods that are bound to the lab's machines, as processes.
//
// One process stands for all machines. For each pod there is one worker, which looks at what is and does what is missing, whenever anything may have
// changed: the pod, a Secret or ConfigMap, the machine, a program that ended, the answer of a probe, a time that was waited for.
//
//	the pod                   what its worker does
//	is bound to a machine     network, volumes, init containers one after the other, then all containers; the status says how far it is
//	runs                      restarts what ends, as the restart policy says, with growing pauses; volumes follow their objects; tokens are renewed
//	is being deleted          SIGTERM, after the grace period SIGKILL; then its network and its files go; its last status; then the API forgets it
//	is gone from the API      the same without a word
//	on a frozen machine       its programs go on, and nothing is heard of it
//	on a machine that is off  its programs end at once, and nothing is ever said
//
// The agent remembers nothing: when it ends, however it does, all programs end and all networks and mounts go with it (packages container and podnet);
// the next one starts the pods anew, as after a reboot, and counts that as a restart.
//
// What it is not, besides what package container says: there are no images and no registry (package image), no cgroups and so no limits, logs (package
// kubeletapi) but no exec, attach or port-forward, no probes and hooks by exec or gRPC (a pod that asks for one is told so), no persistent volumes and host paths, no network
// policies, no evictions, no static and no ephemeral containers.
package podagent
