// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	"github.com/projectcalico/calico/libcalico-go/lib/names"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// DeleteResource is not for this datastore: calico-node writes no configuration of its own there, so whatever exists is a user's.
func (d *KubernetesAPI) DeleteResource(context.Context, Guard, string, string, int64) error {
	return errNotInKubernetes
}

// AnnotateClusterInformation is not for this datastore, which is part of its cluster.
func (d *KubernetesAPI) AnnotateClusterInformation(context.Context, int64, string, string) error {
	return errNotInKubernetes
}

// DeleteNode is not for this datastore.
func (d *KubernetesAPI) DeleteNode(context.Context, Guard) error { return errNotInKubernetes }

// ReleaseAddresses frees addresses of one block and lowers the counts of their handles. There is no transaction over several objects
// here: handles go first, so that a process that dies in between leaves the addresses, by which the work is found again.
func (d *KubernetesAPI) ReleaseAddresses(ctx context.Context, guard Guard, cidr netip.Prefix, assignments []Assignment) error {
	if err := d.releaseAddresses(ctx, cidr, assignments); err != nil {
		return fmt.Errorf("releasing addresses of %s in block %s: %w", guard.Host, cidr, err)
	}
	return nil
}

func (d *KubernetesAPI) releaseAddresses(ctx context.Context, cidr netip.Prefix, assignments []Assignment) error {
	name := resourceName(cidr)
	object, err := d.read(ctx, kindBlock, name)
	if err != nil {
		return err
	}
	if object == nil {
		return &ConflictError{Key: kindBlock + " " + name, Detail: "it is absent"}
	}
	block, err := readBlock(object)
	if err != nil {
		return err
	}
	lost, err := releaseFromBlock(block, assignments)
	if err != nil {
		return &ConflictError{Key: kindBlock + " " + name, Detail: err.Error()}
	}
	for handle, n := range lost {
		if err := d.lowerHandle(ctx, handle, cidr.String(), n); err != nil {
			return err
		}
	}
	if err := storeBlock(object, block); err != nil {
		return err
	}
	return d.update(ctx, object)
}

func (d *KubernetesAPI) lowerHandle(ctx context.Context, handle, cidr string, n int) error {
	// libcalico-go names the object after the handle in lower case (lib/backend/k8s/resources/ipam_handle.go).
	object, err := d.read(ctx, kindHandle, strings.ToLower(handle))
	if err != nil || object == nil {
		return err
	}
	counts, _, err := unstructured.NestedMap(object.Object, "spec", "block")
	if err != nil {
		return fmt.Errorf("parsing %s %s: %w", kindHandle, object.GetName(), err)
	}
	held, _ := counts[cidr].(int64)
	if held -= int64(n); held > 0 {
		counts[cidr] = held
	} else {
		delete(counts, cidr)
	}
	if len(counts) == 0 {
		return d.remove(ctx, object)
	}
	if err := unstructured.SetNestedMap(object.Object, counts, "spec", "block"); err != nil {
		return err
	}
	return d.update(ctx, object)
}

// DeleteAffinity deletes a host's claim on a block as libcalico-go does: the claim is marked first, so that nobody takes addresses by it,
// then the empty block goes, then the claim.
func (d *KubernetesAPI) DeleteAffinity(ctx context.Context, guard Guard, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	if err := d.deleteAffinity(ctx, guard.Host, cidr, revision, deleteBlock); err != nil {
		return fmt.Errorf("deleting the affinity of %s to %s: %w", guard.Host, cidr, err)
	}
	return nil
}

func (d *KubernetesAPI) deleteAffinity(ctx context.Context, host string, cidr netip.Prefix, revision int64, deleteBlock bool) error {
	block, err := d.checkBlock(ctx, host, cidr, deleteBlock)
	if err != nil {
		return err
	}
	affinity, err := d.findAffinity(ctx, host, cidr, revision)
	if err != nil {
		return err
	}
	if affinity != nil && deleteBlock {
		if err := unstructured.SetNestedField(affinity.Object, string(model.StatePendingDeletion), "spec", "state"); err != nil {
			return err
		}
		if err := d.update(ctx, affinity); err != nil {
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

// checkBlock returns the block if it is as DeleteAffinity wants it, nil if it must not be touched.
func (d *KubernetesAPI) checkBlock(ctx context.Context, host string, cidr netip.Prefix, deleteBlock bool) (*unstructured.Unstructured, error) {
	name := resourceName(cidr)
	conflict := func(detail string) error { return &ConflictError{Key: kindBlock + " " + name, Detail: detail} }
	object, err := d.read(ctx, kindBlock, name)
	if err != nil {
		return nil, err
	}
	affine, empty := false, false
	if object != nil {
		block, err := readBlock(object)
		if err != nil {
			return nil, err
		}
		affine, empty = affineTo(block) == host, emptyBlock(block)
	}
	switch {
	case deleteBlock && !affine:
		return nil, conflict("it is not affine to " + host)
	case deleteBlock && !empty:
		return nil, conflict("it is in use")
	case !deleteBlock && affine:
		return nil, conflict("it is affine to " + host)
	}
	return object, nil
}

// findAffinity returns the claim at the revision; revision 0 means that there must be none, and nil is returned.
func (d *KubernetesAPI) findAffinity(ctx context.Context, host string, cidr netip.Prefix, revision int64) (*unstructured.Unstructured, error) {
	var found *unstructured.Unstructured
	err := d.each(ctx, kindAffinity, func(object *unstructured.Unstructured) {
		if of, a, err := readAffinity(object); err == nil && of == host && a.CIDR == cidr {
			found = object
		}
	})
	if err != nil {
		return nil, err
	}
	at := int64(0)
	if found != nil {
		if at, err = revisionOf(found); err != nil {
			return nil, err
		}
	}
	if at != revision {
		return nil, &ConflictError{Key: kindAffinity + " of " + host + " to " + cidr.String(),
			Detail: fmt.Sprintf("it is at %s, not %s", revisionText(at), revisionText(revision))}
	}
	return found, nil
}

// update writes an object if it is still at the resourceVersion that it was read at.
func (d *KubernetesAPI) update(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return translateConflict(object, d.client.Update(ctx, object))
}

// remove deletes an object if it is still the one that was read, unchanged: the API server enforces both preconditions, of which
// libcalico-go sends only the UID.
func (d *KubernetesAPI) remove(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	uid, version := object.GetUID(), object.GetResourceVersion()
	return translateConflict(object, d.client.Delete(ctx, object, client.Preconditions(metav1.Preconditions{UID: &uid, ResourceVersion: &version})))
}

func translateConflict(object *unstructured.Unstructured, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return &ConflictError{Key: object.GetKind() + " " + object.GetName(), Detail: err.Error()}
	}
	return err
}

// resourceName is the name of a block's object (libcalico-go, lib/names: CIDRToName).
func resourceName(cidr netip.Prefix) string { return names.CIDRToName(toCalicoNet(cidr)) }

func revisionOf(object *unstructured.Unstructured) (int64, error) {
	return strconv.ParseInt(object.GetResourceVersion(), 10, 64)
}

// readBlock reads an IPAMBlock's spec, whose fields are those of the block in etcd.
func readBlock(object *unstructured.Unstructured) (*model.AllocationBlock, error) {
	spec, _, err := unstructured.NestedMap(object.Object, "spec")
	if err != nil {
		return nil, err
	}
	text, _ := spec["cidr"].(string)
	_, cidr, err := cnet.ParseCIDR(text)
	if err != nil {
		return nil, fmt.Errorf("parsing the CIDR of %s %s: %w", kindBlock, object.GetName(), err)
	}
	value, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	block, err := decodeBlock(model.BlockKey{CIDR: *cidr}, value)
	if err != nil {
		return nil, fmt.Errorf("parsing %s %s: %w", kindBlock, object.GetName(), err)
	}
	return block, nil
}

// storeBlock writes back what a release changes and leaves every other field as it was.
func storeBlock(object *unstructured.Unstructured, block *model.AllocationBlock) error {
	value, err := json.Marshal(block)
	if err != nil {
		return err
	}
	parsed, err := runtime.Decode(unstructured.UnstructuredJSONScheme, slices.Concat([]byte(`{"apiVersion":"v1","kind":"x","spec":`), value, []byte("}")))
	if err != nil {
		return err
	}
	spec, _, err := unstructured.NestedMap(parsed.(*unstructured.Unstructured).Object, "spec")
	if err != nil {
		return err
	}
	for _, field := range []string{"allocations", "unallocated", "attributes", "sequenceNumber", "sequenceNumberForAllocation"} {
		if err := unstructured.SetNestedField(object.Object, spec[field], "spec", field); err != nil {
			return err
		}
	}
	return nil
}
