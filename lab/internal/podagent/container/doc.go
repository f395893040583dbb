// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package container runs one program as a container runtime would run the only program of a small image.
//
//	agent                            launcher (this binary again)                       the program
//	Start: a child in the pod's  ─>  makes a root file system that exists in its    ─>  is process 1, sees its own files only, and has
//	network namespace, with PID,     mount namespace only, enters it, gives up          no more rights than the pod asks for
//	mount, IPC and UTS namespaces    rights, and becomes the program (execve)
//	of its own
//
// Nothing of it outlives the program: the mounts go with the mount namespace, all other processes of the container with the first one, and that one
// is killed by the kernel when the agent ends (PR_SET_PDEATHSIG of prctl(2)).
//
// It is not a sandbox for programs that mean harm: there is no seccomp filter, no cgroup and no user namespace of the container's own.
package container
