// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package agreement judges each machine by what the sides that know of it report: the cloud, Kubernetes, Calico, and the topologies of route
// reflectors. It is pure, and it holds to one law: a side that was not read, or not wholly, is evidence of nothing. Where it would have been
// needed the verdict is unknown, with the cause; where nothing was compared the verdict is one side, never agree.
package agreement
