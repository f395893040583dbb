// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package upstream has the objects of the manifests that Mooring takes the place of: what those who change only the
// image keep. Each function returns all objects of one file, as facts of our own; a digest in the tests shows that
// they are equal to the file's objects, field by field.
package upstream
