// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// most is the size that the binary may have as it is in the image. It is copied to every node that runs a tenant's proxy.
const most = 20 << 20

// TestSize builds the binary as for its image, but for -trimpath, which would compile everything again, and weighs it. What it is made of is
// in deps.txt, what it must not be made of in internal/archtest.
func TestSize(t *testing.T) {
	t.Parallel()
	out := filepath.Join(t.TempDir(), "proxy")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-ldflags", "-s -w", "-o", out, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if text, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, text)
	}
	info, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB of %d", float64(info.Size())/(1<<20), most>>20)
	if info.Size() > most {
		t.Errorf("the stripped binary has %d bytes, at most %d are allowed: look at the change of deps.txt", info.Size(), most)
	}
}
