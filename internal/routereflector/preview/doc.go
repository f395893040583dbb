// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package preview shows a plan of the route reflectors' operator before it is carried out: to people as text, to programs as JSON, to documents as
// drawings. It is pure; the operator's own command and kubectl's plugin print what it says.
package preview
