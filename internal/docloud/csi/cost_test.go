// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/ratelimit"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// took is how long an attachment or detachment takes in the comparison.
const took = 9 * time.Second

// other makes the calls that csi-digitalocean's controller makes (driver/controller.go of v4.16.0), and is retried as its sidecars retry: after a second, then after
// twice as long each time, up to five minutes.
type other struct {
	// api is a client that has made no call: csi-digitalocean counts none, and so holds none back.
	api func() *doapi.Client
}

func (o other) create(ctx context.Context, name string) (string, error) {
	if _, err := o.api().VolumesNamed(ctx, name, "nyc1"); err != nil {
		return "", err
	}
	if _, err := o.api().Account(ctx); err != nil { // and, if the account has a limit of volumes, one more
		return "", err
	}
	v, err := o.api().CreateVolume(ctx, volume.Request{Name: name, Region: "nyc1", Size: 1})
	return v.ID, err
}

func (o other) move(ctx context.Context, id string, droplet int, begin func(*doapi.Client, context.Context, volume.Observed, int) (volume.Action, error)) error {
	v, err := o.api().Volume(ctx, id)
	if err != nil {
		return err
	}
	if _, err := o.api().Droplet(ctx, droplet); err != nil {
		return err
	}
	action, err := begin(o.api(), ctx, v, droplet)
	if err != nil {
		return err
	}
	for action.Status == volume.InProgress {
		<-time.After(time.Second)
		if action, err = o.api().VolumeAction(ctx, id, action.ID); err != nil {
			return err
		}
	}
	return nil
}

func retried(do func() error) error {
	const most = 5 * time.Minute
	for pause := time.Second; ; pause = min(2*pause, most) {
		err := do()
		if !errors.Is(err, doapi.ErrPending) {
			return err
		}
		<-time.After(pause)
	}
}

// kubernetes asks for volumes as the sidecars do: many at once, seven to a droplet.
type kubernetes struct {
	t      *testing.T
	sim    *digitalocean.Simulator
	create func(name string) (string, error)
	attach func(id string, droplet int) error
	detach func(id string, droplet int) error
}

// costs counts the calls for one life of many volumes.
func (k kubernetes) costs(many int) (create, attach, detach int) {
	k.t.Helper()
	var droplets []int
	for i := range (many + 6) / 7 {
		d, err := k.sim.Account("").CreateDroplet(digitalocean.DropletSpec{Name: fmt.Sprintf("node-%d-%d", many, i)})
		if err != nil {
			k.t.Fatal(err)
		}
		droplets = append(droplets, d.ID)
	}
	ids := make([]string, many)
	all := func(do func(i int) error) int {
		before := k.sim.Stats().Total
		var wait sync.WaitGroup
		for i := range many {
			wait.Go(func() {
				if err := do(i); err != nil {
					k.t.Error(err)
				}
			})
		}
		wait.Wait()
		<-time.After(time.Minute) // what is counted is not bound by the minute's budget
		return k.sim.Stats().Total - before
	}
	create = all(func(i int) (err error) {
		ids[i], err = k.create(fmt.Sprintf("pvc-%d-%d", many, i))
		return err
	})
	attach = all(func(i int) error { return k.attach(ids[i], droplets[i/7]) })
	detach = all(func(i int) error { return k.detach(ids[i], droplets[i/7]) })
	return create, attach, detach
}

func newKubernetes(t *testing.T) (kubernetes, func() *doapi.Client) {
	t.Helper()
	sim := digitalocean.New(digitalocean.Options{RateLimits: ratelimit.Limits{Hour: -1, Minute: -1}, Volumes: taking(took)})
	return kubernetes{t: t, sim: sim}, func() *doapi.Client {
		client, err := doapi.New(doapi.Options{Token: doapi.StaticToken(digitalocean.DefaultToken), Transport: sim.Transport()})
		if err != nil {
			t.Fatal(err)
		}
		return client
	}
}

func ours(t *testing.T) kubernetes {
	t.Helper()
	k, client := newKubernetes(t)
	c := NewController(ControllerOptions{API: client(), Region: "nyc1", Clock: clock.RealClock{}, Log: logr.Discard()})
	k.create = func(name string) (string, error) {
		answer, err := c.CreateVolume(t.Context(), &spec.CreateVolumeRequest{
			Name: name, CapacityRange: &spec.CapacityRange{RequiredBytes: 1 << 30}, VolumeCapabilities: []*spec.VolumeCapability{writer()},
		})
		return answer.GetVolume().GetVolumeId(), err
	}
	k.attach = func(id string, droplet int) error {
		_, err := c.ControllerPublishVolume(t.Context(), attachment(id, fmt.Sprint(droplet), volume.FormatFirst))
		return err
	}
	k.detach = func(id string, droplet int) error {
		_, err := c.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: fmt.Sprint(droplet)})
		return err
	}
	return k
}

func theirs(t *testing.T) kubernetes {
	t.Helper()
	k, client := newKubernetes(t)
	o := other{client}
	k.create = func(name string) (string, error) { return o.create(t.Context(), name) }
	k.attach = func(id string, droplet int) error {
		return retried(func() error { return o.move(t.Context(), id, droplet, (*doapi.Client).AttachVolume) })
	}
	k.detach = func(id string, droplet int) error {
		return retried(func() error { return o.move(t.Context(), id, droplet, (*doapi.Client).DetachVolume) })
	}
	return k
}

// TestCallsBesideCSIDigitalOcean measures what the page says: calls to create, attach and detach one volume, and 50 at once, by both controllers' calls
// against the same simulator.
func TestCallsBesideCSIDigitalOcean(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		shown := shownCosts(t)
		for _, many := range []int{1, 50} {
			create, attach, detach := ours(t).costs(many)
			theirCreate, theirAttach, theirDetach := theirs(t).costs(many)
			most := max(6, many*15/10) // of ours
			for _, row := range []struct {
				deed               string
				ours, theirs, most int
			}{{"create", create, theirCreate, many + 1}, {"attach", attach, theirAttach, most}, {"detach", detach, theirDetach, most}} {
				t.Logf("%s %d: %d calls, csi-digitalocean %d", row.deed, many, row.ours, row.theirs)
				if row.ours > row.most || row.theirs <= row.ours {
					t.Errorf("%s %d: %d calls, at most %d are right; csi-digitalocean %d", row.deed, many, row.ours, row.most, row.theirs)
				}
				if !near(shown[row.deed+" "+strconv.Itoa(many)], row.theirs, row.ours) {
					t.Errorf("the page says %v of %s %d", shown[row.deed+" "+strconv.Itoa(many)], row.deed, many)
				}
			}
		}
	})
}

// near compares figures with those of the page, to a tenth, since the order of 50 at once is chance's.
func near(shown []int, measured ...int) bool {
	return slices.EqualFunc(shown, measured, func(a, b int) bool { return max(a, b)-min(a, b) <= 1+b/10 })
}

// shownCosts reads the page's table: what csi-digitalocean and this driver need, by deed and number.
func shownCosts(t *testing.T) map[string][]int {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(testkit.Root(t), "docs", "components", "digitalocean-csi-driver-compared.md"))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string][]int{}
	for _, row := range regexp.MustCompile(`(?m)^\| (\w+ \d+) \| (\d+) \| (\d+) \|$`).FindAllStringSubmatch(string(page), -1) {
		theirs, _ := strconv.Atoi(row[2])
		ours, _ := strconv.Atoi(row[3])
		found[row[1]] = []int{theirs, ours}
	}
	return found
}
