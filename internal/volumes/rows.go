// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Row is one volume, or a claim that has none yet. Its JSON form is a contract with programs.
type Row struct {
	// Volume is the PersistentVolume's name, or the volume's at DigitalOcean where there is none; ID is DigitalOcean's.
	Volume string `json:"volume,omitempty"`
	ID     string `json:"id,omitempty"`
	// Claim and Pods are namespace/name.
	Claim string   `json:"claim,omitempty"`
	Pods  []string `json:"pods,omitempty"`
	// Machine is the Node that the volume is attached to, or its Pod runs on; Droplet is what DigitalOcean says that it is
	// attached to, 0 for nothing.
	Machine string `json:"machine,omitempty"`
	Droplet int    `json:"droplet,omitempty"`
	GiB     int64  `json:"gib"`
	// State is what the volume does: in use, attached, idle, released, unclaimed, gone, pending.
	State    string            `json:"state"`
	Verdict  finding.State     `json:"verdict"`
	Findings []finding.Verdict `json:"findings,omitempty"`
}

// The states of volumes. They are a contract with programs.
const (
	InUse     = "in use"
	Attached  = "attached"
	Idle      = "idle"
	Released  = "released"
	Unclaimed = "unclaimed"
	Gone      = "gone"
	Pending   = "pending"
	snapshot  = "snapshot"
)

// SnapshotRow is a snapshot that one side has alone.
type SnapshotRow struct {
	Name    string          `json:"name"`
	ID      string          `json:"id"`
	Volume  string          `json:"volume,omitempty"`
	GiB     int64           `json:"gib"`
	Verdict finding.State   `json:"verdict"`
	Finding finding.Verdict `json:"finding"`
}

// Row is the snapshot as a line of the table of volumes.
func (s SnapshotRow) Row() Row {
	return Row{
		Volume: s.Name, ID: s.ID, GiB: s.GiB, State: snapshot, Verdict: s.Verdict, Findings: []finding.Verdict{s.Finding},
	}
}

// Totals are sums in GiB, which is what DigitalOcean charges for.
type Totals struct {
	// Claimed are volumes with a claim, Unclaimed those without that are, or may be, this cluster's.
	Claimed   int64 `json:"claimedGiB"`
	Unclaimed int64 `json:"unclaimedGiB"`
	// Snapshots are those of this cluster's volumes; -1 if they were not read.
	Snapshots int64 `json:"snapshotsGiB"`
	// Others is how many volumes of the account are somebody else's.
	Others int `json:"others"`
}

// Report is the whole comparison. Its JSON form is a contract with programs.
type Report struct {
	Volumes   []Row         `json:"volumes"`
	Snapshots []SnapshotRow `json:"snapshots"`
	Totals    Totals        `json:"totals"`
	// NotRead are sides that were not queried or could not be read, with why.
	NotRead []string `json:"notRead,omitempty"`
}

// NeedsAttention reports whether a person has to look.
func (r Report) NeedsAttention() bool {
	return slices.ContainsFunc(r.Volumes, func(v Row) bool { return v.Verdict.NeedsAttention() }) ||
		slices.ContainsFunc(r.Snapshots, func(s SnapshotRow) bool { return s.Verdict.NeedsAttention() }) || len(r.NotRead) > 0
}

// patience is how long something may take that Kubernetes and the driver do by themselves.
const patience = 10 * time.Minute

// index is a World, to look things up in.
type index struct {
	World

	claims  map[string]Claim
	nodes   map[string]Node
	droplet map[int]string
	cloud   map[string]volume.Observed
	// read reports whether DigitalOcean was read.
	read bool
	// visible reports whether DigitalOcean shows any of the cluster's volumes.
	visible bool
}

func indexed(w World) index {
	x := index{World: w, claims: map[string]Claim{}, nodes: map[string]Node{}, droplet: map[int]string{},
		cloud: map[string]volume.Observed{}, read: w.Cloud.Side == (finding.Side{})}
	for _, c := range w.Claims {
		x.claims[c.Name] = c
	}
	for _, n := range w.Nodes {
		x.nodes[n.Name] = n
		if n.Droplet != 0 {
			x.droplet[n.Droplet] = n.Name
		}
	}
	for _, v := range w.Cloud.Volumes {
		x.cloud[v.ID] = v
	}
	for _, v := range w.Volumes {
		if _, ok := x.cloud[v.ID]; ok {
			x.visible = true
		}
	}
	return x
}

// Compare compares all volumes.
func Compare(w World) Report {
	x := indexed(w)
	r := Report{Volumes: []Row{}, Snapshots: []SnapshotRow{}}
	known := map[string]bool{}
	for _, v := range w.Volumes {
		known[v.ID] = true
		row := x.row(v)
		r.Volumes = append(r.Volumes, row)
		if row.Claim != "" && row.State != Released {
			r.Totals.Claimed += row.GiB
		} else {
			r.Totals.Unclaimed += row.GiB
		}
	}
	r.Volumes = append(r.Volumes, x.withoutVolume()...)
	tags := x.tags()
	for _, v := range w.Cloud.Volumes {
		if known[v.ID] {
			continue
		}
		row, ours := x.unclaimed(v, tags)
		if !ours {
			r.Totals.Others++
			continue
		}
		r.Volumes = append(r.Volumes, row)
		r.Totals.Unclaimed += row.GiB
	}
	for i := range r.Volumes {
		row := &r.Volumes[i]
		row.Verdict = finding.WorstOf(row.Findings,
			map[bool]finding.State{true: finding.Agree, false: finding.OneSide}[x.read])
		slices.Sort(row.Pods)
	}
	x.snapshots(&r, known, tags)
	for _, side := range [][2]string{ // of these only DigitalOcean must have been asked
		{"DigitalOcean", cmp.Or(w.Cloud.Problem, w.Cloud.NotAsked)},
		{"snapshots at DigitalOcean", w.Cloud.SnapshotsSide.Problem},
		{"VolumeSnapshotContents", w.ContentsSide.Problem},
	} {
		if side[1] != "" {
			r.NotRead = append(r.NotRead, side[0]+": "+side[1])
		}
	}
	slices.SortFunc(r.Volumes, func(a, b Row) int {
		return cmp.Or(a.Verdict.Rank()-b.Verdict.Rank(), prose.Natural(a.Claim, b.Claim), prose.Natural(a.Volume, b.Volume),
			strings.Compare(a.ID, b.ID))
	})
	slices.SortFunc(r.Snapshots,
		func(a, b SnapshotRow) int { return cmp.Or(prose.Natural(a.Name, b.Name), strings.Compare(a.ID, b.ID)) })
	return r
}

// find adds a finding.
func (r *Row) find(verdict finding.State, next, format string, args ...any) {
	r.Findings = append(r.Findings, finding.Verdict{State: verdict, What: fmt.Sprintf(format, args...), Next: next})
}

// row is a volume that Kubernetes has.
func (x index) row(v PersistentVolume) Row {
	r := Row{Volume: v.Name, ID: v.ID, Claim: v.Claim, GiB: v.GiB, State: Idle}
	pods, attachments := x.podsOf(v), x.attachmentsOf(v)
	for _, p := range pods {
		r.Pods = append(r.Pods, p.Name)
		r.Machine = cmp.Or(r.Machine, p.Node)
	}
	for _, a := range attachments {
		r.Machine = cmp.Or(r.Machine, a.Node)
	}
	x.claimed(&r, v)
	if x.there(&r, v) {
		at := x.cloud[v.ID]
		r.Droplet, r.GiB = at.AttachedTo(), max(r.GiB, int64(at.Size))
		if name := x.droplet[r.Droplet]; r.Droplet != 0 && name != "" {
			r.Machine = name
		}
		x.attached(&r, pods, attachments)
	}
	for _, a := range attachments {
		if f := a.Judge(x.Now); f.State == finding.Disagree {
			f.What, f.Next = "node "+a.Node+": "+f.What, "kubectl mooring explain node "+a.Node
			r.Findings = append(r.Findings, f)
		}
	}
	switch {
	case r.State != Idle:
	case len(pods) > 0:
		r.State = InUse
	case r.Droplet != 0 || len(attachments) > 0:
		r.State = Attached
	}
	return r
}

// podsOf are the Pods that use a volume.
func (x index) podsOf(v PersistentVolume) []Pod {
	return slices.DeleteFunc(slices.Clone(x.Pods),
		func(p Pod) bool { return v.Claim == "" || !slices.Contains(p.Claims, v.Claim) })
}

// attachmentsOf are the VolumeAttachments of a volume.
func (x index) attachmentsOf(v PersistentVolume) []Attachment {
	return slices.DeleteFunc(slices.Clone(x.Attachments), func(a Attachment) bool { return a.Volume != v.Name })
}

// claimed says what is wrong with the claim of a volume.
func (x index) claimed(r *Row, v PersistentVolume) {
	claim, ok := x.claims[v.Claim]
	lost := v.Claim != "" && (!ok || v.ClaimUID != "" && claim.UID != v.ClaimUID)
	switch {
	case v.Deleting || v.Phase == "Released" && v.Reclaim == "Delete":
		r.State = Released
		x.going(r, v)
	case v.Phase == "Released" || v.Phase == "Failed":
		r.State = Released
		r.find(finding.Disagree,
			"kubectl delete pv "+v.Name+", and then the volume at DigitalOcean, if its data is no longer needed",
			"no claim uses it: its claim is deleted, and the PersistentVolume is kept (%s, %s)", v.Phase, v.Reclaim)
	case lost:
		r.find(finding.Disagree, "create the claim again with volumeName "+v.Name+", or delete the PersistentVolume",
			"its claim %s does not exist, or is another one", v.Claim)
	case v.Claim == "":
		r.State = Released
		r.find(finding.Disagree, "claim it by volumeName "+v.Name+", or delete it", "no claim uses it")
	}
}

// going is about a volume that the driver is to delete.
func (x index) going(r *Row, v PersistentVolume) {
	late := !v.Since.IsZero() && x.Now.Sub(v.Since) >= patience
	switch {
	case late && v.Deleting && v.Phase == "Bound":
		r.find(finding.Disagree, "delete the claim too, if its data is no longer needed: it goes with the PersistentVolume",
			"the PersistentVolume is being deleted, and waits for its claim to go")
	case late:
		r.find(finding.Disagree, "see the log of the driver's provisioner", "it has not been deleted for %s",
			prose.Span(x.Now.Sub(v.Since)))
	case v.Deleting:
		r.find(finding.Settling, "the driver deletes the volume, and then Kubernetes the PersistentVolume",
			"the PersistentVolume is being deleted")
	default:
		r.find(finding.Settling, "the driver deletes it", "its claim is deleted")
	}
}

// there reports whether DigitalOcean has a volume, and says what follows if not.
func (x index) there(r *Row, v PersistentVolume) bool {
	if !x.read {
		return false
	}
	if _, ok := x.cloud[v.ID]; ok {
		return true
	}
	answer, asked := x.Cloud.Answers[v.ID]
	switch {
	case v.Deleting:
	case !x.visible:
		what := "the cluster's one volume is not visible to this token, so its state is unknown"
		if n := len(x.Volumes); n > 1 {
			what = fmt.Sprintf("none of the cluster's %d volumes is visible to this token, so their state is unknown", n)
		}
		r.find(finding.Unknown,
			"check whether the token belongs to the cluster's account and has the scope block_storage:read", "%s", what)
	case asked && answer.Gone:
		r.State = Gone
		r.find(finding.Disagree, "restore it from a snapshot or a backup",
			"its volume is gone: DigitalOcean responds with 404 for its ID")
	case asked:
		r.find(finding.Unknown, "", "it is not in the list of volumes, and reading it by ID failed: %s", answer.Problem)
	default:
		r.find(finding.Unknown, "", "it is not in the list of volumes, and was not read by ID")
	}
	return false
}

// attached compares where a volume is attached with where its Pods are.
func (x index) attached(r *Row, pods []Pod, attachments []Attachment) {
	if r.Droplet == 0 {
		x.detached(r, pods, attachments)
		return
	}
	node, ours := x.droplet[r.Droplet]
	noted := slices.ContainsFunc(attachments, func(a Attachment) bool { return a.Node == node })
	switch {
	case !ours:
		r.find(finding.Disagree, "detach it in DigitalOcean's panel, if that droplet does not need it",
			"it is attached to droplet %d, which is not a machine of this cluster", r.Droplet)
	case !noted:
		r.find(finding.Disagree, "detach it in DigitalOcean's panel",
			"it is attached to %s, and Kubernetes does not know (no VolumeAttachment)", node)
	case len(pods) == 0:
		x.leaving(r, node, attachments)
	}
	for _, p := range pods {
		if p.Node != "" && p.Node != node {
			r.find(finding.Disagree, "kubectl mooring explain node "+cmp.Or(node, p.Node),
				"Pod %s is on %s, and the volume is attached to %s", p.Name, p.Node,
				cmp.Or(node, fmt.Sprintf("droplet %d", r.Droplet)))
		}
	}
}

// detached is about a volume that DigitalOcean calls attached to nothing.
func (x index) detached(r *Row, pods []Pod, attachments []Attachment) {
	for _, p := range pods {
		switch {
		case p.Node == "":
		case x.Now.Sub(p.Created) < patience && !p.Running:
			r.find(finding.Settling, "the driver attaches it", "Pod %s waits for it on %s", p.Name, p.Node)
		default:
			r.find(finding.Disagree, "kubectl mooring explain node "+p.Node,
				"Pod %s is on %s, and the volume is attached to nothing", p.Name, p.Node)
		}
	}
	for _, a := range attachments {
		if a.Attached && !a.Deleting && !a.Changing && len(pods) == 0 {
			r.find(finding.Disagree, "", "Kubernetes reports it as attached to %s, and DigitalOcean as not attached", a.Node)
		}
	}
}

// leaving is about a volume on a machine that has no Pod of it any more.
func (x index) leaving(r *Row, node string, attachments []Attachment) {
	a := attachments[slices.IndexFunc(attachments, func(a Attachment) bool { return a.Node == node })]
	switch {
	case a.Changing:
		r.find(finding.Settling, "its Pod starts", "it has just been attached to %s", node)
	case !x.nodes[node].Ready:
		r.find(finding.Disagree, "kubectl mooring explain node "+node,
			"it is attached to %s, which is not ready and has no Pod of it", node)
	case a.Deleting && a.Judge(x.Now).State == finding.Settling:
		r.find(finding.Settling, "the driver detaches it", "it is being detached from %s", node)
	case !a.Deleting: // else it has been for too long, which is said already
		r.find(finding.Disagree, "kube-controller-manager detaches it in a minute or two; if not, see its log",
			"it is attached to %s, which has no Pod of it", node)
	}
}

// withoutVolume are the claims that have no PersistentVolume, yet or any more.
func (x index) withoutVolume() (rows []Row) {
	for _, c := range x.Claims {
		its := func(v PersistentVolume) bool { return v.Name == c.Volume && v.Claim == c.Name }
		switch {
		case c.Volume == "":
			rows = append(rows, x.waiting(c))
		case c.Lost && !slices.ContainsFunc(x.Volumes, its):
			rows = append(rows, x.lost(c))
		}
	}
	return rows
}

// alone is the row of a claim without a PersistentVolume.
func (x index) alone(c Claim, state string) Row {
	r := Row{Volume: c.Volume, Claim: c.Name, GiB: c.GiB, State: state}
	for _, p := range x.Pods {
		if slices.Contains(p.Claims, c.Name) {
			r.Pods = append(r.Pods, p.Name)
			r.Machine = cmp.Or(r.Machine, p.Node)
		}
	}
	return r
}

// lost is a claim whose PersistentVolume is gone, or another claim's.
func (x index) lost(c Claim) Row {
	r := x.alone(c, Gone)
	if slices.ContainsFunc(x.Volumes, func(v PersistentVolume) bool { return v.Name == c.Volume }) {
		r.find(finding.Disagree, "create the claim again", "its PersistentVolume %s is another claim's", c.Volume)
		return r
	}
	next := "restore it from a snapshot or a backup"
	for _, v := range x.Cloud.Volumes { // the driver names its volumes as their PersistentVolumes
		if v.Name == c.Volume {
			next = "DigitalOcean still has volume " + v.ID +
				" of that name: create its PersistentVolume again, and then the claim"
		}
	}
	r.find(finding.Disagree, next, "its PersistentVolume %s is gone", c.Volume)
	return r
}

// waiting is a claim that has no volume yet.
func (x index) waiting(c Claim) Row {
	r := x.alone(c, Pending)
	switch {
	case len(r.Pods) == 0 && c.WaitsForPod:
		r.find(finding.Settling, "the driver makes the volume for the first Pod (class with WaitForFirstConsumer)",
			"it has no volume, and no Pod uses it")
	case x.Now.Sub(c.Created) < patience:
		r.find(finding.Settling, "the driver makes the volume", "it has no volume yet")
	default:
		namespace, name, _ := strings.Cut(c.Name, "/")
		r.find(finding.Disagree, "kubectl -n "+namespace+" describe pvc "+name, "it has had no volume for %s",
			prose.Span(x.Now.Sub(c.Created)))
	}
	return r
}

// tags are those of clusters that volumes of this one carry.
func (x index) tags() map[string]bool {
	tags := map[string]bool{}
	if x.Tag != "" {
		tags[x.Tag] = true
	}
	for _, v := range x.Volumes {
		for _, tag := range x.cloud[v.ID].Tags {
			if strings.HasPrefix(tag, "k8s:") {
				tags[tag] = true
			}
		}
	}
	return tags
}

// unclaimed is a volume that Kubernetes does not have, and whether it is, or may be, this cluster's.
func (x index) unclaimed(v volume.Observed, tags map[string]bool) (r Row, ours bool) {
	r = Row{
		Volume: v.Name, ID: v.ID, Droplet: v.AttachedTo(), GiB: int64(v.Size), State: Unclaimed,
		Machine: x.droplet[v.AttachedTo()],
	}
	const next = "delete it in DigitalOcean's panel, if its data is no longer needed"
	cluster, another := false, false
	for _, tag := range v.Tags {
		cluster = cluster || tags[tag]
		another = another || strings.HasPrefix(tag, "k8s:") && !tags[tag]
	}
	switch made := v.Description == Description && strings.HasPrefix(v.Name, "pvc-"); {
	case r.Machine != "":
		r.find(finding.Disagree, next, "it is attached to %s, and no PersistentVolume has it", r.Machine)
	case x.Now.Sub(v.Created) < patience && made && (cluster || !another):
		r.find(finding.Settling, "the driver records it", "it has just been made, and no PersistentVolume has it yet")
	case cluster:
		r.find(finding.Disagree, next, "no claim uses it: it has the tag of this cluster, and no PersistentVolume has it")
	case another || !made || r.Droplet != 0:
		return r, false
	default:
		r.find(finding.Unknown, next+" in any cluster of the account",
			"no claim in this cluster uses it; it has no cluster's tag, so that it may be another cluster's")
	}
	return r, true
}

// snapshots compares snapshots of this cluster's volumes.
func (x index) snapshots(r *Report, known, tags map[string]bool) {
	if !x.read || x.Cloud.SnapshotsSide != (finding.Side{}) {
		r.Totals.Snapshots = -1
		return
	}
	owned := map[string]bool{}
	for _, c := range x.Contents {
		owned[c.Handle] = c.Handle != ""
	}
	for _, s := range x.Cloud.Snapshots {
		ours := known[s.Volume] || owned[s.ID]
		for _, tag := range s.Tags {
			ours = ours || tags[tag]
		}
		if !ours {
			continue // another cluster's, or one of a volume that is gone: nobody can say
		}
		r.Totals.Snapshots += int64(s.MinSize)
		if owned[s.ID] || x.ContentsSide.Problem != "" {
			continue
		}
		f := x.nobodys(s)
		r.Snapshots = append(r.Snapshots,
			SnapshotRow{Name: s.Name, ID: s.ID, Volume: s.Volume, GiB: int64(s.MinSize), Verdict: f.State, Finding: f})
	}
}

// nobodys is what to say of a snapshot that no VolumeSnapshotContent has.
func (x index) nobodys(s volume.Snapshot) finding.Verdict {
	if i := slices.IndexFunc(x.Claims,
		func(c Claim) bool { return c.Volume == "" && s.Name == volume.CloneSnapshot("pvc-"+c.UID) }); i >= 0 {
		return finding.Verdict{State: finding.Settling, What: "claim " + x.Claims[i].Name + " is being made of it",
			Next: "the driver removes it then"}
	}
	f := finding.Verdict{State: finding.Disagree, What: "no VolumeSnapshotContent has it",
		Next: "delete it in DigitalOcean's panel, if nobody needs it"}
	switch {
	case x.ContentsSide.NotAsked != "":
		f.What += ", and the cluster has no such kind"
	case x.Now.Sub(s.Created) < patience:
		return finding.Verdict{State: finding.Settling,
			What: "it has just been made, and no VolumeSnapshotContent has it yet", Next: "the driver records it"}
	}
	for _, c := range x.Contents {
		if c.Handle != "" || c.Volume != "" && c.Volume != s.Volume {
			continue
		}
		what := "it may be the one that is made for VolumeSnapshotContent " + c.Name + ", which has none yet"
		if x.Now.Sub(c.Created) < patience {
			return finding.Verdict{State: finding.Settling, Next: "the driver notes it", What: what}
		}
		f.What += "; " + what // the driver would have noted it by now
		f.Next = "kubectl describe volumesnapshotcontent " + c.Name +
			"; delete the snapshot in DigitalOcean's panel when that does not wait for it"
		break
	}
	return f
}

// RowOf is the row of a claim that is bound to that volume, or to none: a PersistentVolume of an earlier claim of the
// same name is not its volume.
func RowOf(rows []Row, claim, volume string) *Row {
	var bound *Row
	for i, r := range rows {
		switch {
		case r.Claim != claim:
		case r.Volume == volume, r.Volume == "":
			return &rows[i]
		case volume == "" && r.State != Released:
			bound = &rows[i] // since the claim was read
		}
	}
	return bound
}
