// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package agreement_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// withVolumes is healthy machines, of which n1 has the volumes a and b of Kubernetes.
func withVolumes() agreement.World {
	w := healthy()
	w.Cloud.Volumes = agreement.Volumes{
		IDs: map[string]string{"pvc-a": "a", "pvc-b": "b", "pvc-c": "c"},
		Nodes: []agreement.NodeVolumes{
			{Node: "n1", Limit: 15, Cloud: []string{"b", "a"}, Attachments: []volumes.Attachment{{Volume: "pvc-a", Attached: true}, {Volume: "pvc-b", Attached: true}}}, {Node: "n2", Cloud: []string{}},
		},
	}
	return w
}

// countAgain is what to do where the driver has counted other volumes than there are.
const countAgain = "detach those that nobody needs, then delete the volume driver's node plugin Pod there: " +
	"when it starts it counts again those that are not named pvc-..."

// A machine's volumes attached by DigitalOcean are counted beside VolumeAttachments and the CSINode.
func TestAttachments(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(v *agreement.Volumes, n *agreement.NodeVolumes)
		want   string
		count  string
	}{
		"all well":       {func(*agreement.Volumes, *agreement.NodeVolumes) {}, "agree", "2 of 15"},
		"without driver": {func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Limit = 0 }, "agree", "2"},
		"Kubernetes lacks one": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud = append(n.Cloud, "c") },
			"disagree\ndisagree: DigitalOcean has volumes attached to it that Kubernetes has not (no VolumeAttachment): pvc-c > kubectl mooring volumes", "3 of 15",
		},
		"DigitalOcean lacks one": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud = n.Cloud[:1] },
			"disagree\ndisagree: Kubernetes calls volumes attached to it that DigitalOcean has not attached: pvc-a > kubectl mooring volumes", "1 of 15",
		},
		"being attached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments[0].Attached = n.Cloud[:1], false
			}, "settling\nsettling: volumes are being attached or detached: pvc-a > the driver attaches and detaches them", "1 of 15",
		},
		"cannot be attached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments[0].Attached, n.Attachments[0].Problem = n.Cloud[:1], false, "it cannot be attached: 422"
			}, "disagree\ndisagree: volumes that the driver could not attach or detach: pvc-a: it cannot be attached: 422 > kubectl mooring volumes", "1 of 15",
		},
		"cannot be detached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Attachments[0].Changing, n.Attachments[0].Problem = true, "it cannot be detached: 500"
			}, "disagree\ndisagree: volumes that the driver could not attach or detach: pvc-a: it cannot be detached: 500 > kubectl mooring volumes", "2 of 15",
		},
		"being detached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments[0].Changing = n.Cloud[:1], true
			}, "settling\nsettling: volumes are being attached or detached: pvc-a > the driver attaches and detaches them", "1 of 15",
		},
		"by hand": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud = append(n.Cloud, "x", "y") },
			"disagree\ndisagree: 2 volumes that no PersistentVolume has, so that there is room for 13 of Kubernetes', and its CSINode says 15 > " + countAgain, "4 of 15",
		},
		"room for none": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments = []string{"1", "2", "3", "4", "5", "6", "7"}, nil
			},
			"disagree\ndisagree: 7 volumes that no PersistentVolume has, so that there is room for 8 of Kubernetes', and its CSINode says 15 > " + countAgain, "7 of 15",
		},
		"room for none, and the driver says the least that it can": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments, n.Limit = strings.Fields("1 2 3 4 5 6 7 8 9 10 11 12 13 14 15"), nil, 1
			}, "agree", "15 of 1",
		},
		"by hand, and counted":  {func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud, n.Limit = append(n.Cloud, "x"), 6 }, "agree", "3 of 6"},
		"a limit of the user's": {func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud, n.Limit = append(n.Cloud, "x", "y"), 7 }, "agree", "4 of 7"},
		"a PersistentVolume that has just come is not by hand": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments = append(n.Cloud, "new"), append(n.Attachments, volumes.Attachment{Volume: "pvc-new", Changing: true})
			}, "settling\nsettling: volumes are being attached or detached: pvc-new > the driver attaches and detaches them", "3 of 15",
		},
		"not queried": {func(v *agreement.Volumes, n *agreement.NodeVolumes) { v.NotAsked, n.Cloud = "no driver", nil }, "agree", ""},
		"forbidden": {
			func(v *agreement.Volumes, _ *agreement.NodeVolumes) { v.Problem = "forbidden" },
			"unknown\nunknown: it has volumes, and what Kubernetes has attached could not be read: forbidden", "",
		},
		"a token without the scope": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) { n.Cloud, n.Unseen = nil, true },
			"unknown\nunknown: it has volumes, and the token may not see what DigitalOcean has attached (scope block_storage:read)", "",
		},
		"still being attached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Cloud, n.Attachments[0].Attached, n.Attachments[0].Since = n.Cloud[:1], false, now().Add(-11*time.Minute)
			}, "disagree\ndisagree: volumes that the driver could not attach or detach: pvc-a: it is still not attached @11m0s > kubectl mooring volumes", "1 of 15",
		},
		"still being detached": {
			func(_ *agreement.Volumes, n *agreement.NodeVolumes) {
				n.Attachments[1].Deleting, n.Attachments[1].Since = true, now().Add(-time.Hour)
			}, "disagree\ndisagree: volumes that the driver could not attach or detach: pvc-b: it is still not detached @1h0m0s > kubectl mooring volumes", "2 of 15",
		},
		"two PersistentVolumes of one volume": {
			func(v *agreement.Volumes, _ *agreement.NodeVolumes) { v.IDs["pvc-again"] = "a" }, "agree", "2 of 15",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := withVolumes()
			test.change(&w.Cloud.Volumes, &w.Cloud.Volumes.Nodes[0])
			if got := found(w, "n1"); got != test.want {
				t.Errorf("%s\nwant\n%s", got, test.want)
			}
			for _, r := range agreement.Rows(w) {
				if r.Machine == "n1" && r.Volumes != test.count {
					t.Errorf("%q, want %q", r.Volumes, test.count)
				}
				if r.Machine == "n2" && r.Verdict != finding.Agree {
					t.Errorf("the other machine: %s", found(w, "n2"))
				}
			}
		})
	}
}

// volumeOf is the PersistentVolume of a volume, or a name that no PersistentVolume has.
func volumeOf(id string) string {
	if strings.Contains("abc", id) {
		return "pvc-" + id
	}
	return id
}

// Whatever is attached: the order changes nothing, and sides that have the same agree.
func TestAnyAttachments(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c", "x", "y"}), 0, 5, rapid.ID[string])
		w := withVolumes()
		n := &w.Cloud.Volumes.Nodes[0]
		n.Cloud, n.Attachments, n.Limit = ids.Draw(t, "cloud"), nil, rapid.IntRange(0, 9).Draw(t, "limit")
		for _, id := range ids.Draw(t, "kubernetes") {
			n.Attachments = append(n.Attachments, volumes.Attachment{Volume: volumeOf(id), Attached: rapid.Bool().Draw(t, "attached"), Changing: rapid.Bool().Draw(t, "changing")})
		}
		rows := agreement.Rows(w)
		reversed := w
		reversed.Cloud.Volumes.Nodes = []agreement.NodeVolumes{w.Cloud.Volumes.Nodes[1], {Node: "n1", Limit: n.Limit}}
		for i := range n.Cloud {
			reversed.Cloud.Volumes.Nodes[1].Cloud = append(reversed.Cloud.Volumes.Nodes[1].Cloud, n.Cloud[len(n.Cloud)-1-i])
		}
		for i := range n.Attachments {
			reversed.Cloud.Volumes.Nodes[1].Attachments = append(reversed.Cloud.Volumes.Nodes[1].Attachments, n.Attachments[len(n.Attachments)-1-i])
		}
		if diff := cmp.Diff(rows, agreement.Rows(reversed)); diff != "" {
			t.Fatalf("the order matters: %s", diff)
		}
		n.Attachments = nil
		for _, id := range n.Cloud {
			n.Attachments = append(n.Attachments, volumes.Attachment{Volume: volumeOf(id), Attached: true})
		}
		for _, r := range agreement.Rows(w) {
			if r.Verdict != finding.Agree {
				t.Fatalf("equal sides differ: %s", found(w, r.Machine))
			}
		}
	})
}
