// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package loop starts what this component's controllers have in common: the recorder of their Events, and a context that ends with the program. How they
// run is internal/platform/reconcile's.
package loop
