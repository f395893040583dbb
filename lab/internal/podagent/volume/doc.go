// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package volume makes the files of a pod's volumes.
//
// Content says what is in a volume, from the objects that it names; Write makes a folder show it. A folder changes as kubelet changes it
// (k8s.io/kubernetes, pkg/volume/util/atomic_writer.go), which programs rely on that watch for renewed certificates:
//
//	..2026_01_02_15_04_05.123456789/tls.crt   the files themselves, never changed
//	..data -> ..2026_01_02_15_04_05.123456789 replaced in one step (rename)
//	tls.crt -> ..data/tls.crt                 what the container opens
package volume
