// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package explain says of one Node, Service, PersistentVolumeClaim or EtcdStorage why it is as it is: what the planners of Mooring's
// components decide about it, in their own words, with what stands on the object and what was told of it in Events. It is pure: everything
// that was read comes in, sections of sentences come out.
//
// It decides nothing again. Where a planner gives a reason, that is the reason; what was not read is said, and nothing follows from it.
package explain
