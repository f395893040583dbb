// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package screen prints what a command has to say: text folded to a person's terminal, JSON and YAML for programs, and the flag that chooses among them.
// Exit codes are in package command, sentences in package prose.
package screen
