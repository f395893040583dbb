// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

func (a *account) create(name string, required int64, source *spec.VolumeContentSource) (*spec.Volume, error) {
	answer, err := a.CreateVolume(a.t.Context(), &spec.CreateVolumeRequest{
		Name: name, CapacityRange: &spec.CapacityRange{RequiredBytes: required}, VolumeCapabilities: []*spec.VolumeCapability{writer()}, VolumeContentSource: source,
	})
	return answer.GetVolume(), err
}

func ofSnapshot(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Snapshot{Snapshot: &spec.VolumeContentSource_SnapshotSource{SnapshotId: id}}}
}

func ofVolume(id string) *spec.VolumeContentSource {
	return &spec.VolumeContentSource{Type: &spec.VolumeContentSource_Volume{Volume: &spec.VolumeContentSource_VolumeSource{VolumeId: id}}}
}

// TestARetryFindsTheSizeThatWasRoundedUp: 1.5 GiB is answered as 2, and asking for 1.5 again is not a conflict.
func TestARetryFindsTheSizeThatWasRoundedUp(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		first, err := a.create("pvc-1", 3<<29, nil)
		if err != nil || first.GetCapacityBytes() != 2<<30 {
			t.Fatalf("%v, %v", first, err)
		}
		again, err := a.controller().CreateVolume(t.Context(), &spec.CreateVolumeRequest{
			Name: "pvc-1", CapacityRange: &spec.CapacityRange{RequiredBytes: 3 << 29}, VolumeCapabilities: []*spec.VolumeCapability{writer()},
		})
		if err != nil || again.GetVolume().GetVolumeId() != first.GetVolumeId() || again.GetVolume().GetCapacityBytes() != 2<<30 {
			t.Errorf("%v, %v", again, err)
		}
		_, err = a.create("pvc-1", 3<<30, nil)
		want(t, err, codes.AlreadyExists, "has 2 GiB")
	})
}

// TestAnExistingVolumeIsAnsweredWhole: with topology and content source, as a new one is.
func TestAnExistingVolumeIsAnsweredWhole(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		source := ofVolume(a.volume("pvc-0", 1))
		for range 2 {
			v, err := a.create("pvc-1", 1<<30, source)
			if err != nil || v.GetContentSource().GetVolume().GetVolumeId() != source.GetVolume().GetVolumeId() ||
				len(v.GetAccessibleTopology()) != 1 || v.GetAccessibleTopology()[0].GetSegments()[RegionKey] != "nyc1" {
				t.Errorf("%v, %v", v, err)
			}
		}
	})
}

// TestActionsOfADropletAreInALine: seven attachments to one droplet at once, none of which DigitalOcean refuses as one too many at a time.
func TestActionsOfADropletAreInALine(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(3*time.Second))
		node := a.droplet()
		var all sync.WaitGroup
		for i := range 7 {
			v := a.volume(fmt.Sprintf("pvc-%d", i), 1)
			all.Go(func() {
				if err := a.attach(v, node); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		for route, stats := range a.sim.Stats().Routes {
			for answer, count := range stats.Statuses {
				if answer >= 400 {
					t.Errorf("%s: %d answers are %d", route, count, answer)
				}
			}
		}
	})
}

// TestASimilarNameIsNotTheName: DigitalOcean's filter of names is not exact.
func TestASimilarNameIsNotTheName(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		other := a.volume("pvc-10", 9)
		v, err := a.create("pvc-1", 1<<30, nil)
		if err != nil || v.GetVolumeId() == other {
			t.Errorf("%v, %v", v, err)
		}
	})
}

// TestModesThatDigitalOceanLacksAreRefusedEverywhere: at creation, validation and attachment.
func TestModesThatDigitalOceanLacksAreRefusedEverywhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		volume, node := a.volume("pvc-1", 1), a.droplet()
		for _, mode := range []spec.VolumeCapability_AccessMode_Mode{
			spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
			spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER,
		} {
			shared := writer()
			shared.AccessMode.Mode = mode
			_, err := a.CreateVolume(t.Context(), &spec.CreateVolumeRequest{Name: "pvc-2", VolumeCapabilities: []*spec.VolumeCapability{shared}})
			want(t, err, codes.InvalidArgument, "ReadWriteOnce")
			_, err = a.ControllerPublishVolume(t.Context(), &spec.ControllerPublishVolumeRequest{VolumeId: volume, NodeId: node, VolumeCapability: shared})
			want(t, err, codes.InvalidArgument, "ReadWriteOnce")
			got, err := a.ValidateVolumeCapabilities(t.Context(), &spec.ValidateVolumeCapabilitiesRequest{
				VolumeId: volume, VolumeCapabilities: []*spec.VolumeCapability{shared},
			})
			if err != nil || got.GetConfirmed() != nil || !strings.Contains(got.GetMessage(), "ReadWriteOnce") {
				t.Errorf("validated: %v, %v", got, err)
			}
		}
	})
}

// TestADetachmentWithoutANode takes the volume from whichever droplet has it.
func TestADetachmentWithoutANode(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		volume, node := a.volume("pvc-1", 1), a.droplet()
		if err := a.attach(volume, node); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ControllerUnpublishVolume(t.Context(), &spec.ControllerUnpublishVolumeRequest{VolumeId: volume}); err != nil {
			t.Error(err)
		}
		if v := a.sim.Account("").Volumes()[0]; len(v.DropletIDs) != 0 {
			t.Errorf("it is attached to %v", v.DropletIDs)
		}
	})
}

// TestADropletThatIsOffIsReported as what is wrong with its volumes, with what makes Kubernetes detach them.
func TestADropletThatIsOffIsReported(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		volume, node := a.volume("pvc-1", 1), a.droplet()
		if err := a.attach(volume, node); err != nil {
			t.Fatal(err)
		}
		wrong := func() *spec.VolumeHealth_VolumeHealthEntry {
			t.Helper()
			one, err := a.ControllerGetVolumeHealth(t.Context(), &spec.ControllerGetVolumeHealthRequest{VolumeId: volume})
			if err != nil {
				t.Fatal(err)
			}
			all, err := a.ControllerListVolumeHealth(t.Context(), &spec.ControllerListVolumeHealthRequest{})
			if err != nil {
				t.Fatal(err)
			}
			want := []*spec.VolumeHealth{one.GetVolumeHealth()}
			if len(one.GetVolumeHealth().GetHealthStatuses()) == 0 {
				want = nil
			}
			if !slices.EqualFunc(all.GetEntries(), want, func(a, b *spec.VolumeHealth) bool { return proto.Equal(a, b) }) {
				t.Errorf("the list has %v, the volume alone %v", all, one)
			}
			statuses := one.GetVolumeHealth().GetHealthStatuses()
			if len(statuses) == 0 {
				return nil
			}
			return statuses[0]
		}
		if c := wrong(); c != nil {
			t.Errorf("while it runs: %v", c)
		}
		if err := a.sim.Account("").SetDropletStatus(node, "off"); err != nil {
			t.Fatal(err)
		}
		c := wrong()
		if c.GetStatus() != spec.VolumeHealthErrorType_INACCESSIBLE || c.GetReason() != "DropletOff" ||
			!strings.Contains(c.GetMessage(), "node.kubernetes.io/out-of-service") {
			t.Errorf("while it is off: %v", c)
		}
		want(t, a.attach(volume, a.droplet()), codes.FailedPrecondition, "node.kubernetes.io/out-of-service")
	})
}

// TestASnapshotOfAnotherVolumeIsNotAnswered where its name is taken.
func TestASnapshotOfAnotherVolumeIsNotAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		for i, taken := range []bool{false, true} {
			_, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: "one", SourceVolumeId: a.volume(fmt.Sprintf("pvc-%d", i), 1)})
			if taken {
				want(t, err, codes.AlreadyExists, "it is of volume")
			} else if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestSnapshotsAreFilteredBeforeTheyArePaged: no page is empty while more follow.
func TestSnapshotsAreFilteredBeforeTheyArePaged(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, digitalocean.VolumeOptions{SnapshotEvery: -1})
		volumes := []string{a.volume("pvc-0", 1), a.volume("pvc-1", 1)}
		for i := range 20 {
			_, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{Name: fmt.Sprintf("s-%d", i), SourceVolumeId: volumes[i/10]})
			if err != nil {
				t.Fatal(err)
			}
		}
		token, seen := "", map[string]bool{}
		for page := 0; page == 0 || token != ""; page++ {
			got, err := a.ListSnapshots(t.Context(), &spec.ListSnapshotsRequest{SourceVolumeId: volumes[1], MaxEntries: 3, StartingToken: token})
			if err != nil || len(got.GetEntries()) == 0 {
				t.Fatalf("page %d has %d entries: %v", page, len(got.GetEntries()), err)
			}
			for _, e := range got.GetEntries() {
				seen[e.GetSnapshot().GetSnapshotId()] = e.GetSnapshot().GetSourceVolumeId() == volumes[1]
			}
			token = got.GetNextToken()
		}
		if len(seen) != 10 || slices.Contains(slices.Collect(maps.Values(seen)), false) {
			t.Errorf("%d snapshots: %v", len(seen), seen)
		}
	})
}

// TestACloneIsMadeByWayOfASnapshot, of which nothing is left, wherever the process died.
func TestACloneIsMadeByWayOfASnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, cut := range []string{"POST /v2/volumes", "POST /v2/volumes/{volume_id}/snapshots", "DELETE /v2/snapshots/{snapshot_id}", ""} {
			a := newAccount(t, digitalocean.VolumeOptions{SnapshotEvery: -1})
			source := ofVolume(a.volume("pvc-0", 1))
			if cut != "" {
				if err := a.sim.Inject(fault.Rule{Route: cut, Kind: fault.CutAfterApply, Nth: 1}); err != nil {
					t.Fatal(err)
				}
			}
			v, err := a.create("pvc-1", 2<<30, source)
			if err != nil { // as csi-provisioner does
				v, err = a.create("pvc-1", 2<<30, source)
			}
			if err != nil || v.GetCapacityBytes() != 2<<30 || len(a.sim.Account("").Snapshots()) != 0 || len(a.sim.Account("").Volumes()) != 2 {
				t.Errorf("cut at %q: %v, %v; %d snapshots are left", cut, v, err, len(a.sim.Account("").Snapshots()))
			}
		}
	})
}

// TestARefusedCloneLeavesNoSnapshot: nobody may ever ask for the clone again.
func TestARefusedCloneLeavesNoSnapshot(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, digitalocean.VolumeOptions{SnapshotEvery: -1})
		source := ofVolume(a.volume("pvc-0", 1))
		refusal := fault.Rule{
			Route: "POST /v2/volumes", Kind: fault.Error, Status: http.StatusUnprocessableEntity, Nth: 1,
		}
		if err := a.sim.Inject(refusal); err != nil {
			t.Fatal(err)
		}
		_, err := a.create("pvc-1", 2<<30, source)
		if err == nil || len(a.sim.Account("").Snapshots()) != 0 {
			t.Errorf("%v; %d snapshots are left", err, len(a.sim.Account("").Snapshots()))
		}
		if v, err := a.create("pvc-1", 2<<30, source); err != nil || v.GetCapacityBytes() != 2<<30 || len(a.sim.Account("").Snapshots()) != 0 {
			t.Errorf("then: %v, %v; %d snapshots are left", v, err, len(a.sim.Account("").Snapshots()))
		}
	})
}

// TestTagsCanBeModified, and nothing else.
func TestTagsCanBeModified(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		volume := a.volume("pvc-1", 1)
		modify := func(parameters map[string]string) error {
			_, err := a.ControllerModifyVolume(t.Context(), &spec.ControllerModifyVolumeRequest{VolumeId: volume, MutableParameters: parameters})
			return err
		}
		if err := modify(map[string]string{"tags": "team:a, gold"}); err != nil {
			t.Fatal(err)
		}
		if tags := a.sim.Account("").Volumes()[0].Tags; !slices.Equal(tags, []string{"gold", "team:a"}) {
			t.Errorf("tags %v", tags)
		}
		want(t, modify(map[string]string{"iops": "9000"}), codes.InvalidArgument, "can change only")
	})
}

// TestWhatNobodyHasIsCounted: volumes that are attached to nothing, or to a droplet that is off or gone, show in the metrics. Those of
// people do not count.
func TestWhatNobodyHasIsCounted(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		registry := prometheus.NewRegistry()
		a.o.Metrics = NewMetrics(registry)
		nodes := []string{a.droplet(), a.droplet(), ""}
		for i, node := range nodes {
			v, err := a.create(fmt.Sprintf("pvc-%d", i), 1<<30, nil)
			if err != nil {
				t.Fatal(err)
			}
			if node != "" {
				err = a.attach(v.GetVolumeId(), node)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		a.volume("of-a-person", 1)
		if err := a.sim.Account("").SetDropletStatus(nodes[0], "off"); err != nil {
			t.Fatal(err)
		}
		if _, err := a.ListVolumes(t.Context(), &spec.ListVolumesRequest{}); err != nil {
			t.Fatal(err)
		}
		for state, want := range map[string]float64{free: 1, offState: 1, attachedState: 1, lostState: 0} {
			if got := testutil.ToFloat64(a.o.Metrics.volumes.WithLabelValues(state)); got != want {
				t.Errorf("%s: %v, want %v", state, got, want)
			}
		}
		// A page says nothing of the volumes on others.
		if err := a.sim.Account("").SetDropletStatus(nodes[0], "active"); err != nil {
			t.Fatal(err)
		}
		for _, page := range []struct {
			most int32
			off  float64
		}{{1, 1}, {100, 0}} {
			if _, err := a.ListVolumes(t.Context(), &spec.ListVolumesRequest{MaxEntries: page.most}); err != nil {
				t.Fatal(err)
			}
			if got := testutil.ToFloat64(a.o.Metrics.volumes.WithLabelValues(offState)); got != page.off {
				t.Errorf("after a page of %d: %v off, want %v", page.most, got, page.off)
			}
		}
		gone := conditions{gone: map[int]bool{7: true}}
		if count := gone.states([]volume.Observed{{Description: description, Droplets: []int{7}}}); count[lostState] != 1 {
			t.Errorf("of a droplet that is gone: %v", count)
		}
	})
}

// TestTwoControllersAreSafe: with one droplet each, at the same time, one of them has the volume and the other is told so; both agree on a creation.
func TestTwoControllersAreSafe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(5*time.Second))
		volume, nodes := a.volume("pvc-1", 1), []string{a.droplet(), a.droplet()}
		var both sync.WaitGroup
		errs := make([]error, 2)
		ids := make([]string, 2)
		for i, c := range []*Controller{a.controller(), a.controller()} {
			both.Go(func() {
				_, errs[i] = c.ControllerPublishVolume(t.Context(), attachment(volume, nodes[i], "first"))
				v, err := c.CreateVolume(t.Context(), &spec.CreateVolumeRequest{Name: "pvc-2", VolumeCapabilities: []*spec.VolumeCapability{writer()}})
				if err != nil {
					t.Error(err)
				}
				ids[i] = v.GetVolume().GetVolumeId()
			})
		}
		both.Wait()
		if (errs[0] == nil) == (errs[1] == nil) || ids[0] != ids[1] {
			t.Errorf("%v and %v; %v", errs[0], errs[1], ids)
		}
	})
}

// TestRequestsThatSucceedAreNotLogged at the default verbosity: kubelet asks for statistics all the time. What fails is, once.
func TestRequestsThatSucceedAreNotLogged(t *testing.T) {
	t.Parallel()
	var lines []string
	intercept := (*Metrics)(nil).Intercept(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	for _, err := range []error{nil, invalid("the request has no volume ID")} {
		answer := func(context.Context, any) (any, error) { return nil, err }
		_, _ = intercept(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/csi.v1.Node/NodeGetVolumeStats"}, answer)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "no volume ID") {
		t.Errorf("%q", lines)
	}
}
