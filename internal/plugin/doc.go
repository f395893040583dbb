// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package plugin is `kubectl mooring`: one command for people, in front of all components. [Builtin] is the one list of everything that it can do.
//
// Each command is a package below this one, which no other command imports. It reads a cluster by package observe (the doctor's checks, the evidence of explain
// and what status and the page show are packages beside that), has what was read judged by pure packages (agreement, explain, doctor, topology, volumes, waiting,
// ui), and prints that by package screen, which alone knows terminals, tables, JSON and YAML. JSON and YAML are contracts with scripts, tables are for eyes and
// may change. Exit codes are those of package command.
//
// Tests in this package run the whole program, most of them against one API server that they share. What a package does by itself is tested there.
package plugin
