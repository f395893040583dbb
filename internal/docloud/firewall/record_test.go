// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall_test

import (
	"strings"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// What is recorded decides; without a record name and tags do.
func TestWhose(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	attempt := func(id, name string) firewall.Record { return firewall.Record{ID: id}.Attempting(name, at) }
	named := firewall.Observed{ID: "f", Name: config().Name, Tags: config().Tags, CreatedAt: at}
	with := func(change func(*firewall.Observed)) firewall.Observed {
		o := named
		change(&o)
		return o
	}
	renamed := with(func(o *firewall.Observed) { o.Name, o.Tags = "renamed", []string{"others"} })
	older := with(func(o *firewall.Observed) { o.CreatedAt = at.Add(-time.Hour) })
	others := with(func(o *firewall.Observed) { o.Tags = []string{"others"} })
	for name, tt := range map[string]struct {
		record firewall.Record
		seen   firewall.Observed
		ours   bool
	}{
		"nothing is recorded":                        {firewall.Record{}, named, true},
		"nothing is recorded, other droplets":        {firewall.Record{}, others, false},
		"nothing is recorded, another name":          {firewall.Record{}, renamed, false},
		"it is recorded, whatever it is called":      {firewall.Record{ID: "f"}, renamed, true},
		"another is recorded":                        {firewall.Record{ID: "g"}, named, false},
		"another is recorded, no tags are shown":     {firewall.Record{ID: "g"}, with(func(o *firewall.Observed) { o.Tags = nil }), false},
		"made since a request":                       {attempt("g", named.Name), named, true},
		"made since a request under an earlier name": {attempt("g", "earlier"), with(func(o *firewall.Observed) { o.Name = "earlier" }), true},
		"made before a request":                      {attempt("g", named.Name), older, false},
		"made since a request, for other droplets":   {attempt("g", named.Name), others, false},
		"a request under another name":               {attempt("g", "other"), named, false},
		"an administrator gives it":                  {firewall.Record{ID: "g", TakeOver: "f"}, others, true},
		"an administrator gives another":             {firewall.Record{ID: "g", TakeOver: "h"}, named, false},
	} {
		ours, why := tt.record.Whose(tt.seen, config())
		if ours != tt.ours || ours != (why == "") {
			t.Errorf("%s: %t, %q", name, ours, why)
		}
		if !ours && tt.record.ID != "" && tt.seen.Tags == nil && !strings.Contains(why, firewall.TakeOverAnnotation+"=f") {
			t.Errorf("%s: %q does not show how to hand it over", name, why)
		}
	}
}

// A record is read as it was written, and one that cannot be read is no record of nothing.
func TestRecordIsKept(t *testing.T) {
	t.Parallel()
	at := time.Date(2026, 11, 28, 10, 0, 0, 0, time.UTC)
	for _, r := range []firewall.Record{{}, {ID: "f"}, firewall.Record{ID: "f"}.Attempting("n", at), firewall.Record{}.Attempting("n", at)} {
		text := must.Get(r.Format()).Or(t)
		back, err := firewall.ParseRecord(map[string]string{firewall.RecordAnnotation: text})
		if err != nil || back.ID != r.ID || (back.Attempt == nil) != (r.Attempt == nil) || r.Attempt != nil && *back.Attempt != *r.Attempt {
			t.Errorf("%q: %+v, %v", text, back, err)
		}
		if again := back.Attempting("n", at.Add(time.Hour)); r.Attempt != nil && !again.Attempt.At.Equal(at) {
			t.Errorf("a second request under the name moved the time of the first: %+v", again.Attempt)
		}
	}
	if _, err := firewall.ParseRecord(map[string]string{firewall.RecordAnnotation: "{"}); err == nil || !strings.Contains(err.Error(), "delete it") {
		t.Errorf("a damaged record: %v", err)
	}
}
