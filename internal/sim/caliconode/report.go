// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"fmt"
	"time"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
)

// reportLife is Felix' default of ReportingTTLSecs.
const reportLife = 90 * time.Second

// ReportStatus writes what Felix reports of itself every 30 s in etcd: one report that expires and one that stays
// (felix/daemon, handleProcessStatusUpdate). The time is that of the host.
func (a *Agent) ReportStatus(ctx context.Context, at time.Time) error {
	report := &model.StatusReport{Timestamp: at.UTC().Format(time.RFC3339)}
	for _, kv := range []*model.KVPair{
		{Key: model.ActiveStatusReportKey{Hostname: a.host.Name, RegionString: model.NoRegion}, Value: report, TTL: reportLife},
		{Key: model.LastStatusReportKey{Hostname: a.host.Name, RegionString: model.NoRegion}, Value: report},
	} {
		if _, err := a.datastore.backend.Apply(ctx, kv); err != nil {
			return fmt.Errorf("reporting the status of host %q: %w", a.host.Name, err)
		}
	}
	return nil
}
