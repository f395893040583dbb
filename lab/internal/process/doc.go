// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package process identifies operating system processes so that a signal can never reach the wrong one.
//
// A process id alone is not an identity: once its process is gone the kernel gives it to another. The id, the time at which the process
// started (in clock ticks since boot, field 22 of /proc/PID/stat) and the boot id of the machine are.
package process
