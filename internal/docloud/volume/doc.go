// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package volume decides about DigitalOcean's block storage: what a request may ask for, whether a volume that exists is the one that was asked for, and
// what to do next to create, attach, detach, resize, snapshot and clone. It decides from what DigitalOcean shows now and keeps nothing between calls, so
// that a process that dies at any point is resumed by the next request.
package volume
