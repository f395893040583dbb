// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheGeneratedFileIsFresh(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	want := must.Get(render(root)).Or(t)
	if got, err := os.ReadFile(filepath.Join(root, target)); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what dist/ says, run make manifests (%v)", target, err)
	}
}

func TestAFileOfAnotherShapeIsRefused(t *testing.T) {
	t.Parallel()
	for content, want := range map[string]string{
		"kind: ClusterRole\n": "nothing is bound",
		"kind: RoleBinding\nsubjects: [{name: a}, {name: b}]\n":                                     "one service account is expected",
		"kind: RoleBinding\nsubjects: [{name: a}]\n---\nkind: RoleBinding\nsubjects: [{name: b}]\n": "one service account is expected",
		"\tx": "yaml",
	} {
		if _, _, err := manifest([]byte(content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", content, err, want)
		}
	}
}
