// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strconv"
	"sync/atomic"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
)

// tokens is a source of tokens that can become another account's.
type tokens struct{ now atomic.Value }

func (s *tokens) Token() (string, error) { return s.now.Load().(string), nil } //nolint:forcetypeassert // it is

// TestAnotherAccountsToken: what another account's token does not find is neither detached nor deleted, whenever the
// token came and whatever was done with it before. What is gone in the right account is.
func TestAnotherAccountsToken(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const other, unknown = "the token is of another account", "no droplet of this cluster is known"
		for name, story := range map[string]struct {
			droplet bool // the controller knows a droplet of the cluster
			moved   bool // it has moved the volume with the right token before
			wrong   bool // the token is another account's at last
			delete  bool // a person has deleted the volume and the snapshot
			words   string
		}{
			"right, gone, by its own droplet":            {droplet: true, delete: true},
			"right, gone, by the droplet of the request": {moved: true, delete: true},
			"right, gone, nothing shows it":              {delete: true, words: unknown},
			"wrong from the start":                       {droplet: true, wrong: true, words: other},
			"wrong later":                                {droplet: true, moved: true, wrong: true, words: other},
			"wrong later, by droplets of requests":       {moved: true, wrong: true, words: other},
			"wrong, nothing shows it":                    {wrong: true, words: unknown},
		} {
			token := &tokens{}
			token.now.Store("right")
			a := &account{t: t, sim: digitalocean.New(digitalocean.Options{Accounts: []digitalocean.AccountOptions{
				{Name: "default", Tokens: []digitalocean.Token{{Value: "right"}}},
				{Name: "other", Tokens: []digitalocean.Token{{Value: "wrong"}}},
			}})}
			client, err := doapi.New(doapi.Options{Token: token, Transport: a.sim.Transport()})
			if err != nil {
				t.Fatal(err)
			}
			node, id := a.droplet(), a.volume("pvc-1", 1)
			options := ControllerOptions{API: client, Region: "nyc1", Clock: clock.RealClock{}, Log: logr.Discard()}
			if story.droplet {
				options.Droplet, _ = strconv.Atoi(node)
			}
			a.Controller = NewController(options)
			snapshot, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: id})
			if err != nil {
				t.Fatal(err)
			}
			if story.moved {
				if err := a.attach(id, node); err != nil {
					t.Fatal(err)
				}
				if err := a.detach(t.Context(), id, node); err != nil {
					t.Fatal(err)
				}
			}
			if story.wrong {
				token.now.Store("wrong")
				_, err := a.create("pvc-2", 1<<30, nil)
				if story.words == other {
					want(t, err, codes.Unavailable, "volume pvc-2 is not made, and droplets "+node)
				} else if err != nil { // a volume that this token finds shows nothing
					t.Fatal(err)
				}
				if n := len(a.sim.Account("other").Volumes()); (n == 0) != (story.words == other) {
					t.Errorf("%s: %d volumes were made in the other account", name, n)
				}
			}
			if story.delete {
				if err := a.sim.Account("").DeleteVolume(id); err != nil {
					t.Fatal(err)
				}
				snapshot.Snapshot.SnapshotId = "00000000-0000-4000-8000-000000000000"
			}
			check := func(what string, err error) {
				t.Helper()
				if story.words == "" && err != nil {
					t.Errorf("%s: %s: %v", name, what, err)
				}
				if story.words != "" {
					want(t, err, codes.Unavailable, story.words)
				}
			}
			_, err = a.DeleteVolume(t.Context(), &spec.DeleteVolumeRequest{VolumeId: id})
			check("deleting the volume", err)
			one := snapshot.GetSnapshot().GetSnapshotId()
			_, err = a.DeleteSnapshot(t.Context(), &spec.DeleteSnapshotRequest{SnapshotId: one})
			check("deleting the snapshot", err)
			_, err = a.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: id})
			check("detaching from all", err)
			if !story.delete && len(a.sim.Account("").Volumes()) != 1 {
				t.Errorf("%s: the volume is gone", name)
			}
		}
	})
}

// TestADropletOfTheRequestShowsTheAccount: a detachment names one, so that it needs no setting; asked again it costs no
// call more.
func TestADropletOfTheRequestShowsTheAccount(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		a.o.Droplet = 0
		node := a.droplet()
		for _, most := range []int{2, 1, 1} {
			before := a.calls()
			if err := a.detach(t.Context(), "11111111-1111-4111-8111-111111111111", node); err != nil {
				t.Error(err)
			}
			if n := a.calls() - before; n > most {
				t.Errorf("%d calls, at most %d are right", n, most)
			}
		}
	})
}
