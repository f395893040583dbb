// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"net/http"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/blockdevice"
	volumes "github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

// right attaches a volume, and returns what the publish context says of formatting.
func (a *account) right(c *Controller, id, node string, format volumes.Format) volumes.Right {
	a.t.Helper()
	answer, err := c.ControllerPublishVolume(a.t.Context(), attachment(id, node, format))
	if err != nil {
		a.t.Fatal(err)
	}
	return volumes.Right(answer.GetPublishContext()[FormatKey])
}

func (a *account) byHand(id string, droplet string) {
	a.t.Helper()
	number, _ := strconv.Atoi(droplet)
	if err := a.sim.Account("").AttachVolume(id, number); err != nil {
		a.t.Fatal(err)
	}
}

// TestWhoMayFormat: who had a volume before, by whatever way and however far lists lag, is a droplet that may have
// written to it.
func TestWhoMayFormat(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		for _, lag := range assumed.ListLags() {
			for _, newer := range assumed.NewerActions() {
				for name, story := range map[string]struct {
					before func(a *account, id string) // the attachment that is asked about
					format volumes.Format
					want   volumes.Right
				}{
					"nobody": {func(*account, string) {}, volumes.FormatFirst, volumes.RightFirst},
					"nobody, after an hour": {func(*account, string) {
						<-time.After(time.Hour)
					}, volumes.FormatFirst, volumes.RightFirst},
					"nobody, of unknown make": {func(*account, string) {}, volumes.FormatNever, volumes.RightOrigin},
					"this driver": {func(a *account, id string) {
						node := a.droplet()
						a.right(a.Controller, id, node, volumes.FormatFirst)
						_ = a.detach(a.t.Context(), id, node)
					}, volumes.FormatFirst, volumes.RightSpent},
					"another replica": {func(a *account, id string) {
						c, node := a.controller(), a.droplet()
						a.right(c, id, node, volumes.FormatFirst)
						request := &spec.ControllerUnpublishVolumeRequest{VolumeId: id, NodeId: node}
						_, _ = c.ControllerUnpublishVolume(a.t.Context(), request)
					}, volumes.FormatFirst, volumes.RightSpent},
					"a person": {func(a *account, id string) {
						a.byHand(id, a.droplet())
						a.byHand(id, "0")
					}, volumes.FormatFirst, volumes.RightSpent},
					"a droplet that was destroyed": {func(a *account, id string) {
						node := a.droplet()
						a.byHand(id, node)
						if err := a.sim.Account("").DeleteDroplet(node); err != nil {
							a.t.Fatal(err)
						}
					}, volumes.FormatFirst, volumes.RightSpent},
					"somebody, and a person allows it": {func(a *account, id string) {
						a.byHand(id, a.droplet())
						a.byHand(id, "0")
					}, volumes.FormatBlank, volumes.RightBlank},
					"an attachment that failed": {func(a *account, id string) {
						a.sim.Account("").FailVolumeActions(1)
						if err := a.attach(id, a.droplet()); err == nil {
							a.t.Error("the action did not fail")
						}
					}, volumes.FormatFirst, volumes.RightFirst},
				} {
					a := newAccount(t, taking(5*time.Second))
					a.sim.SetConsistency(digitalocean.Consistency{List: lag})
					v, err := a.create("pvc-1", 1<<30, nil)
					if err != nil || v.GetVolumeContext()[FormatKey] != string(volumes.FormatFirst) {
						t.Fatalf("created %v, %v", v, err)
					}
					id := v.GetVolumeId()
					story.before(a, id)
					a.sim.Account("").AddActions(newer)
					node := a.droplet()
					for _, c := range []*Controller{a.Controller, a.Controller, a.controller()} { // the second and third find it there
						if got := a.right(c, id, node, story.format); got != story.want {
							t.Errorf("lists lag %s, %d newer actions, before it was at %s: the right is %q, want %q",
								lag, newer, name, got, story.want)
						}
					}
				}
			}
		}
	})
}

// TestManyAtOnceMayFormat: where one list of the account proves the past of many, those that were attached before are
// told apart, however many newer actions other resources have.
func TestManyAtOnceMayFormat(t *testing.T) {
	t.Parallel()
	for _, newer := range []int{0, 250, 1000} {
		t.Run(strconv.Itoa(newer)+" newer actions", func(t *testing.T) {
			inBubble(t, func(t *testing.T) { manyMayFormat(t, newer) })
		})
	}
}

func manyMayFormat(t *testing.T, newer int) {
	t.Helper()
	a := newAccount(t, taking(5*time.Second))
	const many = 20
	var ids, nodes []string
	for i := range many {
		v, err := a.create("pvc-"+strconv.Itoa(i), 1<<30, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids, nodes = append(ids, v.GetVolumeId()), append(nodes, a.droplet())
		if i%4 == 0 {
			a.byHand(ids[i], nodes[i])
			a.byHand(ids[i], "0")
		}
	}
	a.sim.Account("").AddActions(newer)
	rights, wait := make([]volumes.Right, many), make(chan struct{})
	for i := range many {
		go func() {
			rights[i] = a.right(a.Controller, ids[i], nodes[i], volumes.FormatFirst)
			wait <- struct{}{}
		}()
	}
	for range many {
		<-wait
	}
	for i, got := range rights {
		if want := map[bool]volumes.Right{true: volumes.RightSpent, false: volumes.RightFirst}[i%4 == 0]; got != want {
			t.Errorf("volume %d: the right is %q, want %q", i, got, want)
		}
	}
}

// TestActionsThatAreNotShown give no right, and do not keep a volume from its node.
func TestActionsThatAreNotShown(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		if err := a.sim.Inject(fault.Rule{
			Route: "GET /v2/volumes/{volume_id}/actions", Kind: fault.Error, Status: http.StatusForbidden, Nth: 1, Times: -1,
		}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if got := a.right(a.Controller, a.volume("pvc-1", 1), a.droplet(), volumes.FormatFirst); got != volumes.RightUnknown {
			t.Errorf("the right is %q", got)
		}
		if took := time.Since(began); took > longestLag+10*time.Second {
			t.Errorf("it took %s", took)
		}
	})
}

// TestTheRightCostsNoCallTwice: what was attached before is not asked about again, and a raw block volume never.
func TestTheRightCostsNoCallTwice(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(0))
		id, nodes := a.volume("pvc-1", 1), []string{a.droplet(), a.droplet()}
		lists := func() int { return a.sim.Stats().Routes["GET /v2/volumes/{volume_id}/actions"].Count }
		for i := range 6 {
			a.right(a.Controller, id, nodes[i%2], volumes.FormatFirst)
			if err := a.detach(t.Context(), id, nodes[i%2]); err != nil {
				t.Fatal(err)
			}
		}
		if n := lists(); n != 1 {
			t.Errorf("%d lists of the volume's actions for six attachments", n)
		}
		block := attachment(a.volume("pvc-2", 1), nodes[0], volumes.FormatFirst)
		block.VolumeCapability.AccessType = &spec.VolumeCapability_Block{Block: &spec.VolumeCapability_BlockVolume{}}
		if _, err := a.ControllerPublishVolume(t.Context(), block); err != nil || lists() != 1 {
			t.Errorf("%d lists with a raw block volume, %v", lists(), err)
		}
	})
}

// TestWhatACreationSaysOfFormatting: what is copied has no right, and a class that says something else is refused.
func TestWhatACreationSaysOfFormatting(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a := newAccount(t, taking(time.Second))
		source, err := a.create("pvc-source", 1<<30, nil)
		if err != nil {
			t.Fatal(err)
		}
		snapshot, err := a.CreateSnapshot(t.Context(), &spec.CreateSnapshotRequest{
			Name: "one", SourceVolumeId: source.GetVolumeId(),
		})
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(assumed.SnapshotInterval)
		for i, row := range []struct {
			of        *spec.VolumeContentSource
			parameter string
			want      string
			code      codes.Code
		}{
			{nil, "", "first", codes.OK},
			{nil, "first", "first", codes.OK},
			{nil, "blank", "blank", codes.OK},
			{nil, "always", "", codes.InvalidArgument},
			{ofSnapshot(snapshot.GetSnapshot().GetSnapshotId()), "", "", codes.OK},
			{ofSnapshot(snapshot.GetSnapshot().GetSnapshotId()), "blank", "", codes.OK},
			{ofVolume(source.GetVolumeId()), "blank", "", codes.OK},
		} {
			r := &spec.CreateVolumeRequest{
				Name: "pvc-" + strconv.Itoa(i), CapacityRange: &spec.CapacityRange{RequiredBytes: 1 << 30},
				VolumeCapabilities: []*spec.VolumeCapability{writer()}, VolumeContentSource: row.of,
			}
			if row.parameter != "" {
				r.Parameters = map[string]string{FormatKey: row.parameter}
			}
			answer, err := a.CreateVolume(t.Context(), r)
			if row.code != codes.OK {
				want(t, err, row.code, `the StorageClass has `+FormatKey+`: "always": it can be "first"`)
				continue
			}
			if got := answer.GetVolume().GetVolumeContext()[FormatKey]; err != nil || got != row.want {
				t.Errorf("row %d: %q, want %q, %v", i, got, row.want, err)
			}
		}
		r := attachment(source.GetVolumeId(), a.droplet(), "ever")
		_, err = a.ControllerPublishVolume(t.Context(), r)
		want(t, err, codes.InvalidArgument, `the PersistentVolume has `+FormatKey+`: "ever"`)
	})
}

// TestWhatTheNodeFormats by what is on the disk, what the controller says, and how far this node has come.
func TestWhatTheNodeFormats(t *testing.T) {
	t.Parallel()
	blank := blockdevice.Content{Kind: blockdevice.Blank}
	left := blockdevice.Content{Kind: blockdevice.Unknown, Name: "data at byte 4096"}
	whole := blockdevice.Content{Kind: blockdevice.FileSystem, Name: "ext4"}
	other := blockdevice.Content{Kind: blockdevice.Foreign, Name: "an encrypted volume (LUKS)"}
	const none, begun, done = blockdevice.NotBegun, blockdevice.Begun, blockdevice.Done
	const first, spent, origin = volumes.RightFirst, volumes.RightSpent, volumes.RightOrigin
	for name, row := range map[string]struct {
		content  blockdevice.Content
		progress blockdevice.Progress
		right    volumes.Right
		words    string // of the refusal; what is not refused has the file system afterwards
	}{
		"its first attachment":                       {blank, none, first, ""},
		"a person allows it":                         {blank, none, volumes.RightBlank, ""},
		"it was killed before it wrote":              {blank, begun, first, ""},
		"it was killed while it wrote":               {left, begun, first, ""},
		"it was killed when it was done":             {whole, begun, first, ""},
		"it has one":                                 {whole, done, first, ""},
		"it has one, and no right":                   {whole, none, spent, ""},
		"of an attachment by csi-digitalocean":       {whole, none, "", ""},
		"blank, of one by csi-digitalocean":          {blank, none, "", "before this driver could find out"},
		"blank, of unknown origin":                   {blank, none, origin, "PersistentVolume again"},
		"blank, attached before":                     {blank, none, spent, "was attached before"},
		"blank, and the actions are not shown":       {blank, none, volumes.RightUnknown, "did not show whether"},
		"blank again":                                {blank, done, first, "this node has made one"},
		"data that no mkfs left":                     {left, none, first, "neither formatted nor mounted"},
		"data after mkfs was done":                   {left, done, first, "neither formatted nor mounted"},
		"what was left, at another attachment":       {left, begun, spent, "neither formatted nor mounted"},
		"what was left, where a person allows blank": {left, begun, volumes.RightBlank, "neither formatted nor mounted"},
		"something else after mkfs had begun":        {other, begun, first, "LUKS"},
		"a right that does not exist":                {blank, none, "please", "which is none of"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newInput(t)
			i.host.content["/dev/pvc-attached"], i.host.made[i.attached] = row.content, row.progress
			_, err := i.nodes.NodeStageVolume(t.Context(), &spec.NodeStageVolumeRequest{
				VolumeId: i.attached, StagingTargetPath: filepath.Join(i.folder, "staging"), VolumeCapability: writer(),
				PublishContext: map[string]string{VolumeNameKey: "pvc-attached", FormatKey: string(row.right)},
			})
			if row.words != "" {
				code := codes.FailedPrecondition
				if row.right == "please" {
					code = codes.InvalidArgument
				}
				refused(t, err, code, row.words)
				if i.host.content["/dev/pvc-attached"] != row.content {
					t.Error("the disk was changed")
				}
				return
			}
			if err != nil || i.host.content["/dev/pvc-attached"] != whole {
				t.Errorf("the disk has %v, %v", i.host.content["/dev/pvc-attached"], err)
			}
			if row.progress == blockdevice.Begun && i.host.made[i.attached] != blockdevice.Done {
				t.Error("it is not kept that it is done, and files are in it")
			}
		})
	}
}

// TestTheFileSystemIsAWitness where the disk shows nothing of its name, and the driver made the file system.
func TestTheFileSystemIsAWitness(t *testing.T) {
	t.Parallel()
	v, other := blockdevice.Volume{ID: "1", Name: "pvc-1"}, blockdevice.Volume{ID: "2", Name: "pvc-2"}
	made := map[string]string{FormatKey: string(volumes.FormatFirst)}
	for name, row := range map[string]struct {
		nameless   bool
		kind       blockdevice.Kind
		of         blockdevice.Volume
		attributes map[string]string
		refused    bool
	}{
		"its own":                      {true, blockdevice.FileSystem, v, made, false},
		"another's":                    {true, blockdevice.FileSystem, other, made, true},
		"another's, the disk is named": {false, blockdevice.FileSystem, other, made, false},
		"of a volume made by hand":     {true, blockdevice.FileSystem, other, nil, false},
		"a blank disk":                 {true, blockdevice.Blank, other, made, false},
	} {
		d := blockdevice.Device{Path: "/dev/sda", Nameless: row.nameless}
		err := witness(d, blockdevice.Content{Kind: row.kind, Name: "ext4", UUID: row.of.UUID()}, v, row.attributes)
		if (err != nil) != row.refused {
			t.Errorf("%s: %v", name, err)
		}
		if row.refused {
			refused(t, err, codes.FailedPrecondition,
				"/dev/sda shows no name, and its file system has the UUID "+other.UUID().String())
		}
	}
}
