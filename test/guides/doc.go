// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package guides runs the commands of pages for people as they stand there, against a real API server and a real etcd, so that a page that has become
// wrong fails a test.
package guides
