// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"testing"
)

// WriteCA writes a certificate authority that signed nothing to a PEM file.
func WriteCA(tb testing.TB, file string) {
	tb.Helper()
	must.Do(tb, os.WriteFile(file, NewAuthority(tb, "an authority of nobody").PEM, 0o600))
}
