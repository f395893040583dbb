// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/core"
	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
)

// scene is what one round works with.
type scene struct {
	// object is the EtcdStorage as it was read.
	object *unstructured.Unstructured
	// malformed says why it cannot be read as its kind, "" if it can.
	malformed string
	world     operator.World
	plan      operator.Plan // once it is made
	// health is that of the core, which all EtcdStorages share.
	health operator.Health
	core   *core.Client
	// record is what is kept of the core's revision; nil before it was read.
	record *operator.CoreRecord

	// at is when it was read, steps how many were made since. It is outdated when another
	// reading may show more than it and what the steps have made; failed are the steps' errors.
	at       time.Time
	steps    int
	outdated bool
	failed   []error
}

// observe returns all that concerns an EtcdStorage; nil if there is none.
func (r *Reconciler) observe(ctx context.Context, name string) (*scene, error) {
	if s := r.resume(ctx, name); s != nil {
		return s, nil
	}
	return r.read(ctx, name)
}

// read reads all that concerns an EtcdStorage; nil if there is none.
func (r *Reconciler) read(ctx context.Context, name string) (*scene, error) {
	s := &scene{object: blank(StorageKind(), "", name), record: r.coreHistory(ctx), at: r.Clock.Now()}
	if err := r.Reader.Get(ctx, client.ObjectKeyFromObject(s.object), s.object); apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	} else if err != nil {
		return nil, fmt.Errorf("reading EtcdStorage %s: %w", name, err)
	}
	s.world = operator.World{Settings: r.Settings}
	if err := r.take(s, s.object); err != nil {
		s.malformed = err.Error()
		return s, nil //nolint:nilerr // it is part of the observed state
	}
	for _, read := range []func(context.Context, *scene) error{r.readOthers, r.readObjects, r.readCore, r.readDestinations} {
		if err := read(ctx, s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// take makes an EtcdStorage, as the API server returned it, that of the scene.
func (r *Reconciler) take(s *scene, object *unstructured.Unstructured) error {
	storage, err := typed(object)
	if err != nil {
		return err
	}
	s.object, s.world.Now, s.world.StatusLacksCore = object, r.Clock.Now(), r.lacksCore()
	s.world.Storage = r.Settings.Bounded(operator.Defaulted(storage))
	return nil
}

// typed reads an EtcdStorage as its kind. Each is read alone, so that one that cannot be read is the only one that suffers.
func typed(o *unstructured.Unstructured) (*v1alpha1.EtcdStorage, error) {
	out := &v1alpha1.EtcdStorage{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, out); err != nil {
		return nil, fmt.Errorf("it cannot be read as an EtcdStorage: %w", err)
	}
	return out, nil
}

func (r *Reconciler) readOthers(ctx context.Context, s *scene) error {
	list, err := r.storages(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	known := r.others
	r.mu.Unlock()
	now := make(map[string]v1alpha1.EtcdStorage, len(list.Items))
	for _, item := range list.Items {
		version := string(item.GetUID()) + "/" + item.GetResourceVersion()
		other, found := known[version]
		if !found {
			read, err := typed(&item)
			if err != nil {
				continue
			}
			other = operator.Defaulted(read)
		}
		if now[version] = other; item.GetUID() != s.object.GetUID() {
			s.world.Others = append(s.world.Others, other)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others = now
	return nil
}

func (r *Reconciler) readObjects(ctx context.Context, s *scene) error {
	for _, ref := range operator.Refs(s.object.GetName()) {
		if err := r.readObject(ctx, s, ref); err != nil {
			return err
		}
	}
	if s.world.IssuerConcerned() {
		if err := r.readIssuer(ctx, s); err != nil {
			return err
		}
	}
	if s.object.GetDeletionTimestamp() == nil {
		return nil
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := r.Client.List(ctx, pods, client.InNamespace(r.Settings.Namespace), client.MatchingLabels{v1alpha1.StorageLabel: s.object.GetName()}); err != nil {
		return fmt.Errorf("listing the proxies' pods: %w", err)
	}
	s.world.Pods = len(pods.Items)
	return nil
}

func (r *Reconciler) readObject(ctx context.Context, s *scene, ref operator.Ref) error {
	o, err := r.get(ctx, schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), r.Settings.Namespace, ref.Name)
	if err == nil && o != nil {
		s.world.Objects = append(s.world.Objects, operator.Object{Kind: ref.Kind, Content: o.Object})
	}
	return err
}

// readIssuer reads Certificates of cert-manager and the Secrets that it makes of them. That Certificates cannot be read is part of the
// world, and keeps nothing else from being done.
func (r *Reconciler) readIssuer(ctx context.Context, s *scene) error {
	s.world.CertManager.State = operator.Readable
	for _, ref := range operator.IssuerRefs(s.object.GetName()) {
		err := r.readObject(ctx, s, ref)
		switch {
		case err == nil:
		case ref.Kind != operator.KindCertificate:
			return err
		case meta.IsNoMatchError(err):
			s.world.CertManager.State = operator.Missing
		case apierrors.IsForbidden(err):
			s.world.CertManager.State = operator.Forbidden
		default:
			s.world.CertManager.State, s.world.CertManager.Problem = operator.Failed, err.Error()
		}
	}
	return nil
}

// blank is an object of which no more than the name is known.
func blank(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	out := &unstructured.Unstructured{}
	out.SetGroupVersionKind(kind)
	out.SetNamespace(namespace)
	out.SetName(name)
	return out
}

// get reads an object; nil if there is none.
func (r *Reconciler) get(ctx context.Context, kind schema.GroupVersionKind, namespace, name string) (*unstructured.Unstructured, error) {
	out := blank(kind, namespace, name)
	err := r.Client.Get(ctx, client.ObjectKeyFromObject(out), out)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // that there is none is an answer
	}
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s: %w", kind.Kind, namespace, name, err)
	}
	return out, nil
}

// readCore reads the credentials for the core, and asks it. That it cannot be asked is part of the world.
func (r *Reconciler) readCore(ctx context.Context, s *scene) error {
	c, err := r.knownCredentials(ctx)
	if err != nil {
		return err
	}
	s.world.Files = c.files
	if c.files.Problem != "" {
		s.world.Core.Problem = c.files.Problem
		return nil
	}
	s.core, s.world.Core = r.Core.ask(ctx, s.world.Now, r.Timing.rest(), r.Settings.CoreURLs, c.Credentials, core.Question{
		Tenant: s.world.Storage.Name, Prefix: operator.Prefix(&s.world.Storage), Users: r.Settings.TenantUsers,
		CertificateUser: core.CommonName(c.proxyCert), Exiting: s.object.GetDeletionTimestamp() != nil,
	})
	if s.world.Core.Problem != "" {
		r.forgetReadings()
	}
	health, asked := r.Core.healthy(ctx, s.world.Now, r.Timing.fresh(), s.core)
	s.health, s.world.CoreQuota = health, health.Quota()
	if asked {
		r.Metrics.core(health)
	}
	return nil
}

// Keys of the core's credentials, in both spellings: those of Kubernetes and those of etcdproxy-controller's README.
func caKeys() []string   { return []string{"ca.crt", "ca.pem"} }
func certKeys() []string { return []string{"tls.crt", "client.pem"} }
func keyKeys() []string  { return []string{"tls.key", "client-key.pem"} }

// shownCredentials are those that the operator shows the core, and what is known of those of the proxies.
type shownCredentials struct {
	core.Credentials

	files     operator.CoreFiles
	proxyCert []byte
}

// credentials reads what the proxies show the core, and what the operator shows it.
func (r *Reconciler) credentials(ctx context.Context) (c shownCredentials, err error) {
	ca, err := r.data(ctx, operator.KindConfigMap, r.Settings.CAConfigMap)
	if err != nil {
		return c, err
	}
	pair, err := r.data(ctx, operator.KindSecret, r.Settings.CertsSecret)
	if err != nil {
		return c, err
	}
	files := &c.files
	files.CA, files.Cert, files.Key = first(ca, caKeys()), first(pair, certKeys()), first(pair, keyKeys())
	missing := func(kind, name string, keys ...string) {
		files.Problem = fmt.Sprintf("%s %s/%s with the core's credentials is missing, or has none of the keys %s; put them there", kind, r.Settings.Namespace, name, strings.Join(keys, ", "))
	}
	switch {
	case files.CA == "":
		missing(operator.KindConfigMap, r.Settings.CAConfigMap, caKeys()...)
	case files.Cert == "":
		missing(operator.KindSecret, r.Settings.CertsSecret, certKeys()...)
	case files.Key == "":
		missing(operator.KindSecret, r.Settings.CertsSecret, keyKeys()...)
	}
	c.Credentials = core.Credentials{CA: ca[files.CA], Cert: pair[files.Cert], Key: pair[files.Key]}
	c.proxyCert = c.Cert
	if r.AdminSecret == "" || files.Problem != "" {
		return c, nil
	}
	admin, err := r.data(ctx, operator.KindSecret, r.AdminSecret)
	if err != nil {
		return c, err
	}
	if cert, key := first(admin, certKeys()), first(admin, keyKeys()); cert != "" && key != "" {
		c.Cert, c.Key = admin[cert], admin[key]
	}
	c.Username, c.Password = string(admin["username"]), string(admin["password"])
	if c.Username == "" && first(admin, certKeys()) == "" {
		files.Problem = fmt.Sprintf("Secret %s/%s of --etcd-core-admin-secret is missing, or has neither username and password nor tls.crt and tls.key; put them there",
			r.Settings.Namespace, r.AdminSecret)
	}
	return c, nil
}

func first(data map[string][]byte, keys []string) string {
	for _, key := range keys {
		if len(data[key]) > 0 {
			return key
		}
	}
	return ""
}

// data is that of a ConfigMap or Secret of the operator's namespace, empty if there is none.
func (r *Reconciler) data(ctx context.Context, kind, name string) (map[string][]byte, error) {
	o, err := r.get(ctx, corev1.SchemeGroupVersion.WithKind(kind), r.Settings.Namespace, name)
	if err != nil || o == nil {
		return nil, err
	}
	return dataOf(kind, o), nil
}

func dataOf(kind string, o *unstructured.Unstructured) map[string][]byte {
	out := map[string][]byte{}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	for key, value := range data {
		raw := []byte(value)
		if kind == operator.KindSecret {
			raw, _ = base64.StdEncoding.DecodeString(value)
		}
		out[key] = raw
	}
	return out
}

// readDestinations reads the tenant's ConfigMaps and Secrets, each by its name: the operator may do no more.
func (r *Reconciler) readDestinations(ctx context.Context, s *scene) error {
	spec := s.world.Storage.Spec
	read := func(kind string, targets []v1alpha1.Destination) (out []operator.Destination) {
		for _, at := range targets {
			d := operator.Destination{Kind: kind, Namespace: at.Namespace, Name: at.Name}
			if at.Namespace != r.Settings.Namespace {
				r.readDestination(ctx, &d)
			}
			if verb, is := r.denied.Load(denial{s.object.GetName(), d.String()}); is {
				d.State, d.Verb = operator.Forbidden, verb.(string) //nolint:forcetypeassert // no other is stored
			}
			out = append(out, d)
		}
		return out
	}
	s.world.Destinations = slices.Concat(read(operator.KindConfigMap, spec.CACertConfigMaps), read(operator.KindSecret, spec.ClientCertSecrets))
	s.world.Revoked = read(operator.KindSecret, s.world.RevokedClients())
	return ctx.Err()
}

func (r *Reconciler) readDestination(ctx context.Context, d *operator.Destination) {
	o, err := r.get(ctx, corev1.SchemeGroupVersion.WithKind(d.Kind), d.Namespace, d.Name)
	switch {
	case apierrors.IsForbidden(err):
		d.State, d.Verb = operator.Forbidden, "get"
		return
	case err != nil:
		d.State, d.Problem = operator.Failed, err.Error()
		return
	case o == nil:
		d.State = operator.Missing
		return
	}
	fillIn(d, o)
}

// fillIn takes in what a destination holds.
func fillIn(d *operator.Destination, o *unstructured.Unstructured) {
	d.State, d.UID, d.ResourceVersion = operator.Readable, string(o.GetUID()), o.GetResourceVersion()
	annotations := o.GetAnnotations()
	d.Delivered = annotations[v1alpha1.DeliveredAnnotation]
	_, d.Predecessor = annotations[operator.PredecessorAnnotation]
	kind, _, _ := unstructured.NestedString(o.Object, "type")
	d.TLS = kind == string(corev1.SecretTypeTLS)
	all := dataOf(d.Kind, o)
	d.Data = map[string][]byte{}
	for _, key := range d.Keys() {
		d.Data[key] = all[key]
	}
}
