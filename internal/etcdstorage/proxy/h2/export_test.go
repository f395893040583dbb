// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package h2

import "time"

// Lingers is how long an old connection may go on whose credentials are good for left.
func Lingers(left, most time.Duration) time.Duration { return lingers(left, most) }
