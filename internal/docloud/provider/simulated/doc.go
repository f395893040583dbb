// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package simulated holds what is proven of the provider in simulated time: how many calls hours of a large cluster cost, and that whole histories
// of faults and killed leaders end well. Kubernetes' own cloud controllers run with the periods of their defaults, the provider and the
// DigitalOcean simulator with them, all in a bubble of testing/synctest; only the API server is client-go's fake one. It has tests only.
package simulated
