// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package runner runs one lab in one folder: it turns options into a blueprint, makes everything the blueprint says real, and hands the processes to
// the supervisor; and it finds, stops and harms a lab that another process runs.
//
// The order of a start is chosen so that whatever is wrong with the user's request is found before anything is made: options, disk, folder, former
// lab in the folder, ports; only then files and processes.
package runner
