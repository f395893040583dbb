// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// smallCore is an etcd of three members with databases of at most 8 MiB. It returns their URLs, the processes, and a client.
func smallCore(t *testing.T) (urls []string, members []*testkit.Process, client *clientv3.Client) {
	t.Helper()
	core := testkit.NewEtcdMembers(t, "--quota-backend-bytes=8388608")
	return core.URLs, core.Processes, core.Client
}

// fillCore overwrites a key until the core has the alarm NOSPACE.
func fillCore(t *testing.T, client *clientv3.Client, urls []string) {
	t.Helper()
	for range 300 {
		if _, err := client.Put(t.Context(), "/t/key", strings.Repeat("x", 100<<10)); errors.Is(err, rpctypes.ErrNoSpace) {
			return
		}
		for _, url := range urls {
			if _, err := client.HashKV(t.Context(), url, 0); err != nil { // makes the member commit what it has buffered
				t.Fatal(err)
			}
		}
	}
	t.Fatal("the core has room for ever")
}

func alarms(t *testing.T, client *clientv3.Client) []*pb.AlarmMember {
	t.Helper()
	answer, err := client.AlarmList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return answer.Alarms
}

// A core of three members out of space: the command prints what it would do, refuses while a member is away, and then takes all of them out
// of it, the leader last. What is stored stays.
func TestEtcdDefragment(t *testing.T) {
	t.Parallel()
	urls, _, client := smallCore(t)
	fillCore(t, client, urls)
	args := func(more ...string) []string {
		return append([]string{"etcd", "defragment", "--core-endpoint", strings.Join(urls, ",")}, more...)
	}
	ran, err := client.Status(t.Context(), urls[0])
	if err != nil {
		t.Fatal(err)
	}
	leader := ""
	for _, url := range urls {
		status, err := client.Status(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		if status.Header.MemberId == ran.Leader {
			leader = url
		}
	}
	plan := expect(t, command.ExitOK, "", args("--dry-run"), "would compact all history", "would disarm the alarm NOSPACE of ", leader+": ", ", the leader")
	if strings.Index(plan, leader) < strings.LastIndex(plan, "would defragment") || len(alarms(t, client)) == 0 {
		t.Errorf("the plan, which must end with the leader %s: %s", leader, plan)
	}
	silent := "http://" + testkit.FreeAddress(t)
	expect(t, command.ExitError, "", append(args(), "--core-endpoint", silent), "the core etcd "+silent+" does not respond within 5s")
	if len(alarms(t, client)) == 0 {
		t.Error("something was done while a member is away")
	}
	did := expect(t, command.ExitOK, "", args(), "compacted all history, at revision ", "defragmented "+leader, "disarmed the alarm NOSPACE of ")
	if strings.Count(did, "defragmented http") != len(urls) || strings.LastIndex(did, "defragmented http") > strings.Index(did, "defragmented "+leader) {
		t.Errorf("what was done: %s", did)
	}
	if left := alarms(t, client); len(left) != 0 {
		t.Errorf("alarms are left: %v", left)
	}
	if _, err := client.Put(t.Context(), "/t/other", "fits"); err != nil {
		t.Error(err)
	}
	if answer, err := client.Get(t.Context(), "/t/key"); err != nil || len(answer.Kvs) != 1 || len(answer.Kvs[0].Value) != 100<<10 {
		t.Errorf("what was stored: %v %v", answer, err)
	}
	again := expect(t, command.ExitOK, "", args(), "defragmented "+leader)
	if strings.Contains(again, "compacted") || strings.Contains(again, "alarm") {
		t.Errorf("a core in order: %s", again)
	}
}

func TestEtcdDefragmentRefusals(t *testing.T) {
	t.Parallel()
	expect(t, command.ExitError, "", []string{"etcd", "defragment"}, "error: give --core-endpoint, the URLs of all members of the core etcd")
	expect(t, command.ExitError, "", []string{"etcd", "defragment", "--core-endpoint", "http://10.0.0.1:2379"}, "is without encryption")
	expect(t, command.ExitError, "", []string{"etcd", "defragment", "team-a"}, "team-a")
	nobody := "http://" + testkit.FreeAddress(t)
	expect(t, command.ExitError, "", []string{"etcd", "defragment", "--core-endpoint", nobody}, "connecting to "+nobody)
}

// A core whose space is all in use has little space afterwards, and the command prints what has to happen. etcd may raise its alarm before
// that, for what it has not committed yet: then there is room for more, and no warning.
func TestEtcdDefragmentOfACoreThatIsFull(t *testing.T) {
	t.Parallel()
	urls, _, client := smallCore(t)
	keys := 0
	for range 20 {
		for {
			keys++
			if _, err := client.Put(t.Context(), fmt.Sprint("/t/", keys), strings.Repeat("x", 100<<10)); errors.Is(err, rpctypes.ErrNoSpace) {
				break
			} else if err != nil || keys > 200 {
				t.Fatal(keys, " keys: ", err)
			}
			for _, url := range urls {
				if _, err := client.HashKV(t.Context(), url, 0); err != nil {
					t.Fatal(err)
				}
			}
		}
		code, stdout, stderr := runWith(t, "", "etcd", "defragment", "--core-endpoint", strings.Join(urls, ","))
		if code != 0 || !strings.Contains(stdout, "disarmed the alarm NOSPACE of ") {
			t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
		}
		if stderr == "" {
			continue
		}
		stderr = strings.Join(strings.Fields(stderr), " ")
		if !strings.HasPrefix(stderr, "warning: the database of the core etcd is nearly full: ") || !strings.Contains(stderr, "have tenants delete what they do not need") {
			t.Error(stderr)
		}
		return
	}
	t.Fatalf("with %d keys the core was never full", keys)
}
