// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package commands makes the commands plan, doctor and restore, each once: they are calico-node-sync's own and the plugin's. What differs, where they read
// and with whose rights they write, is handed in as a Source or a Restorer. It links no manager of controllers.
package commands
