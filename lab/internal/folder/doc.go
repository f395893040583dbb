// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package folder is the lab's folder on disk: made with mode 0700, owned by at most one supervisor at a time, and the small JSON files in it
// that other programs and later runs read. Everything a lab writes is below this folder.
package folder
