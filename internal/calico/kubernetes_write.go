// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"

	cnet "github.com/projectcalico/calico/libcalico-go/lib/net"
)

// AnnotateNode is not for this datastore.
func (d *KubernetesAPI) AnnotateNode(context.Context, string, int64, string, string) (int64, error) {
	return 0, errNotInKubernetes
}

// DeleteEndpoints is not for this datastore.
func (d *KubernetesAPI) DeleteEndpoints(context.Context, Guard, []EndpointRef) error {
	return errNotInKubernetes
}

// AnnotateClusterInformation is not for this datastore, which is part of its cluster.
func (d *KubernetesAPI) AnnotateClusterInformation(context.Context, int64, string, string) error {
	return errNotInKubernetes
}

// DeleteNode is not for this datastore.
func (d *KubernetesAPI) DeleteNode(context.Context, Guard) error { return errNotInKubernetes }

// ReleaseAddresses frees addresses of one block and lowers the counts of their handles. There is no transaction over several objects
// here: handles go first, so that a process that dies in between leaves the addresses, by which the work is found again. It makes three
// calls, two for each handle, and one a minute for IPAMConfig.
func (d *KubernetesAPI) ReleaseAddresses(ctx context.Context, guard Guard, cidr netip.Prefix, assignments []Assignment) error {
	check := func(ctx context.Context) error { return d.checkGuard(ctx, guard) }
	if err := d.releaseIf(ctx, check, guard.Host, cidr, assignments); err != nil {
		return fmt.Errorf("releasing addresses of %s in block %s: %w", guard.Host, cidr, err)
	}
	return nil
}

// releaseIf frees a host's addresses if the check, which comes right before the first write, passes.
func (d *KubernetesAPI) releaseIf(
	ctx context.Context, check func(context.Context) error, host string, cidr netip.Prefix, assignments []Assignment,
) error {
	// Handles are read before the block: a machine that is back takes a tunnel's address again under the same handle, and whatever it does to
	// the handle after this look makes our write a conflict.
	handles, err := d.readHandles(ctx, assignments)
	if err != nil {
		return err
	}
	object, err := d.read(ctx, kindBlock, resourceName(cidr))
	if err != nil {
		return err
	}
	if object == nil {
		return &ConflictError{Key: kindBlock + " " + resourceName(cidr), Detail: "it is absent"}
	}
	block, err := decodeCustomBlock(object)
	if err != nil {
		return err
	}
	cool, err := d.cooldown(ctx)
	if err != nil {
		return err
	}
	lost, err := releaseFromBlock(block, host, assignments, cool)
	if err != nil {
		return &ConflictError{Key: object.String(), Detail: err.Error()}
	}
	updated, err := withBlock(object, block)
	if err != nil {
		return err
	}
	if err := check(ctx); err != nil {
		return err
	}
	left := countHandles(block.AllocationBlock)
	for _, h := range handles {
		if err := d.lowerHandle(ctx, h.object, cidr.String(), lost[h.id], left[h.id]); err != nil {
			return err
		}
	}
	_, err = d.update(ctx, object, updated)
	return err
}

// heldHandle is a handle as it was read.
type heldHandle struct {
	id     string
	object *customResource
}

// readHandles reads the handles of the assignments, each once. What has none is left out.
func (d *KubernetesAPI) readHandles(ctx context.Context, assignments []Assignment) ([]heldHandle, error) {
	ids := make([]string, 0, len(assignments))
	for _, a := range assignments {
		ids = append(ids, a.Handle)
	}
	slices.Sort(ids)
	var out []heldHandle
	for _, id := range slices.Compact(ids) {
		object, err := d.readHandle(ctx, id)
		if err != nil {
			return nil, err
		}
		if object != nil {
			out = append(out, heldHandle{id: id, object: object})
		}
	}
	return out, nil
}

// readHandle returns nil if there is no handle of that ID. libcalico-go names the object after the handle in lower case
// (lib/backend/k8s/resources: ipam_handle.go), so that another's may be in its place.
func (d *KubernetesAPI) readHandle(ctx context.Context, id string) (*customResource, error) {
	object, err := d.read(ctx, kindHandle, strings.ToLower(id))
	if err != nil || object == nil {
		return nil, err
	}
	stored, err := handleID(object)
	if err != nil || stored != id {
		return nil, err
	}
	return object, nil
}

func handleID(object *customResource) (string, error) {
	var spec struct {
		HandleID string `json:"handleID"`
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return "", fmt.Errorf("parsing %s: %w", object, err)
	}
	return spec.HandleID, nil
}

// handleCounts says how many addresses a handle counts in each block.
func handleCounts(object *customResource) (map[string]int, error) {
	var spec struct {
		Block map[string]int `json:"block"`
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", object, err)
	}
	if spec.Block == nil {
		return map[string]int{}, nil
	}
	return spec.Block, nil
}

// countHandles says how many addresses each handle has in a block.
func countHandles(block *model.AllocationBlock) map[string]int {
	counts := map[string]int{}
	for _, index := range block.Allocations {
		if index != nil {
			counts[handleOf(block, *index)]++
		}
	}
	return counts
}

// lowerHandle takes lost addresses of a block from a handle's count, and the handle with its last. The count is not lowered below the
// addresses that the block still has under the handle (left): after a crash before the block was written it has been lowered already. It may
// stay above them, since an assignment in progress counts its address before it takes it.
func (d *KubernetesAPI) lowerHandle(ctx context.Context, object *customResource, cidr string, lost, left int) error {
	counts, err := handleCounts(object)
	if err != nil {
		return err
	}
	held := counts[cidr]
	if counts[cidr] = min(held, max(held-lost, left)); counts[cidr] <= 0 {
		delete(counts, cidr)
	}
	if len(counts) == 0 {
		return d.remove(ctx, object) // it counts nothing
	}
	updated, err := withSpec(object, map[string]any{"block": counts})
	if err != nil {
		return err
	}
	_, err = d.update(ctx, object, updated)
	return err
}

// DeleteAffinity deletes a host's claim on a block as libcalico-go does: the claim is marked first, so that nobody takes addresses by it,
// then the empty block goes, then the claim. It makes six calls at most, unless the claim is not called as libcalico-go calls it.
func (d *KubernetesAPI) DeleteAffinity(ctx context.Context, guard Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	if err := d.deleteAffinity(ctx, guard, cidr, revision, deleteBlock); err != nil {
		return fmt.Errorf("deleting the affinity of %s to %s: %w", guard.Host, cidr, err)
	}
	return nil
}

func (d *KubernetesAPI) deleteAffinity(ctx context.Context, guard Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	block, err := d.checkBlock(ctx, guard.Host, cidr, deleteBlock)
	if err != nil {
		return err
	}
	affinity, err := d.findAffinity(ctx, guard.Host, cidr, revision)
	if err != nil {
		return err
	}
	if err := d.checkGuard(ctx, guard); err != nil {
		return err
	}
	if affinity != nil && deleteBlock {
		if affinity, err = d.markAffinity(ctx, affinity); err != nil {
			return err
		}
	}
	if deleteBlock {
		if err := d.remove(ctx, block); err != nil {
			return err
		}
	}
	if affinity == nil {
		return nil
	}
	return d.remove(ctx, affinity)
}

func (d *KubernetesAPI) markAffinity(ctx context.Context, affinity *customResource) (*customResource, error) {
	updated, err := withSpec(affinity, map[string]any{"state": string(model.StatePendingDeletion)})
	if err != nil {
		return nil, err
	}
	return d.update(ctx, affinity, updated)
}

// checkBlock returns the block if it is as DeleteAffinity wants it.
func (d *KubernetesAPI) checkBlock(ctx context.Context, host string, cidr netip.Prefix, deleteBlock bool) (*customResource, error) {
	conflict := func(detail string) error {
		return &ConflictError{Key: kindBlock + " " + resourceName(cidr), Detail: detail}
	}
	object, err := d.read(ctx, kindBlock, resourceName(cidr))
	if err != nil {
		return nil, err
	}
	affine, usage := false, ""
	if object != nil {
		block, err := decodeCustomBlock(object)
		if err != nil {
			return nil, err
		}
		cool, err := d.cooldown(ctx)
		if err != nil {
			return nil, err
		}
		affine, usage = affineTo(block.AllocationBlock) == host, block.usage(cool)
	}
	switch {
	case deleteBlock && !affine:
		return nil, conflict("it is not affine to " + host)
	case deleteBlock && usage != "":
		return nil, conflict(usage)
	case !deleteBlock && affine:
		return nil, conflict("it is affine to " + host)
	}
	return object, nil
}

// findAffinity returns the claim at the revision; revision 0 means that there must be none, and nil is returned. It is read by the name that
// libcalico-go gives it, and only if it has another, all claims are looked through.
func (d *KubernetesAPI) findAffinity(ctx context.Context, host string, cidr netip.Prefix, revision int64) (*customResource, error) {
	is := func(object *customResource) bool {
		of, a, err := readAffinity(object)
		return err == nil && of == host && a.CIDR == cidr
	}
	found, err := d.read(ctx, kindAffinity, affinityName(host, cidr))
	if err != nil {
		return nil, err
	}
	if found == nil || !is(found) {
		found = nil
		err := d.each(ctx, kindAffinity, func(object *customResource) error {
			if is(object) {
				found = object
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, expectRevision(found, kindAffinity+" of "+host+" to "+cidr.String(), revision)
}

// longestName is how long the name of an object of Kubernetes may be.
const longestName = 253

// affinityName is the name of an affinity's object (libcalico-go, lib/backend/k8s/resources: ipam_affinity.go), which is cut short and made
// unique by a hash where it would be too long.
func affinityName(host string, cidr netip.Prefix) string {
	block := resourceName(cidr)
	name := host + "-" + block
	if len(name) < longestName {
		return name
	}
	const hashLength = 11
	sum := sha256.Sum256([]byte(host + "+" + block))
	return host[:longestName-1-len(block)-hashLength-2] + "-" + block + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// resourceName is the name of a block's object (libcalico-go, lib/names: CIDRToName).
func resourceName(cidr netip.Prefix) string { return names.CIDRToName(toCalicoNet(cidr)) }

// decodeCustomBlock reads an IPAMBlock's spec, whose fields are those of the block in etcd.
func decodeCustomBlock(object *customResource) (*storedBlock, error) {
	var spec struct {
		CIDR string `json:"cidr"`
	}
	if err := json.Unmarshal(object.spec, &spec); err != nil {
		return nil, fmt.Errorf("parsing %s: %w", object, err)
	}
	_, cidr, err := cnet.ParseCIDR(spec.CIDR)
	if err != nil {
		return nil, fmt.Errorf("parsing the CIDR of %s: %w", object, err)
	}
	block, err := decodeBlock(model.BlockKey{CIDR: *cidr}, object.spec)
	if err != nil {
		return nil, fmt.Errorf("parsing %s: %w", object, err)
	}
	return block, nil
}

func readBlock(object *customResource) (Block, error) {
	block, err := decodeCustomBlock(object)
	if err != nil {
		return Block{}, err
	}
	return translateBlock(block)
}

// withBlock is the object of a block as it is by now.
func withBlock(object *customResource, block *storedBlock) ([]byte, error) {
	spec, err := block.encode()
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", object, err)
	}
	return withFields(object.raw, map[string]any{"spec": json.RawMessage(spec)})
}

// withSpec is a stored object with other values in fields of its spec, and every other field as it was.
func withSpec(object *customResource, fields map[string]any) ([]byte, error) {
	spec, err := withFields(object.spec, fields)
	if err != nil {
		return nil, fmt.Errorf("changing %s: %w", object, err)
	}
	return withFields(object.raw, map[string]any{"spec": json.RawMessage(spec)})
}
