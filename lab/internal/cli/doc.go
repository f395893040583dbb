// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package cli is the lab's command line: flags, texts for people, and exit codes. Everything that has an effect is done by the packages it
// calls.
package cli
