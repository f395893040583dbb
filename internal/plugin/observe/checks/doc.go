// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package checks is the doctor of a whole cluster: each component's checks read what pure packages judge, and [All] is the one list of them. A check is a file: its
// help text, what it reads, and the call of what judges that.
package checks
