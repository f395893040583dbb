// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package checks

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/platform/finding"
)

// Where no Deployment says which objects are the cluster's, one note is in the place of what is unknown, and nothing is
// well; what could not be read for another reason stays.
func TestEstateWithoutADeployment(t *testing.T) {
	t.Parallel()
	w := estate.World{NotRead: []string{"the configuration: there is no Deployment of it", "volumes: 503"}}
	w.LoadBalancers = estate.Listed([]loadbalancer.Observed{{ID: "a", Name: "web"}}, nil)
	found := unjudged(estate.Judge(w).Findings())
	var notes, others int
	for _, f := range found {
		switch {
		case f.Severity == finding.OK:
			t.Errorf("something is well: %+v", f)
		case f.Severity == finding.Note && f.Unread && f.Do != "":
			notes++
		case f.Unread && f.What == "not everything at DigitalOcean was judged: volumes: 503":
			others++
		case f.What == "not everything at DigitalOcean was judged: "+w.NotRead[0]:
			t.Errorf("it is said twice: %+v", f)
		}
	}
	if notes != 1 || others != 1 {
		t.Errorf("%d notes, %d others: %+v", notes, others, found)
	}
}
