// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJournalTellsTheStory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(`{"level":"INFO","did":"long ago","because":"old"}`+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	j, err := openJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	defer j.close()
	log, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	for _, step := range []struct {
		written string
		want    []string
	}{
		{"", nil},
		{`{"level":"INFO","msg":"Starting"}` + "\nnot JSON\n", nil},
		{`{"level":"INFO","gate":"grace","host":"n","because":"too soon"}` + "\n", []string{"waiting (grace): too soon"}},
		{`{"level":"INFO","msg":"Applied step","did":"remove x",`, nil}, // half a line
		{`"because":"gone"}` + "\n" + `{"did":"remove y","because":"gone"}` + "\n", []string{"remove x\nbecause gone", "remove y"}},
		{`{"level":"ERROR","msg":"No","error":"really"}` + "\n", []string{"ERROR: No really"}},
	} {
		if _, err := log.WriteString(step.written); err != nil {
			t.Fatal(err)
		}
		got, err := j.next()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("after %q: %s", step.written, diff)
		}
	}
}
