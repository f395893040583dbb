// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/funcr"
	"google.golang.org/grpc/codes"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

// detach takes a volume from a node.
func (a *account) detach(ctx context.Context, volume, node string) error {
	_, err := a.ControllerUnpublishVolume(ctx, &spec.ControllerUnpublishVolumeRequest{VolumeId: volume, NodeId: node})
	return err
}

// attached returns the nodes of the volumes, as they are.
func (a *account) attached() []string {
	var nodes []string
	for _, v := range a.sim.Account("").Volumes() {
		nodes = append(nodes, strings.Trim(fmt.Sprint(v.DropletIDs), "[]"))
	}
	return nodes
}

// TestListsThatLag behind a GET: what is answered is so, for attachments, detachments, volumes, clones and snapshots.
func TestListsThatLag(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, lag := range assumed.ListLags() {
			a := newAccount(t, taking(2*time.Second))
			a.sim.SetConsistency(digitalocean.Consistency{List: lag})
			const many = 4
			var nodes, volumes []string
			for i := range many {
				nodes, volumes = append(nodes, a.droplet()), append(volumes, a.volume(fmt.Sprintf("pvc-%d", i), 1))
			}
			all := func(what string, want []string, do func(i int) error) {
				t.Helper()
				var wait sync.WaitGroup
				for i := range many {
					wait.Go(func() {
						if err := do(i); err != nil {
							t.Errorf("lists lag %s: %s: %v", lag, what, err)
						}
					})
				}
				wait.Wait()
				if got := a.attached(); !slices.Equal(got, want) {
					t.Errorf("lists lag %s: after %s the volumes are at %q, want %q", lag, what, got, want)
				}
			}
			<-time.After(time.Minute) // the lists show all volumes
			none, moved := make([]string, many), append(slices.Clone(nodes[1:]), nodes[0])
			all("attach", nodes, func(i int) error { return a.attach(volumes[i], nodes[i]) })
			all("detach", none, func(i int) error { return a.detach(t.Context(), volumes[i], nodes[i]) })
			all("attach elsewhere", moved, func(i int) error { return a.attach(volumes[i], moved[i]) })
			all("detach from there", none, func(i int) error { return a.detach(t.Context(), volumes[i], moved[i]) })
			all("attach again", nodes, func(i int) error { return a.attach(volumes[i], nodes[i]) })
			a.checkCreations(lag, volumes[0])
		}
	})
}

// checkCreations makes, deletes and makes again what the lists do not show yet, or still show.
func (a *account) checkCreations(lag time.Duration, source string) {
	a.t.Helper()
	for range 2 {
		v, err := a.create("pvc-new", 1<<30, nil)
		if err != nil || !slices.ContainsFunc(a.sim.Account("").Volumes(), func(one digitalocean.Volume) bool { return one.ID == v.GetVolumeId() }) {
			a.t.Errorf("lists lag %s: created %v, %v", lag, v, err)
			continue
		}
		<-time.After(time.Minute) // the list shows it, and still does after it is deleted
		if _, err := a.DeleteVolume(a.t.Context(), &spec.DeleteVolumeRequest{VolumeId: v.GetVolumeId()}); err != nil {
			a.t.Errorf("lists lag %s: %v", lag, err)
		}
	}
	if v, err := a.create("pvc-clone", 3<<30, ofVolume(source)); err != nil || v.GetCapacityBytes() != 3<<30 {
		a.t.Errorf("lists lag %s: cloned %v, %v", lag, v, err)
	}
	copied := a.volume("pvc-copied", 1)
	for range 2 {
		s, err := a.CreateSnapshot(a.t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: copied})
		if err != nil || !slices.ContainsFunc(a.sim.Account("").Snapshots(), func(one digitalocean.Snapshot) bool { return one.ID == s.GetSnapshot().GetSnapshotId() }) {
			a.t.Errorf("lists lag %s: snapshot %v, %v", lag, s, err)
			return
		}
		<-time.After(assumed.SnapshotInterval)
		if _, err := a.DeleteSnapshot(a.t.Context(), &spec.DeleteSnapshotRequest{SnapshotId: s.GetSnapshot().GetSnapshotId()}); err != nil {
			a.t.Errorf("lists lag %s: %v", lag, err)
		}
	}
}

// TestForeignActionsHideOurs from the first page of the account's list: they are read by themselves, some at a time.
func TestForeignActionsHideOurs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, newer := range assumed.NewerActions() {
			a := newAccount(t, taking(9*time.Second))
			const many = 10
			var volumes, nodes []string
			for i := range many {
				nodes, volumes = append(nodes, a.droplet()), append(volumes, a.volume(fmt.Sprintf("pvc-%d", i), 1))
			}
			began := time.Now()
			var all sync.WaitGroup
			for i := range many {
				all.Go(func() {
					if err := a.attach(volumes[i], nodes[i]); err != nil {
						t.Errorf("%d newer actions: %v", newer, err)
					}
				})
			}
			<-time.After(time.Second)
			a.sim.Account("").AddActions(newer)
			all.Wait()
			took, calls := time.Since(began), a.calls()
			if took > 20*time.Second || calls > 6*many {
				t.Errorf("%d newer actions: %d attachments took %s and %d calls", newer, many, took, calls)
			}
			t.Logf("%d newer actions: %d attachments took %s and %d calls", newer, many, took, calls)
		}
	})
}

// TestANewActionWakesThePoller, which is slow while only an action is under way that does not end.
func TestANewActionWakesThePoller(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, digitalocean.VolumeOptions{AttachAfter: time.Second, DetachAfter: 10 * time.Minute})
		stuck, other, nodes := a.volume("pvc-0", 1), a.volume("pvc-1", 1), []string{a.droplet(), a.droplet()}
		if err := a.attach(stuck, nodes[0]); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = a.detach(t.Context(), stuck, nodes[0])
		}()
		<-time.After(90 * time.Second) // it is read 86 and 101 seconds after its beginning
		began := time.Now()
		if err := a.attach(other, nodes[1]); err != nil || time.Since(began) > 2*DefaultPollInterval {
			t.Errorf("it took %s: %v", time.Since(began), err)
		}
		<-ended
		<-time.After(longestPoll) // the poller ends
	})
}

// TestAVolumeWaitsByName: while one action of a droplet does not end, the next volume's response and log say which one that is.
func TestAVolumeWaitsByName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, digitalocean.VolumeOptions{AttachAfter: time.Second, DetachAfter: 4 * time.Minute})
		var lines []string
		a.o.Log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		stuck, next, node := a.volume("pvc-stuck", 1), a.volume("pvc-next", 1), a.droplet()
		if err := a.attach(stuck, node); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := a.detach(t.Context(), stuck, node); err != nil {
				t.Error(err)
			}
		}()
		<-time.After(time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		_, err := a.ControllerPublishVolume(ctx, attachment(next, node, "first"))
		want(t, err, codes.DeadlineExceeded, "does one action at a time, and has detach of volume pvc-stuck first")
		if all := strings.Join(lines, "\n"); !strings.Contains(all, "has detach of volume pvc-stuck first") {
			t.Errorf("the log does not say it:\n%s", all)
		}
		<-ended
		if err := a.attach(next, node); err != nil {
			t.Error(err)
		}
		<-time.After(longestPoll) // the poller ends
	})
}

// TestTheLastRefusalIsTheResponse, a second before the caller's deadline, and in the log; the request is repeated.
func TestTheLastRefusalIsTheResponse(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		var lines []string
		a.o.Log = funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
		volume, node := a.volume("pvc-1", 1), a.droplet()
		if err := a.attach(volume, node); err != nil {
			t.Fatal(err)
		}
		const words = "the volume is part of a backup"
		if err := a.sim.Inject(fault.Rule{
			Route: "POST /v2/volumes/{volume_id}/actions", Kind: fault.Error, Status: http.StatusUnprocessableEntity, Message: words, Nth: 1, Times: -1,
		}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		err := a.detach(ctx, volume, node)
		want(t, err, codes.DeadlineExceeded, words)
		if took := time.Since(began); took != 14*time.Second || strings.Contains(err.Error(), "context deadline") {
			t.Errorf("after %s: %v", took, err)
		}
		a.sim.ClearFaults()
		if err := a.detach(t.Context(), volume, node); err != nil {
			t.Error(err)
		}
		if all := strings.Join(lines, "\n"); !strings.Contains(all, words) {
			t.Errorf("the log has no %q:\n%s", words, all)
		}
	})
}

// TestTagsThatResponsesLeaveOut are put on a volume all the same, at its creation and afterwards.
func TestTagsThatResponsesLeaveOut(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, left := range assumed.TagsLeftOut() {
			token := digitalocean.Token{Value: digitalocean.DefaultToken, Scopes: []string{
				"api:read", "api:write", "block_storage:read", "block_storage:create", "block_storage:update", "tag:create",
			}}
			if !left {
				token.Scopes = append(token.Scopes, "tag:read")
			}
			a := &account{t: t, sim: digitalocean.New(digitalocean.Options{
				Accounts: []digitalocean.AccountOptions{{Name: "default", Tokens: []digitalocean.Token{token}}},
			})}
			a.Controller = a.controller()
			a.o.Tag = "k8s"
			for range 2 { // the second time it exists
				v, err := a.create("pvc-1", 1<<30, nil)
				if err == nil {
					_, err = a.ControllerModifyVolume(t.Context(), &spec.ControllerModifyVolumeRequest{
						VolumeId: v.GetVolumeId(), MutableParameters: map[string]string{"tags": "gold"},
					})
				}
				if tags := a.sim.Account("").Volumes()[0].Tags; err != nil || !slices.Equal(tags, []string{"gold", "k8s"}) {
					t.Errorf("left out %t: tags %v, %v", left, tags, err)
				}
			}
		}
	})
}
