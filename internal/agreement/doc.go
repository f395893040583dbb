// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package agreement says of each machine whether the sides that know of it agree: the cloud, Kubernetes, Calico, and the topologies of route
// reflectors. It is pure, and it holds to one law: a side that was not read, or not wholly, is evidence of nothing. Where it would have been
// needed the verdict is Unknown, with the reason.
package agreement
