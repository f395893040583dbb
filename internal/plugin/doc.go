// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin is `kubectl mooring`: one command for people, in front of all components.
//
// Commands are built by [Builder] functions from an [Env], which holds what they share: kubectl's
// connection flags, and the output printer behind -o. [Builtin] is the one list of everything the
// plugin can do; a new command is a file with a Builder in it and a line in that list.
//
// Commands print their result through [Output], which alone knows table, JSON and YAML: a command hands
// over one value and never asks which format is wanted. JSON and YAML are contracts with scripts, tables
// are for eyes and may change.
//
// Exit codes: 0 done and nothing to report, 1 could not do it, 2 done and the answer needs attention
// (a plan that would change something, a check that found a problem); see package command.
package plugin
