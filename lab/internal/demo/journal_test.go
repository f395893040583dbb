// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestJournalTellsTheStory(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "log")
	must.Do(t, os.WriteFile(path, []byte(`{"level":"INFO","did":"long ago","because":"old"}`+"\n"), 0o600))
	j := must.Get(openJournal(path)).Or(t)
	defer j.close()
	log := must.Get(os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)).Or(t)
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
		must.Get(log.WriteString(step.written)).Or(t)
		got := must.Get(j.next()).Or(t)
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("after %q: %s", step.written, diff)
		}
	}
}
