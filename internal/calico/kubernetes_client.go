// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// crdGroup is the API group of Calico's own resources in the kubernetes datastore (libcalico-go, config/crd).
var crdGroup = schema.GroupVersion{Group: "crd.projectcalico.org", Version: "v1"}

// objectPath is where the API server keeps Calico's resources. Keys of the journal begin with it, so it MUST stay as it is.
const objectPath = "/apis/crd.projectcalico.org/v1/"

// Kinds of that group that Mooring reads and writes, alongside those of resourcePrefixes.
const (
	kindBlock       = "IPAMBlock"
	kindHandle      = "IPAMHandle"
	kindAffinity    = "BlockAffinity"
	kindClusterInfo = "ClusterInformation"
	kindPool        = "IPPool"
	kindIPAMConfig  = "IPAMConfig"
)

// objectsPerPage bounds one answer of a list, and with it the memory that a list takes: one page at a time is kept.
const objectsPerPage = 500

// plural is the name of a kind in paths.
func plural(kind string) string {
	switch kind {
	case kindBlock:
		return "ipamblocks"
	case kindHandle:
		return "ipamhandles"
	case kindAffinity:
		return "blockaffinities"
	case kindClusterInfo:
		return "clusterinformations"
	case kindPool:
		return "ippools"
	case kindIPAMConfig:
		return "ipamconfigs"
	}
	return resourcePlurals()[kind]
}

// customResource is an object as the API server answered it, taken apart as far as all kinds are alike.
type customResource struct {
	kind     string
	raw      []byte
	metadata objectMetadata
	spec     json.RawMessage
}

type objectMetadata struct {
	Name            string            `json:"name"`
	UID             types.UID         `json:"uid"`
	ResourceVersion string            `json:"resourceVersion"`
	Labels          map[string]string `json:"labels"`
	Annotations     map[string]string `json:"annotations"`
}

func parseCustomResource(kind string, raw []byte) (*customResource, error) {
	var parts struct {
		Metadata objectMetadata  `json:"metadata"`
		Spec     json.RawMessage `json:"spec"`
	}
	if err := json.Unmarshal(raw, &parts); err != nil {
		return nil, fmt.Errorf("parsing an answer of the API server with %s: %w", kind, err)
	}
	return &customResource{kind: kind, raw: raw, metadata: parts.Metadata, spec: parts.Spec}, nil
}

func (o *customResource) String() string { return o.kind + " " + o.metadata.Name }

// key names the object in the journal.
func (o *customResource) key() string { return objectPath + plural(o.kind) + "/" + o.metadata.Name }

// revision is the resourceVersion as a number, which it is where an API server keeps its data in etcd. It is compared for equality alone.
func (o *customResource) revision() (int64, error) {
	revision, err := strconv.ParseInt(o.metadata.ResourceVersion, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading the resourceVersion of %s: %w", o, err)
	}
	return revision, nil
}

// newRESTClient returns a client of a group that neither decodes answers nor asks the API server which kinds there are.
func newRESTClient(config *rest.Config, group schema.GroupVersion) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &group, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = metainternal.Codecs.WithoutConversion() // for the API server's errors
	return rest.RESTClientFor(config)
}

// do makes one call, bounded in time. The error is the API server's own where it gives one.
func do(ctx context.Context, request *rest.Request) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// errNotServed is the kind of error of a path that the API server does not know.
var errNotServed = errors.New("the API server does not serve it")

// explain says what a path is missing that the API server does not know, whatever the object.
func explain(err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w (%s): Calico is not installed in this cluster, or keeps its data in etcd or in projectcalico.org/v3, "+
			"native v3 CRDs, which are not supported; check DATASTORE_TYPE", errNotServed, crdGroup)
	}
	return err
}

// isAbsent reports that the API server itself has no object of that name. A proxy's 404, or that of a kind it does not serve, says nothing.
func isAbsent(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}

// read returns the object as it is now by a quorum read, nil if there is none.
func (d *KubernetesAPI) read(ctx context.Context, kind, name string) (*customResource, error) {
	if name == "" || len(rest.IsValidPathSegmentName(name)) > 0 {
		return nil, nil // no object can be called so
	}
	raw, err := do(ctx, d.client.Get().Resource(plural(kind)).Name(name))
	switch {
	case isAbsent(err, name):
		return nil, nil
	case err != nil:
		return nil, explain(err)
	}
	return parseCustomResource(kind, raw)
}

// each visits all objects of a kind.
func (d *KubernetesAPI) each(ctx context.Context, kind string, visit func(*customResource) error) error {
	return d.eachMarked(ctx, kind, [][]byte{nil}, visit) // an empty mark stands in every object
}

// eachRaw visits all objects of a kind, page by page, as the API server answers them: taking an object apart costs more than fetching it, so
// anyone who needs few of them or little of each begins here. All pages are of one moment: the API server continues at the revision at which it
// began, and when it has compacted that, it answers an error.
func (d *KubernetesAPI) eachRaw(ctx context.Context, kind string, visit func(raw []byte) error) error {
	return eachItem(ctx, "Calico's "+kind, d.page, func() *rest.Request { return d.client.Get().Resource(plural(kind)) }, visit)
}

// eachItem visits all that a request lists, so many to a page.
func eachItem(ctx context.Context, what string, limit int, list func() *rest.Request, visit func(raw []byte) error) error {
	for token := ""; ; {
		request := list().Param("limit", strconv.Itoa(limit))
		if token != "" {
			request = request.Param("continue", token)
		}
		answer, err := do(ctx, request)
		if err != nil {
			return fmt.Errorf("listing %s: %w", what, explain(err))
		}
		var page struct {
			Metadata metav1.ListMeta   `json:"metadata"`
			Items    []json.RawMessage `json:"items"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return fmt.Errorf("parsing a list of %s: %w", what, err)
		}
		for _, item := range page.Items {
			if err := visit(item); err != nil {
				return err
			}
		}
		if token = page.Metadata.Continue; token == "" {
			return nil
		}
	}
}

// create makes an object. One that is there already is a conflict, and what the account may not do says which role would let it.
func (d *KubernetesAPI) create(ctx context.Context, kind, name string, spec any) error {
	body, err := json.Marshal(map[string]any{"apiVersion": crdGroup.String(), "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		return err
	}
	_, err = do(ctx, d.client.Post().Resource(plural(kind)).Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON))
	if apierrors.IsAlreadyExists(err) {
		return &ConflictError{Key: kind + " " + name, Detail: "it is there by now"}
	}
	return explainRestore(err)
}

// explainRestore is explain for what only restoring does, which the shipped roles leave out.
func explainRestore(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: restoring needs more than the controller's roles; apply config/calico-node-sync/samples/restore-rights.yaml or set "+
			"calicoNodeSync.restoreRights of the chart, or run calico-node-sync restore with an account that may", err)
	}
	return explain(err)
}

// update writes an object, if it is still at the resourceVersion that stands in it, and returns what it became.
func (d *KubernetesAPI) update(ctx context.Context, object *customResource, raw []byte) (*customResource, error) {
	request := d.client.Put().Resource(plural(object.kind)).Name(object.metadata.Name)
	written, err := do(ctx, request.Body(raw).SetHeader("Content-Type", runtime.ContentTypeJSON))
	if err != nil {
		return nil, translateConflict(object, err)
	}
	return parseCustomResource(object.kind, written)
}

// remove deletes an object if it is still the one that was read, unchanged: the API server enforces both preconditions, of which
// libcalico-go sends only the UID.
func (d *KubernetesAPI) remove(ctx context.Context, object *customResource) error {
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &metav1.Preconditions{UID: &object.metadata.UID, ResourceVersion: &object.metadata.ResourceVersion},
	})
	if err != nil {
		return err
	}
	request := d.client.Delete().Resource(plural(object.kind)).Name(object.metadata.Name)
	_, err = do(ctx, request.Body(body).SetHeader("Content-Type", runtime.ContentTypeJSON))
	return translateConflict(object, err)
}

func translateConflict(object *customResource, err error) error {
	if apierrors.IsConflict(err) || isAbsent(err, object.metadata.Name) {
		return &ConflictError{Key: object.String(), Detail: err.Error()}
	}
	return err
}

// nodeMetadata asks for as little of a Node as there is.
const nodeMetadata = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// checkGuard is the last look before a write destroys something. A Calico Node is the Kubernetes Node here, so that there is none means that
// Kubernetes has none. No transaction spans it and the write, whose own preconditions hold what a machine that is back has changed.
func (d *KubernetesAPI) checkGuard(ctx context.Context, guard Guard) error {
	switch {
	case guard.Host == "" || len(rest.IsValidPathSegmentName(guard.Host)) > 0:
		return fmt.Errorf("a destructive write needs the name of its Kubernetes Node, which %q cannot be", guard.Host)
	case guard.Revision != 0:
		return &ConflictError{Key: "Calico Node " + guard.Host, Detail: "this datastore has none of its own"}
	}
	_, err := do(ctx, d.client.Get().AbsPath("/api/v1").Resource("nodes").Name(guard.Host).SetHeader("Accept", nodeMetadata))
	switch {
	case err == nil:
		return &ConflictError{Key: "Kubernetes Node " + guard.Host, Detail: "it is there"}
	case isAbsent(err, guard.Host):
		return nil
	}
	return fmt.Errorf("asking whether Kubernetes Node %s is gone: %w", guard.Host, err)
}
