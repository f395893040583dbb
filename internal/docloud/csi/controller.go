// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"sync"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// API is what the controller asks of DigitalOcean; [doapi.Client] has it. Errors are those of doapi.
type API interface {
	actions
	reader
	// Epoch changes with the token; see [doapi.Client.Epoch].
	Epoch() uint64
	// CreateVolume, DeleteVolume and the actions are made once; doapi.ErrAmbiguous is one that may have been made. What
	// is not found is doapi.ErrNotFound.
	CreateVolume(ctx context.Context, r volume.Request) (volume.Observed, error)
	DeleteVolume(ctx context.Context, id string) error
	AttachVolume(ctx context.Context, v volume.Observed, droplet int) (volume.Action, error)
	DetachVolume(ctx context.Context, v volume.Observed, droplet int) (volume.Action, error)
	ResizeVolume(ctx context.Context, v volume.Observed, size int) (volume.Action, error)
	// VolumeSnapshots lists all snapshots of volumes of the account, or is an error.
	VolumeSnapshots(ctx context.Context) ([]volume.Snapshot, error)
	VolumeSnapshot(ctx context.Context, id string) (volume.Snapshot, error)
	// CreateSnapshot is doapi.ErrTooSoon within ten minutes of the volume's last one.
	CreateSnapshot(ctx context.Context, volumeID, name string, tags []string) (volume.Snapshot, error)
	DeleteSnapshot(ctx context.Context, id string) error
	CreateTag(ctx context.Context, name string) error
	TagVolume(ctx context.Context, name, id string) error
	Droplet(ctx context.Context, id int) (instance.Droplet, error)
	// OrdinaryDroplets lists the droplets of the account, those with GPUs left out.
	OrdinaryDroplets(ctx context.Context) ([]instance.Droplet, error)
}

// ControllerOptions are what a Controller needs.
type ControllerOptions struct {
	API    API
	Region string
	// Droplet is a droplet of the cluster, by ID, that shows whose account the token is of; 0 if none is known yet.
	Droplet int
	// Tag is put on all volumes and snapshots that are made, none if empty.
	Tag string
	// PollInterval is [DefaultPollInterval] if 0; OperationTimeout bounds one attachment, detachment or resize, five
	// minutes if 0.
	PollInterval, OperationTimeout time.Duration
	Clock                          clock.Clock
	Log                            logr.Logger
	Metrics                        *Metrics
}

// Controller is the service that makes and moves volumes.
type Controller struct {
	// A method that a later version of the interface adds must be a decision.
	spec.UnsafeControllerServer

	o        ControllerOptions
	poller   *poller
	observer *observer
	turns    *turns

	mu    sync.Mutex // guards what follows
	moves map[string]*move
	names map[string]bool // volumes and snapshots being made
	pasts map[string]past // by the volume's ID
	owner owner
}

// NewController makes a Controller and makes no call.
func NewController(o ControllerOptions) *Controller {
	if o.PollInterval == 0 {
		o.PollInterval = DefaultPollInterval
	}
	if o.OperationTimeout == 0 {
		o.OperationTimeout = 5 * time.Minute
	}
	c := &Controller{
		o: o, poller: newPoller(o.API, o.Clock, o.PollInterval, o.Log),
		observer: newObserver(o.API, o.Region, o.Clock), turns: newTurns(),
		moves: map[string]*move{}, names: map[string]bool{}, pasts: map[string]past{},
	}
	o.Metrics.watch(c.poller)
	return c
}

// ControllerGetCapabilities returns what the controller can do.
func (c *Controller) ControllerGetCapabilities(
	context.Context, *spec.ControllerGetCapabilitiesRequest,
) (*spec.ControllerGetCapabilitiesResponse, error) {
	r := &spec.ControllerGetCapabilitiesResponse{}
	for _, kind := range []spec.ControllerServiceCapability_RPC_Type{
		spec.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		spec.ControllerServiceCapability_RPC_PUBLISH_UNPUBLISH_VOLUME,
		spec.ControllerServiceCapability_RPC_LIST_VOLUMES, spec.ControllerServiceCapability_RPC_LIST_VOLUMES_PUBLISHED_NODES,
		spec.ControllerServiceCapability_RPC_GET_VOLUME, spec.ControllerServiceCapability_RPC_CREATE_DELETE_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_LIST_SNAPSHOTS, spec.ControllerServiceCapability_RPC_GET_SNAPSHOT,
		spec.ControllerServiceCapability_RPC_CLONE_VOLUME, spec.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		spec.ControllerServiceCapability_RPC_MODIFY_VOLUME, spec.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
		spec.ControllerServiceCapability_RPC_GET_VOLUME_HEALTH, spec.ControllerServiceCapability_RPC_LIST_VOLUME_HEALTH,
	} {
		r.Capabilities = append(r.Capabilities, &spec.ControllerServiceCapability{
			Type: &spec.ControllerServiceCapability_Rpc{Rpc: &spec.ControllerServiceCapability_RPC{Type: kind}},
		})
	}
	return r, nil
}

// GetCapacity is not offered: DigitalOcean does not report the free capacity of a region.
func (c *Controller) GetCapacity(context.Context, *spec.GetCapacityRequest) (*spec.GetCapacityResponse, error) {
	return nil, status.Error(codes.Unimplemented, "DigitalOcean does not report the free capacity of a region")
}

// claim keeps a name for one request; the other one is to be repeated.
func (c *Controller) claim(name string) (release func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] {
		return nil, status.Errorf(codes.Aborted, "another request for %s is under way", name)
	}
	c.names[name] = true
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.names, name)
	}, nil
}

// pause waits, or returns the error of ctx.
func (c *Controller) pause(ctx context.Context, d time.Duration) error {
	timer := c.o.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// respondBefore is how long before its deadline a caller gets its response. Any later it would see only its own
// "context deadline exceeded".
const respondBefore = time.Second

// move is an attachment, detachment or resize that is under way.
type move struct {
	what  string // which one exactly
	ended chan struct{}
	v     volume.Observed
	err   error
	// waiting is how many requests wait for it, waits for what it waits itself; Controller.mu guards both.
	waiting int
	waits   error
}

// moving does work for a volume, once: a request for the same that comes meanwhile, since the first gave up waiting,
// gets the same answer. It goes on when the request ends, as DigitalOcean does. work reports what it waits for.
func (c *Controller) moving(
	ctx context.Context, id, what string, work func(ctx context.Context, waits func(error)) (volume.Observed, error),
) (volume.Observed, error) {
	c.mu.Lock()
	m, busy := c.moves[id]
	if busy && m.what != what {
		c.mu.Unlock()
		return volume.Observed{}, status.Errorf(codes.Aborted, "cannot %s volume %s now: %s is under way", what, id, m.what)
	}
	if !busy {
		m = &move{what: what, ended: make(chan struct{})}
		c.moves[id] = m
		detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.OperationTimeout)
		go func() {
			defer cancel()
			c.run(detached, id, m, work)
		}()
	}
	m.waiting++
	c.mu.Unlock()
	waiting, cancel := c.untilResponse(ctx)
	defer cancel()
	select {
	case <-m.ended:
		return m.v, m.err
	case <-waiting.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.waiting--
	text := fmt.Sprintf("volume %s: %s is still in progress", id, what)
	if m.waits != nil {
		text += ", " + m.waits.Error()
	}
	return volume.Observed{}, &unfinished{text, waiting.Err()}
}

// run does the work of a move. Nobody may wait for its end, so that the log has its failure.
func (c *Controller) run(
	ctx context.Context, id string, m *move, work func(context.Context, func(error)) (volume.Observed, error),
) {
	m.v, m.err = work(ctx, func(err error) {
		c.o.Log.Info("Request waits", "request", m.what, "volume", id, "for", err.Error())
		c.mu.Lock()
		defer c.mu.Unlock()
		m.waits = err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.err != nil && m.waiting == 0 {
		c.o.Log.Info("Request failed after its caller stopped waiting",
			"request", m.what, "volume", id, "error", m.err.Error())
	}
	delete(c.moves, id)
	close(m.ended)
}

// untilResponse ends when a caller must get its response.
func (c *Controller) untilResponse(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, set := ctx.Deadline()
	if !set {
		return context.WithCancel(ctx)
	}
	return context.WithDeadline(ctx, deadline.Add(-min(respondBefore, deadline.Sub(c.o.Clock.Now())/2)))
}

// unfinished is a move that has not ended when its caller must get a response. Its code is that of the cause, by which
// callers know that it may still happen.
type unfinished struct {
	text  string
	cause error
}

// Error implements error.
func (u *unfinished) Error() string { return u.text }

// Unwrap returns why nobody waits any longer.
func (u *unfinished) Unwrap() error { return u.cause }

// Writes are all that requests to the controller write.
func Writes() []outputs.Write {
	return []outputs.Write{
		{System: outputs.DigitalOcean, Kind: "v2/volumes", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/volumes/{id}", Verbs: []string{"DELETE"}},
		{System: outputs.DigitalOcean, Kind: "v2/volumes/{id}/actions", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/volumes/{id}/snapshots", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/snapshots/{id}", Verbs: []string{"DELETE"}},
		{System: outputs.DigitalOcean, Kind: "v2/tags", Verbs: []string{"POST"}},
		{System: outputs.DigitalOcean, Kind: "v2/tags/{name}/resources", Verbs: []string{"POST"}},
	}
}
