// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

func TestCoreRecord(t *testing.T) {
	t.Parallel()
	start := time.Date(2026, 1, 1, 0, 0, 0, 500, time.UTC)
	record := CoreRecord{}
	for _, c := range []struct {
		id       string
		revision int64
		from     int64 // of the last time that it went back
	}{
		{"a", 5, 0}, {"a", 5, 0}, {"a", 9, 0},
		{"a", 7, 9},                    // restored
		{"b", 8, 9},                    // another cluster that is ahead
		{"c", 2, 8},                    // another cluster that is behind
		{"c", 1000, 8}, {"c", 3, 1000}, // twice
	} {
		start = start.Add(time.Minute)
		record = record.Observe(start, c.id, c.revision)
		from := int64(0)
		if record.WentBack != nil {
			from = record.WentBack.From
		}
		if record.ClusterID != c.id || record.Revision != c.revision || from != c.from {
			t.Errorf("%+v: %+v", c, record)
		}
	}
	back := record.WentBack
	storage := func(created time.Time, confirmed string) *v1alpha1.EtcdStorage {
		return &v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(created), Annotations: map[string]string{v1alpha1.RestartedAnnotation: confirmed}}}
	}
	for name, c := range map[string]struct {
		is   *v1alpha1.EtcdStorage
		want bool
	}{
		"before":                {storage(back.At.Add(-time.Second), ""), true},
		"in the same second":    {storage(back.At, ""), true},
		"after":                 {storage(back.At.Add(time.Second), ""), false},
		"confirmed":             {storage(back.At.Add(-time.Second), back.Name()), false},
		"confirmed another one": {storage(back.At.Add(-time.Second), "2025-01-01T00:00:00Z"), true},
	} {
		if got := back.Concerns(c.is); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	if (*WentBack)(nil).Concerns(storage(start, "")) {
		t.Error("nothing happened, and it concerns")
	}
}
