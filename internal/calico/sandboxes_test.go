// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func everybody(string, string) bool { return true }

// sandboxBlock is a block with addresses of pod default/p, each "host container".
func sandboxBlock(cidr string, addresses ...[2]string) string {
	allocations, attributes := "", ""
	for i, a := range addresses {
		allocations += fmt.Sprintf("%d,", i)
		attributes += fmt.Sprintf(`{"handle_id":%q,"secondary":{"namespace":"default","node":%q,"pod":"p","timestamp":"2026-01-01 00:00:00 UTC"}},`, "net."+a[1], a[0])
	}
	return fmt.Sprintf(`{"cidr":%q,"affinity":"host:n1","allocations":[%snull],"unallocated":[3],"attributes":[%s{"handle_id":"t","secondary":{}}],`+
		`"sequenceNumber":3,"deleted":false}`, cidr, allocations, attributes)
}

// A living pod is looked at again if it has something on two hosts, or addresses of two containers, and not for several
// networks or families of one.
func TestPodsOfSeveralSandboxes(t *testing.T) {
	t.Parallel()
	const endpoint = endpointPrefix + "default/%s-k8s-p-%s"
	for name, test := range map[string]struct {
		endpoints []string // hosts and interfaces
		blocks    [][][2]string
		hosts     []string
		again     int
	}{
		"one sandbox":                    {[]string{"n1 eth0"}, [][][2]string{{{"n1", "a"}}}, nil, 0},
		"several interfaces":             {[]string{"n1 eth0", "n1 net1"}, [][][2]string{{{"n1", "a"}, {"n1", "a"}}, {{"n1", "a"}}}, nil, 0},
		"two containers":                 {[]string{"n1 eth0"}, [][][2]string{{{"n1", "a"}, {"n1", "b"}}}, []string{"n1"}, 1},
		"two containers in two blocks":   {[]string{"n1 eth0"}, [][][2]string{{{"n1", "a"}}, {{"n1", "b"}}}, []string{"n1"}, 2},
		"two hosts":                      {[]string{"n1 eth0", "n2 eth0"}, [][][2]string{{{"n1", "a"}}}, []string{"n1", "n2"}, 1},
		"an address on another host":     {[]string{"n1 eth0"}, [][][2]string{{{"n1", "a"}}, {{"n2", "b"}}}, []string{"n1", "n2"}, 2},
		"addresses alone, on two hosts":  {nil, [][][2]string{{{"n1", "a"}, {"n2", "b"}}}, []string{"n1", "n2"}, 1},
		"endpoints alone, of two hosts":  {[]string{"n1 eth0", "n2 eth0"}, nil, []string{"n1", "n2"}, 0},
		"addresses alone, of one":        {nil, [][][2]string{{{"n1", "a"}}, {{"n1", "a"}}}, nil, 0},
		"the endpoint is on another one": {[]string{"n2 eth0"}, [][][2]string{{{"n1", "a"}}}, []string{"n1", "n2"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := PodHoldings{seen: newSandboxes()}
			for _, e := range test.endpoints {
				found.addEndpoint(fmt.Sprintf(endpoint, e[:2], e[3:]), 1, everybody)
			}
			for i, addresses := range test.blocks {
				found.addBlock([]byte(sandboxBlock(fmt.Sprintf("10.0.%d.0/30", i), addresses...)), everybody)
			}
			var hosts []string
			for host := range found.seen.doubled[podName{"default", "p"}] {
				hosts = append(hosts, host)
			}
			slices.Sort(hosts)
			if again := found.seen.toRead(); !slices.Equal(hosts, test.hosts) || len(again) != test.again {
				t.Errorf("hosts %q and blocks %v, want %q and %d blocks", hosts, again, test.hosts, test.again)
			}
			if len(found.Leftovers) > 0 {
				t.Errorf("of a pod that is alive: %+v", found.Leftovers)
			}
		})
	}
}

// An address goes as an earlier sandbox's only while the living endpoint is as it was seen.
func TestAnEarlierSandboxGoesWhileTheEndpointStands(t *testing.T) {
	t.Parallel()
	etcd := testkit.NewEtcd(t)
	s := must.Get(OpenEtcd(EtcdConfig{Endpoints: []string{etcd.Endpoint}})).Or(t)
	t.Cleanup(func() { _ = s.Close() })
	ctx := t.Context()
	living := EndpointRef{Namespace: "default", Name: "n1-k8s-p-eth0"}
	put := func(key, value string) int64 {
		t.Helper()
		resp := must.Get(etcd.Client.Put(ctx, key, value)).Or(t)
		return resp.Header.Revision
	}
	put(clusterInformationKey, `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"datastoreReady":true}}`)
	guard := Guard{Host: "n1", Revision: put(nodeKey("n1"), `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1"},"spec":{}}`)}
	block := netip.MustParsePrefix("10.0.0.0/30")
	key := must.Get(blockKey(block)).Or(t)
	put(key, sandboxBlock("10.0.0.0/30", [2]string{"n1", "a"}, [2]string{"n1", "b"}))
	living.Revision = put(endpointKey(living.Namespace, living.Name),
		`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1-k8s-p-eth0","namespace":"default"},`+
			`"spec":{"orchestrator":"k8s","node":"n1","pod":"p","containerID":"b","endpoint":"eth0"}}`)
	found, err := s.PodHoldings(ctx, living.Revision, everybody)
	if err != nil || len(found.Doubled) != 3 || len(found.Leftovers) != 0 {
		t.Fatalf("found %+v, %v", found, err)
	}
	var old Leftover
	for _, h := range found.Doubled {
		switch {
		case h.Endpoint == living && h.Container == "b", h.Endpoint.Name == "" && h.Handle == "net.b":
		case h.Container == "a" && h.Handle == "net.a":
			old = h.Leftover
		default:
			t.Errorf("found %+v", h)
		}
	}
	old.Living = living
	old.Living.Revision--
	if err := s.RemoveLeftovers(ctx, guard, []Leftover{old}); !errors.Is(err, ErrConflict) {
		t.Fatalf("although the endpoint was written since: %v", err)
	}
	old.Living = living
	must.Do(t, s.RemoveLeftovers(ctx, guard, []Leftover{old}))
	if found, err = s.PodHoldings(ctx, 0, everybody); err != nil || found.Count != 2 || len(found.Doubled) != 0 {
		t.Errorf("left are %+v, %v", found, err)
	}
}
