// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package command is how every binary runs its cobra command: errors are one sentence on standard
// error, the first SIGINT or SIGTERM asks the command to stop and the second one ends the process,
// `--version` works everywhere, and a mistyped flag is answered with the likely one.
//
//	func main() { os.Exit(command.Main(app.NewCommand())) }
//
// Exit codes: what [Code] says; 128 plus the signal's number when a signal interrupted the command
// before it could finish in order.
//
// The package knows no component and no Kubernetes.
package command
