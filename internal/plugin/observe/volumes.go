// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// ProvisionerAnnotation names the driver that a claim's volume is, or was, made by.
const ProvisionerAnnotation = "volume.kubernetes.io/storage-provisioner"

// selectedNode is on claims whose first Pod has a machine (k8s.io/component-helpers, storage/volume).
const selectedNode = "volume.kubernetes.io/selected-node"

// Volumes reads both sides. Kubernetes is read before DigitalOcean: what it calls attached is by then, if it ever is.
// VolumeAttachments are read again after it, so that what was attached in between is known.
func Volumes(ctx context.Context, c *Cluster, now clock.PassiveClock) (volumes.World, error) {
	w, err := c.volumes(ctx)
	if err != nil {
		return w, err
	}
	client, notAsked, err := CloudClient(now)
	if err != nil {
		return w, err
	}
	if client == nil {
		w.Cloud.NotAsked = notAsked
	} else if err := volumesOfCloud(ctx, c, client, &w); err != nil {
		w.Cloud = volumes.Cloud{Side: finding.Side{Problem: OneLine(err)}}
	} else {
		names := map[string]bool{}
		for _, v := range w.Volumes {
			names[v.Name] = true
		}
		again, err := c.attachments(ctx, names)
		if err != nil {
			return w, err
		}
		w.Again(again)
	}
	w.Now = c.ServerTime(now.Now())
	return w, nil
}

// gib is a quantity in GiB, rounded up.
func gib(list corev1.ResourceList) int64 {
	const unit = 1 << 30
	size := list[corev1.ResourceStorage]
	return (size.Value() + unit - 1) / unit
}

// volumes reads what Kubernetes has.
func (c *Cluster) volumes(ctx context.Context) (w volumes.World, err error) {
	classes, err := c.classesOfDriver(ctx)
	if err != nil {
		return w, err
	}
	names, claims := map[string]bool{}, map[string]bool{}
	kept, err := All[corev1.PersistentVolume](ctx, "PersistentVolumes", c.Typed.CoreV1().PersistentVolumes().List)
	if err != nil {
		return w, err
	}
	for _, pv := range kept {
		if v, ours := volumeOf(pv); ours {
			w.Volumes = append(w.Volumes, v)
			names[v.Name] = true
		}
	}
	if err := c.claims(ctx, &w, names, classes, claims); err != nil {
		return w, err
	}
	if len(claims) == 0 {
		return w, c.machinesOfVolumes(ctx, &w, names) // no Pod uses any
	}
	pods, err := All[corev1.Pod](ctx, "Pods", c.Typed.CoreV1().Pods("").List)
	if err != nil {
		return w, err
	}
	for _, pod := range pods {
		if p, uses := podOf(pod, claims); uses {
			w.Pods = append(w.Pods, p)
		}
	}
	return w, c.machinesOfVolumes(ctx, &w, names)
}

// claims reads the claims of volumes of those names, and those of the classes that have no volume, yet or any more;
// into notes them by namespace/name.
func (c *Cluster) claims(ctx context.Context, w *volumes.World, names map[string]bool, classes map[string]storagev1.VolumeBindingMode, into map[string]bool) error {
	all, err := All[corev1.PersistentVolumeClaim](
		ctx, "PersistentVolumeClaims", c.Typed.CoreV1().PersistentVolumeClaims("").List,
	)
	for _, p := range all {
		var mode storagev1.VolumeBindingMode
		if p.Spec.StorageClassName != nil {
			mode = classes[*p.Spec.StorageClassName]
		}
		ofClass := mode != ""
		lost := p.Status.Phase == corev1.ClaimLost
		waits := p.Spec.VolumeName == "" && ofClass
		if !names[p.Spec.VolumeName] && !waits && !(lost && (ofClass || p.Annotations[ProvisionerAnnotation] == volumes.Driver)) {
			continue
		}
		claim := volumes.Claim{
			Name: p.Namespace + "/" + p.Name, UID: string(p.UID), Volume: p.Spec.VolumeName, GiB: gib(p.Spec.Resources.Requests), Created: p.CreationTimestamp.Time,
			Lost: lost, WaitsForPod: mode == storagev1.VolumeBindingWaitForFirstConsumer && p.Annotations[selectedNode] == "",
		}
		into[claim.Name] = true
		w.Claims = append(w.Claims, claim)
	}
	return err
}

// attachments reads the VolumeAttachments of volumes of those names; nil means of all.
func (c *Cluster) attachments(ctx context.Context, names map[string]bool) (out []volumes.Attachment, err error) {
	all, err := All[storagev1.VolumeAttachment](ctx, "VolumeAttachments", c.Typed.StorageV1().VolumeAttachments().List)
	for _, v := range all {
		if a, ours := attachmentOf(v); ours && (names == nil || names[a.Volume]) {
			out = append(out, a)
		}
	}
	return out, err
}

// machinesOfVolumes reads VolumeAttachments, Nodes and VolumeSnapshotContents.
func (c *Cluster) machinesOfVolumes(ctx context.Context, w *volumes.World, names map[string]bool) (err error) {
	if w.Attachments, err = c.attachments(ctx, names); err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	for _, node := range nodes {
		droplet, _ := providerid.Parse(node.Spec.ProviderID) // a machine of another kind has none
		w.Nodes = append(w.Nodes, volumes.Node{Name: node.Name, Droplet: droplet, Ready: IsReady(node)})
	}
	w.Contents, w.ContentsSide = c.snapshotContents(ctx)
	return nil
}

// classesOfDriver are the names of the driver's classes, each with when it makes volumes.
func (c *Cluster) classesOfDriver(ctx context.Context) (map[string]storagev1.VolumeBindingMode, error) {
	names := map[string]storagev1.VolumeBindingMode{}
	all, err := All[storagev1.StorageClass](ctx, "StorageClasses", c.Typed.StorageV1().StorageClasses().List)
	for _, class := range all {
		if class.Provisioner == volumes.Driver {
			names[class.Name] = storagev1.VolumeBindingImmediate // which an API server fills in
			if class.VolumeBindingMode != nil {
				names[class.Name] = *class.VolumeBindingMode
			}
		}
	}
	return names, err
}

func volumeOf(p *corev1.PersistentVolume) (v volumes.PersistentVolume, ours bool) {
	if p.Spec.CSI == nil || p.Spec.CSI.Driver != volumes.Driver {
		return v, false
	}
	v = volumes.PersistentVolume{
		Name: p.Name, ID: p.Spec.CSI.VolumeHandle, Phase: string(p.Status.Phase), Reclaim: string(p.Spec.PersistentVolumeReclaimPolicy),
		GiB: gib(p.Spec.Capacity), Deleting: p.DeletionTimestamp != nil,
	}
	switch {
	case p.DeletionTimestamp != nil:
		v.Since = p.DeletionTimestamp.Time
	case p.Status.LastPhaseTransitionTime != nil:
		v.Since = p.Status.LastPhaseTransitionTime.Time
	}
	if ref := p.Spec.ClaimRef; ref != nil {
		v.Claim, v.ClaimUID = ref.Namespace+"/"+ref.Name, string(ref.UID)
	}
	return v, true
}

// podOf is a Pod that has not ended and uses one of the claims.
func podOf(p *corev1.Pod, claims map[string]bool) (out volumes.Pod, uses bool) {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return out, false
	}
	out = volumes.Pod{Name: p.Namespace + "/" + p.Name, Node: p.Spec.NodeName, Created: p.CreationTimestamp.Time, Running: p.Status.Phase == corev1.PodRunning}
	for _, v := range p.Spec.Volumes {
		name := ""
		switch {
		case v.PersistentVolumeClaim != nil:
			name = p.Namespace + "/" + v.PersistentVolumeClaim.ClaimName
		case v.Ephemeral != nil:
			name = p.Namespace + "/" + p.Name + "-" + v.Name
		}
		if claims[name] {
			out.Claims = append(out.Claims, name)
		}
	}
	return out, len(out.Claims) > 0
}

func attachmentOf(a *storagev1.VolumeAttachment) (out volumes.Attachment, ours bool) {
	if a.Spec.Attacher != volumes.Driver || a.Spec.Source.PersistentVolumeName == nil {
		return out, false
	}
	out = volumes.Attachment{
		Volume: *a.Spec.Source.PersistentVolumeName, Node: a.Spec.NodeName, Attached: a.Status.Attached,
		Deleting: a.DeletionTimestamp != nil, Since: ptr.Deref(a.DeletionTimestamp, a.CreationTimestamp).Time,
	}
	switch {
	case a.Status.DetachError != nil && out.Deleting:
		out.Problem = "it cannot be detached: " + a.Status.DetachError.Message
	case a.Status.AttachError != nil && !out.Attached:
		out.Problem = "it cannot be attached: " + a.Status.AttachError.Message
	}
	return out, true
}

// snapshotContents reads VolumeSnapshotContents, a kind that not all clusters have.
func (c *Cluster) snapshotContents(ctx context.Context) (out []volumes.Content, side finding.Side) {
	resource := schema.GroupVersionResource{Group: "snapshot.storage.k8s.io", Version: "v1", Resource: "volumesnapshotcontents"}
	all, err := All[unstructured.Unstructured](ctx, "VolumeSnapshotContents", c.Dynamic.Resource(resource).List)
	for _, u := range all {
		text := func(fields ...string) string {
			s, _, _ := unstructured.NestedString(u.Object, fields...) // what is of another form is not there
			return s
		}
		if text("spec", "driver") != volumes.Driver {
			continue
		}
		content := volumes.Content{Name: u.GetName(), Handle: text("status", "snapshotHandle"), Volume: text("spec", "source", "volumeHandle")}
		content.Created = u.GetCreationTimestamp().Time
		if content.Handle == "" {
			content.Handle = text("spec", "source", "snapshotHandle")
		}
		out = append(out, content)
	}
	switch {
	case apierrors.IsNotFound(err):
		return nil, finding.Side{NotAsked: "there is no kind VolumeSnapshotContent"}
	case err != nil:
		return nil, finding.Side{Problem: SideOf(err).Problem}
	}
	return out, side
}

// OwnCloud is DigitalOcean with the token of the environment, nil without one. It is an error if the token is not of
// the account that the cluster's droplets are in.
func (c *Cluster) OwnCloud(ctx context.Context, now clock.PassiveClock) (*doapi.Client, error) {
	client, _, err := CloudClient(now)
	if err == nil && client != nil {
		_, err = c.SameAccount(ctx, client)
	}
	return client, err
}

// SameAccount returns an error if the token is not of the account that the cluster's droplets are in, as far as that is
// recorded: what it does not see is not gone. recorded reports whether it is.
func (c *Cluster) SameAccount(ctx context.Context, client *doapi.Client) (recorded bool, err error) {
	account, err := client.Account(ctx)
	if err != nil {
		return false, fmt.Errorf("asking for the account: %w", err)
	}
	known, err := c.recordedAccount(ctx)
	if recorded = known != (instance.Account{}); recorded && !known.SameOwner(account) {
		err = fmt.Errorf("the token is one of account %s, and the cluster's droplets are in account %s", account, known)
	}
	return recorded, err
}

// recordedAccount is the account that the cluster's droplets are in, a zero one if that is not recorded.
func (c *Cluster) recordedAccount(ctx context.Context) (instance.Account, error) {
	lease, err := c.Typed.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, accountLease, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return instance.Account{}, nil
	case err != nil:
		return instance.Account{}, fmt.Errorf("reading whose droplets the cluster's are: %w", err)
	}
	return instance.Account{UUID: lease.Annotations[accountAnnotation], Team: lease.Annotations[teamAnnotation]}, nil
}

// volumesOfCloud reads what DigitalOcean has: of the account that the cluster's droplets are in, as far as that is
// recorded.
func volumesOfCloud(ctx context.Context, c *Cluster, client *doapi.Client, w *volumes.World) error {
	if _, err := c.SameAccount(ctx, client); err != nil {
		return err
	}
	list, err := client.Volumes(ctx, "")
	if err != nil {
		return fmt.Errorf("listing volumes: %w", err)
	}
	listed := map[string]bool{}
	for _, v := range list {
		listed[v.ID] = true
	}
	w.Cloud.Answers = map[string]volumes.Answer{}
	for _, v := range w.Volumes {
		if listed[v.ID] || len(w.Cloud.Answers) >= mostAsked {
			continue
		}
		found, err := client.Volume(ctx, v.ID)
		switch {
		case err == nil:
			list = append(list, found)
		case errors.Is(err, doapi.ErrNotFound):
			w.Cloud.Answers[v.ID] = volumes.Answer{Gone: true}
		default:
			w.Cloud.Answers[v.ID] = volumes.Answer{Problem: err.Error()}
		}
	}
	w.Cloud.Volumes = list
	w.Cloud.Snapshots, err = client.VolumeSnapshots(ctx)
	w.Cloud.SnapshotsSide.Problem = OneLine(err)
	return nil
}
