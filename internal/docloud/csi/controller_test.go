// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	volumes "github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

// account is a controller against the simulator, without a socket between them, in a bubble where time costs nothing.
type account struct {
	*Controller
	t   *testing.T
	sim *digitalocean.Simulator
}

// taking is how long actions take here.
func taking(d time.Duration) digitalocean.VolumeOptions {
	return digitalocean.VolumeOptions{AttachAfter: d, DetachAfter: d, ResizeAfter: d}
}

func newAccount(t *testing.T, options digitalocean.VolumeOptions) *account {
	t.Helper()
	a := &account{t: t, sim: digitalocean.New(digitalocean.Options{Volumes: options})}
	a.Controller = a.controller()
	return a
}

// controller is a new process: it knows nothing of what another one did.
func (a *account) controller() *Controller {
	a.t.Helper()
	client, err := doapi.New(doapi.Options{Token: doapi.StaticToken(digitalocean.DefaultToken), Transport: a.sim.Transport()})
	if err != nil {
		a.t.Fatal(err)
	}
	return NewController(ControllerOptions{API: client, Region: "nyc1", Clock: clock.RealClock{}, Log: logr.Discard()})
}

func (a *account) droplet() string {
	a.t.Helper()
	d, err := a.sim.Account("").CreateDroplet(digitalocean.DropletSpec{Name: "node"})
	if err != nil {
		a.t.Fatal(err)
	}
	return strconv.Itoa(d.ID)
}

func (a *account) volume(name string, size int) string {
	a.t.Helper()
	v, err := a.sim.Account("").CreateVolume(digitalocean.VolumeSpec{Name: name, Size: size})
	if err != nil {
		a.t.Fatal(err)
	}
	return v.ID
}

func writer() *spec.VolumeCapability {
	return &spec.VolumeCapability{
		AccessType: &spec.VolumeCapability_Mount{Mount: &spec.VolumeCapability_MountVolume{}},
		AccessMode: &spec.VolumeCapability_AccessMode{Mode: spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
	}
}

func (a *account) attach(volume, node string) error {
	_, err := a.ControllerPublishVolume(a.t.Context(), attachment(volume, node, volumes.FormatFirst))
	return err
}

// attachment is the request for a volume whose PersistentVolume says what may be done to it while it is blank.
func attachment(id, node string, format volumes.Format) *spec.ControllerPublishVolumeRequest {
	return &spec.ControllerPublishVolumeRequest{
		VolumeId: id, NodeId: node, VolumeCapability: writer(), VolumeContext: map[string]string{FormatKey: string(format)},
	}
}

func (a *account) calls() int { return a.sim.Stats().Total }

// inBubble runs a test where time costs nothing.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func want(t *testing.T, err error, code codes.Code, words string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), words) {
		t.Errorf("%v; want %s and %q", err, code, words)
	}
}

// TestCallsOfAnAttachment: at most 6 alone, though DigitalOcean takes nine seconds.
func TestCallsOfAnAttachment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(9*time.Second))
		volume, node := a.volume("pvc-alone", 1), a.droplet()
		if err := a.attach(volume, node); err != nil {
			t.Fatal(err)
		}
		if n := a.calls(); n > 6 {
			t.Errorf("%d calls for one attachment", n)
		}
	})
}

// TestCallsOfFiftyAttachments: at most 1.5 for each of 50 at once, wherever other people's 1,000 actions are among them.
func TestCallsOfFiftyAttachments(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const many, foreign = 50, 1000
		for _, perDroplet := range []int{1, 7} {
			for name, others := range map[string]func(a *account){
				"none":  func(*account) {},
				"older": func(a *account) { a.sim.Account("").AddActions(foreign) },
				"newer": func(a *account) { <-time.After(3 * time.Second); a.sim.Account("").AddActions(foreign) },
				"in between": func(a *account) {
					for range foreign / 20 {
						<-time.After(time.Second)
						a.sim.Account("").AddActions(20)
					}
				},
			} {
				for _, takes := range []time.Duration{2 * time.Second, 5 * time.Second, 9 * time.Second} {
					a := newAccount(t, taking(takes))
					a.attachMany(many, perDroplet, others)
					what := fmt.Sprintf("%d at a droplet, %s each, foreign actions %s", perDroplet, takes, name)
					if n, most := a.calls(), many*15/10; n > most {
						t.Errorf("%s: %d calls for %d attachments, at most %d are right: %v",
							what, n, many, most, a.sim.Stats().Routes)
					} else {
						t.Logf("%s: %d calls", what, n)
					}
				}
			}
		}
	})
}

// attachMany attaches many volumes at once, some to each droplet, while something else happens.
func (a *account) attachMany(many, perDroplet int, meanwhile func(a *account)) {
	a.t.Helper()
	var all sync.WaitGroup
	var node string
	var nodes, volumes []string
	for i := range many {
		if i%perDroplet == 0 {
			node = a.droplet()
		}
		nodes, volumes = append(nodes, node), append(volumes, a.volume(fmt.Sprintf("pvc-%d", i), 1))
	}
	for i, v := range volumes {
		all.Go(func() {
			if err := a.attach(v, nodes[i]); err != nil {
				a.t.Errorf("volume %d: %v", i, err)
			}
		})
	}
	all.Go(func() { meanwhile(a) })
	all.Wait()
}

// TestAnErroredActionEndsAtOnce with DigitalOcean's word for it, and is tried again by the next request.
func TestAnErroredActionEndsAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		volume, node := a.volume("pvc-1", 1), a.droplet()
		a.sim.Account("").FailVolumeActions(1)
		began := time.Now()
		want(t, a.attach(volume, node), codes.Internal, "errored")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("it took %s", took)
		}
		if err := a.attach(volume, node); err != nil {
			t.Error(err)
		}
	})
}

// TestARestartResumesAnAttachment that another process began: the volume is not attached twice, and nothing is an error.
func TestARestartResumesAnAttachment(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, rule := range []fault.Rule{
			{Route: "POST /v2/volumes/{volume_id}/actions", Kind: fault.CutAfterApply, Nth: 1},
			{Route: "POST /v2/volumes/{volume_id}/actions", Kind: fault.Reset, Nth: 1},
		} {
			a := newAccount(t, taking(5*time.Second))
			volume, node := a.volume("pvc-1", 1), a.droplet()
			if err := a.sim.Inject(rule); err != nil {
				t.Fatal(err)
			}
			other := a.controller()
			errs := make(chan error, 1)
			go func() { errs <- a.attach(volume, node) }()
			_, err := other.ControllerPublishVolume(t.Context(), attachment(volume, node, volumes.FormatFirst))
			if first := <-errs; err != nil || first != nil {
				t.Errorf("%s: %v and %v", rule.Kind, first, err)
			}
		}
	})
}

// TestAVolumeElsewhereIsLeftThere, and the message says how to free it.
func TestAVolumeElsewhereIsLeftThere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		volume, here, there := a.volume("pvc-1", 1), a.droplet(), a.droplet()
		if err := a.attach(volume, here); err != nil {
			t.Fatal(err)
		}
		want(t, a.attach(volume, there), codes.FailedPrecondition, "out-of-service")
		want(t, a.attach(volume, "12"), codes.FailedPrecondition, here)
		_, err := a.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume})
		if err != nil {
			t.Errorf("detached without a node: %v", err)
		}
		want(t, a.attach(volume, "12"), codes.NotFound, "no droplet 12")
	})
}

// TestOnlyDigitalOceanLimitsTheVolumesOfADroplet: the fifteenth passes, and one more too if the API accepts it; what it refuses is an exhausted resource.
func TestOnlyDigitalOceanLimitsTheVolumesOfADroplet(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for most, refusal := range map[int]string{assumed.VolumesPerDroplet: "cannot attach more than 15 volumes to a single Droplet", 20: "cannot attach more than 20"} {
			a := newAccount(t, digitalocean.VolumeOptions{PerDroplet: most})
			node := a.droplet()
			for i := range most {
				if err := a.attach(a.volume(fmt.Sprintf("pvc-%d", i), 1), node); err != nil {
					t.Fatal(err)
				}
			}
			want(t, a.attach(a.volume("pvc-more", 1), node), codes.ResourceExhausted, refusal)
		}
	})
}

// TestOnlyDigitalOceanLimitsTheSize: 20 TiB are created and grown to where the API accepts them, and refused with its words where it does not.
func TestOnlyDigitalOceanLimitsTheSize(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const huge = 20 << 40
		a := newAccount(t, digitalocean.VolumeOptions{Largest: 20 << 10})
		expand := func(id string) error {
			_, err := a.ControllerExpandVolume(t.Context(), &spec.ControllerExpandVolumeRequest{VolumeId: id, CapacityRange: &spec.CapacityRange{RequiredBytes: huge}})
			return err
		}
		if v, err := a.create("pvc-1", huge, nil); err != nil || v.GetCapacityBytes() != huge {
			t.Errorf("%v, %v", v, err)
		}
		if err := expand(a.volume("pvc-2", 1)); err != nil {
			t.Error(err)
		}
		a = newAccount(t, digitalocean.VolumeOptions{})
		_, err := a.create("pvc-1", huge, nil)
		want(t, err, codes.OutOfRange, "invalid size")
		want(t, expand(a.volume("pvc-2", 1)), codes.OutOfRange, "invalid size")
	})
}

// TestRefusalsHaveTheirCodes of the Container Storage Interface, with DigitalOcean's own words.
func TestRefusalsHaveTheirCodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, refusal := range []struct {
			status  int
			message string
			code    codes.Code
		}{
			{http.StatusUnprocessableEntity, "invalid size", codes.OutOfRange},
			{http.StatusForbidden, "failed to create volume: volume/snapshot capacity limit exceeded", codes.ResourceExhausted},
			{http.StatusForbidden, "You are not authorized to perform this operation", codes.PermissionDenied},
			{http.StatusTooManyRequests, "API rate limit exceeded", codes.Unavailable},
			{http.StatusTooManyRequests, "rate limit exceeded: one request per 10m0s", codes.ResourceExhausted},
			{http.StatusUnprocessableEntity, "cannot attach more volumes to the Droplet", codes.ResourceExhausted},
			{http.StatusUnprocessableEntity, "Volume already has a pending event.", codes.Aborted},
			{http.StatusUnprocessableEntity, "region is not available", codes.FailedPrecondition},
			{http.StatusUnauthorized, "Unable to authenticate you", codes.Unauthenticated},
		} {
			a := newAccount(t, digitalocean.VolumeOptions{})
			rule := fault.Rule{Route: "POST /v2/volumes", Kind: fault.Error, Status: refusal.status, Message: refusal.message, Nth: 1, Times: -1}
			if err := a.sim.Inject(rule); err != nil {
				t.Fatal(err)
			}
			_, err := a.create("pvc-1", 1<<30, nil)
			want(t, err, refusal.code, strings.TrimSuffix(refusal.message, "."))
		}
	})
}

// TestALimitOfCallsIsNotAFullMachine: kubelet ends the pods of an attachment that failed as ResourceExhausted.
func TestALimitOfCallsIsNotAFullMachine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, route := range []string{
			"GET /v2/volumes", "GET /v2/volumes/{volume_id}", "POST /v2/volumes/{volume_id}/actions",
		} {
			for _, many := range []int{1, 5} {
				a := newAccount(t, taking(time.Second))
				if err := a.sim.Inject(fault.Rule{
					Route: route, Kind: fault.Error, Status: http.StatusTooManyRequests, Message: "API rate limit exceeded",
					Nth: 1, Times: -1,
				}); err != nil {
					t.Fatal(err)
				}
				var all sync.WaitGroup
				for i := range many {
					volume, node := a.volume(fmt.Sprintf("pvc-%d", i), 1), a.droplet()
					all.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
						defer cancel()
						_, err := a.ControllerPublishVolume(ctx, attachment(volume, node, volumes.FormatFirst))
						if status.Code(err) == codes.ResourceExhausted {
							t.Errorf("%d attachments, no calls left for %s: %v", many, route, err)
						}
					})
				}
				all.Wait()
				a.sim.ClearFaults()
				<-time.After(time.Hour) // what is under way ends
			}
		}
	})
}

// TestOneSnapshotInTenMinutes: the error says when the next is possible, other calls go on, and then it is taken.
func TestOneSnapshotInTenMinutes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		volume := a.volume("pvc-1", 1)
		take := func(name string) error {
			_, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
			return err
		}
		if err := take("one"); err != nil {
			t.Fatal(err)
		}
		want(t, take("two"), codes.ResourceExhausted, time.Now().Add(10*time.Minute).UTC().Format("15:04:05 UTC"))
		before := time.Now()
		if err := take("one"); err != nil || time.Since(before) > 0 {
			t.Errorf("the same again: %v after %s", err, time.Since(before))
		}
		<-time.After(10 * time.Minute)
		if err := take("two"); err != nil {
			t.Error(err)
		}
	})
}

// TestADeletedSnapshotCounts at DigitalOcean, and the driver no longer sees it: the error names no time, which would be later with each attempt.
func TestADeletedSnapshotCounts(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		volume := a.volume("pvc-1", 1)
		first, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: volume})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := a.DeleteSnapshot(t.Context(), &spec.DeleteSnapshotRequest{SnapshotId: first.GetSnapshot().GetSnapshotId()}); err != nil {
			t.Fatal(err)
		}
		_, err = a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "two", SourceVolumeId: volume})
		want(t, err, codes.ResourceExhausted, "that is deleted by now counts")
		if strings.Contains(err.Error(), "UTC") {
			t.Errorf("it names a time: %v", err)
		}
	})
}

// TestARestoreToALargerSizeIsResumed where a process died before it resized the volume.
func TestARestoreToALargerSizeIsResumed(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		s, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: a.volume("pvc-1", 1)})
		if err != nil {
			t.Fatal(err)
		}
		request := &spec.CreateVolumeRequest{
			Name: "pvc-2", CapacityRange: &spec.CapacityRange{RequiredBytes: 3 << 30}, VolumeCapabilities: []*spec.VolumeCapability{writer()},
			VolumeContentSource: &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{
				Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: s.GetSnapshot().GetSnapshotId()},
			}},
		}
		if err := a.sim.Inject(fault.Rule{Route: "POST /v2/volumes/{volume_id}/actions", Kind: fault.Error, Status: http.StatusUnauthorized, Nth: 1}); err != nil {
			t.Fatal(err)
		}
		if _, err := a.CreateVolume(t.Context(), request); err == nil {
			t.Fatal("it was not interrupted")
		}
		got, err := a.controller().CreateVolume(t.Context(), request)
		if err != nil || got.GetVolume().GetCapacityBytes() != 3<<30 || got.GetVolume().GetContentSource() == nil || len(got.GetVolume().GetAccessibleTopology()) != 1 {
			t.Errorf("%v, %v", got, err)
		}
	})
}
