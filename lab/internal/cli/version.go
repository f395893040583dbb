// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"runtime"

	componentversion "k8s.io/component-base/version"
)

// version says what the lab runs. The number is set when the lab is linked; see lab/README.md.
func version() string {
	return "lab with Kubernetes " + componentversion.Get().GitVersion + ", " + runtime.Version()
}
