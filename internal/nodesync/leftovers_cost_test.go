// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package nodesync

import (
	"fmt"
	"testing"
	"time"
)

// While it is to be seen whether a kubelet is at work, which takes a quarter of an hour, its machine is looked at once a minute and no pod is read, however
// many leftovers wait for that; afterwards each pod is read once for the plan that removes its leftovers.
func TestPodsAreReadWhenTheirMachineIsWell(t *testing.T) {
	t.Parallel()
	const pods = 400
	f := newFlat("m1", "m2")
	f.config.MaxLeftovers = 10 * pods // no person is needed
	for i := range pods {
		name := fmt.Sprintf("p%d", i)
		f.run("m1", name)
		f.vanish(name)
	}
	begin, rounds := f.now, 0
	for {
		p := f.round()
		rounds++
		if len(p.Steps) > 0 {
			break
		}
		if f.lookups > 0 {
			t.Fatalf("%d pods are read after %s, before the machine is known to be well", f.lookups, f.now.Sub(begin))
		}
		if f.now.Sub(begin) > 3*time.Hour {
			t.Fatalf("nothing is removed: %s", p)
		}
		f.pass(p.Next)
	}
	if most := 2*int(f.now.Sub(begin)/time.Minute) + 10; rounds > most {
		t.Errorf("%d rounds in %s, want one a minute", rounds, f.now.Sub(begin))
	}
	f.settle(time.Hour)
	if len(f.held) > 0 {
		t.Errorf("%d are left", len(f.held))
	}
	if f.lookups > 2*pods { // an address and an endpoint each, which may be planned in two rounds
		t.Errorf("%d reads of pods for %d pods", f.lookups, pods)
	}
}
