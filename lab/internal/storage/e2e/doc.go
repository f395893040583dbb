// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package e2e holds the tests of the product's volume driver on real machines of the lab (tag e2e): disks in pods, in the hands of Kubernetes' own
// controllers. It has no code of its own.
//
//	TestVolumesLife   the smallest life of a volume: a claim, a pod, and both deleted
//	TestVolumes       growth, snapshots, clones, a driver that is replaced, machines that are cut off and switched off, many claims at once
//	TestVolumesNight  the same failures ten times each (MOORING_CASES=night)
//	TestVolumesCrowd  500 claims on 20 machines (MOORING_CASES=night)
package e2e
