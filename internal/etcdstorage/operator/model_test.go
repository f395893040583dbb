// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

func epoch() time.Time { return time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC) }

// fatal is what a helper needs of testing.T and rapid.T.
type fatal interface {
	Helper()
	Fatalf(string, ...any)
}

// world is one of a new tenant, whose destinations are empty and may be written to.
func world(name string) World {
	w := World{
		Now: epoch(),
		Settings: Settings{
			Namespace: "storage", ClusterDomain: "cluster.local", ProxyImage: "proxy:1", CoreURLs: []string{"https://core:2379"}, CAConfigMap: "core-ca",
			CertsSecret: "core-cert", TenantUsers: true, UserRotation: 720 * time.Hour, Cluster: "this", User: "system:serviceaccount:storage:operator",
		},
		Storage: v1alpha1.EtcdStorage{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(epoch())}},
		Files:   CoreFiles{CA: "ca.crt", Cert: "tls.crt", Key: "tls.key"},
		Core:    Core{Revision: 1, ClusterID: "c0ffee"},
	}
	v1alpha1.SetDefaults(&w.Storage)
	return w
}

// delivering lets the tenant name destinations.
func (w World) delivering(configMaps, secrets int) World {
	for i := range configMaps {
		d := v1alpha1.Destination{Namespace: "tenant", Name: fmt.Sprintf("ca-%d", i)}
		w.Storage.Spec.CACertConfigMaps = append(w.Storage.Spec.CACertConfigMaps, d)
		w.Destinations = append(w.Destinations, Destination{Kind: KindConfigMap, Namespace: d.Namespace, Name: d.Name, State: Readable, UID: "u", Data: map[string][]byte{}})
	}
	for i := range secrets {
		d := v1alpha1.Destination{Namespace: "tenant", Name: fmt.Sprintf("client-%d", i)}
		w.Storage.Spec.ClientCertSecrets = append(w.Storage.Spec.ClientCertSecrets, d)
		w.Destinations = append(w.Destinations, Destination{Kind: KindSecret, Namespace: d.Namespace, Name: d.Name, State: Readable, UID: "u", Data: map[string][]byte{}})
	}
	return w
}

// anyWorld draws a tenant in some state of the world around it.
func anyWorld(t *rapid.T) World {
	w := world(rapid.SampledFrom([]string{"a", "team-b", strings.Repeat("x", 58)}).Draw(t, "name"))
	w = w.delivering(rapid.IntRange(0, 2).Draw(t, "config maps"), rapid.IntRange(0, 2).Draw(t, "secrets"))
	w.Core.Auth = rapid.Bool().Draw(t, "auth")
	w.Storage.Spec.DeletionPolicy = rapid.SampledFrom([]v1alpha1.DeletionPolicy{v1alpha1.DeletionRetain, v1alpha1.DeletionDelete}).Draw(t, "policy")
	off := rapid.Bool().Draw(t, "network policy")
	w.Storage.Spec.NetworkPolicy.Enabled = &off
	w.Core.Owners = []Owner{{Tenant: "other", Prefix: "/other/", LeaseSpace: "5", Cluster: "this", UID: "o"}, {Tenant: "far", Prefix: "/far/", LeaseSpace: "6", Cluster: "that", UID: "f"}}
	for i := range w.Destinations {
		w.Destinations[i].State = rapid.SampledFrom([]DestinationState{Readable, Readable, Missing, Forbidden}).Draw(t, "destination")
		w.Destinations[i].Verb = "get"
	}
	refs := Refs(w.Storage.Name)
	if rapid.IntRange(0, 2).Draw(t, "issuer") == 0 {
		w.Storage.Spec.IssuerRef = &v1alpha1.IssuerRef{Name: "x", Kind: "ClusterIssuer", Group: "cert-manager.io"}
		w.CertManager.State = rapid.SampledFrom([]DestinationState{Readable, Readable, Missing, Forbidden}).Draw(t, "cert-manager")
		refs = append(refs, IssuerRefs(w.Storage.Name)...)
	}
	for _, ref := range refs {
		if rapid.IntRange(0, 15).Draw(t, "foreign "+ref.Name) == 0 {
			w.Objects = append(w.Objects, foreign(ref))
		}
	}
	return w
}

func foreign(ref Ref) Object {
	return Object{Kind: ref.Kind, Content: map[string]any{
		"apiVersion": ref.APIVersion, "kind": ref.Kind, "metadata": map[string]any{"name": ref.Name, "namespace": "storage", "uid": "foreign-" + ref.Name, "resourceVersion": "1"},
	}}
}

// After is the world after a step, as the API server and etcd would have it. Keys and passwords are drawn.
func (w World) After(t fatal, s Step) World {
	t.Helper()
	w.Objects, w.Destinations = slices.Clone(w.Objects), slices.Clone(w.Destinations)
	w.Core.Owners, w.Core.Users, w.Core.Granted = slices.Clone(w.Core.Owners), slices.Clone(w.Core.Users), slices.Clone(w.Core.Granted)
	switch s := s.(type) {
	case Hold:
		w.Storage.Finalizers = []string{v1alpha1.Finalizer}
	case Unhold:
		w.Storage.Finalizers = nil
	case Bind:
		w.Storage.Status.Core = &v1alpha1.CoreBinding{ClusterID: s.Core}
	case Apply, MakeCA, TakeCA, Recover, Revoke, IssueServing, MakePassword:
		return w.stored(t, s)
	case DeliverBundle, DeliverClient, Withdraw:
		return w.delivered(t, s)
	case Remove:
		w.Objects = slices.DeleteFunc(w.Objects, func(o Object) bool { return o.Kind == s.Ref.Kind && o.meta("name") == s.Ref.Name })
	default:
		w.Core = w.Core.after(s)
	}
	return w
}

func (c Core) after(s Step) Core {
	c.Revision++
	drop := func(name string) {
		c.Owners = slices.DeleteFunc(c.Owners, func(o Owner) bool { return o.Tenant == name })
	}
	put := func(o Owner) {
		drop(o.Tenant)
		o.Modified = c.Revision
		c.Owners = append(c.Owners, o)
	}
	switch s := s.(type) {
	case Claim:
		for _, o := range s.Replaces {
			drop(o.Tenant)
		}
		put(s.Owner)
	case Release:
		s.Owner.Released = true
		put(s.Owner)
	case Forget:
		drop(s.Owner.Tenant)
	case EnsureUser:
		c.Users, c.Granted = append(c.Users, s.User), append(c.Granted, s.User)
		c.RoleExists, c.RoleReady = true, true
	case RetireUsers:
		keep := func(u string) bool { return slices.Contains(s.Users, u) }
		c.Users, c.Granted = slices.DeleteFunc(c.Users, keep), slices.DeleteFunc(c.Granted, keep)
		if s.Role {
			c.RoleExists, c.RoleReady = false, false
		}
	case DeleteKeys:
		c.Keys = max(0, c.Keys-1000)
	case DeleteRecords:
		c.Records = 0
	case RevokeLeases:
		c.Leases = nil
	default: // nothing in the core
	}
	return c
}

// stored is the world after server-side apply of an object.
func (w World) stored(t fatal, s Step) World {
	t.Helper()
	data, write := map[string][]byte{}, WriteOf(s)
	live, exists := w.object(write.Ref.Kind, write.Ref.Name)
	if exists != (write.UID != "") || exists && (live.meta("uid") != write.UID || live.meta("resourceVersion") != write.ResourceVersion) {
		t.Fatalf("%s: its precondition does not hold", s)
	}
	switch s := s.(type) {
	case MakeCA:
		ca, err := pki.NewCA(rand.Reader, w.Now, "x", s.Purpose, s.Generation, s.Validity)
		if err != nil {
			t.Fatalf("%v", err)
		}
		data = pki.Signers{ca}.Data(s.Purpose)
	case IssueServing:
		data = s.issue(t, w.Now)
	case MakePassword:
		data = map[string][]byte{PasswordKey(s.Number): []byte("p"), MadeKey(s.Number): []byte(w.Now.Format(time.RFC3339))}
	default: // nothing is drawn
	}
	c := maps.Clone(write.Content)
	if write.Ref.Kind == KindSecret {
		all := map[string]any{}
		old, _ := c["data"].(map[string]any)
		maps.Copy(all, old)
		for key, value := range data {
			all[key] = base64.StdEncoding.EncodeToString(value)
		}
		c["data"] = all
	}
	metadata := maps.Clone(c["metadata"].(map[string]any))
	metadata["uid"], metadata["resourceVersion"] = "uid-"+write.Object, fmt.Sprint(live.number("metadata", "n")+1)
	metadata["n"] = live.number("metadata", "n") + 1
	metadata["generation"] = int64(1)
	c["metadata"] = metadata
	if write.Ref.Kind == KindDeployment { // proxies are there at once
		n := int64(w.Storage.Spec.Replicas)
		c["status"] = map[string]any{"observedGeneration": int64(1), "replicas": n, "updatedReplicas": n, "readyReplicas": n}
	}
	w.Objects = append(slices.DeleteFunc(w.Objects, func(o Object) bool { return o.Kind == write.Ref.Kind && o.meta("name") == write.Ref.Name }), Object{write.Ref.Kind, c})
	return w
}

func (i Issuance) issue(t fatal, now time.Time) map[string][]byte {
	t.Helper()
	data, err := i.Draw(rand.Reader, now)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return data
}

func (w World) delivered(t fatal, s Step) World {
	t.Helper()
	list := &w.Destinations
	at := func(d Destination) bool { return d.String() == DestinationOf(s).String() }
	i := slices.IndexFunc(*list, at)
	if i < 0 {
		w.Revoked = slices.Clone(w.Revoked)
		list = &w.Revoked
		i = slices.IndexFunc(*list, at)
	}
	d := (*list)[i]
	if d.State == Forbidden || d.State == Failed {
		t.Fatalf("%s: it may not be written to", s)
	}
	d.State, d.UID, d.Delivered = Readable, "u", Mark(&w.Storage)
	switch s := s.(type) {
	case DeliverBundle:
		d.Data = map[string][]byte{v1alpha1.ServingCAKey: s.Bundle}
	case DeliverClient:
		d.Data = s.issue(t, w.Now)
	default:
		d.Data, d.Delivered = map[string][]byte{}, ""
	}
	(*list)[i] = d
	return w
}

// carryOut plans and applies until nothing remains; only the first atMost steps of each plan are carried out before it is made again.
func carryOut(t fatal, w World, atMost int, look func(before, after World, s Step)) (World, []Step) {
	t.Helper()
	var done []Step
	for range 200 {
		w = w.certManager(t)
		p := MakePlan(w)
		if len(p.Steps) == 0 {
			return w, done
		}
		for _, s := range p.Steps[:min(len(p.Steps), atMost)] {
			after := w.After(t, s)
			if look != nil {
				look(w, after, s)
			}
			done, w = append(done, s), after
		}
	}
	t.Fatalf("no end: %v", done[len(done)-5:])
	return w, done
}

// certManager is the world after cert-manager has issued what Certificates ask for, and renewed what is old.
func (w World) certManager(t fatal) World {
	t.Helper()
	w.CertManager.State = DestinationState(cmp.Or(string(w.CertManager.State), string(Readable)))
	for _, purpose := range purposes() {
		name := CAName(w.Storage.Name, purpose)
		c, exists := w.object(KindCertificate, name)
		if !exists || w.CertManager.State != Readable || strings.HasPrefix(c.meta("uid"), "foreign") {
			continue
		}
		spec, _ := c.Content["spec"].(map[string]any)
		from := spec["issuerRef"].(map[string]any)["name"]
		if old, ok := w.issued(purpose); ok && old.number("metadata", "renew") > w.Now.Unix() && old.annotation(issuerNameAnnotation) == from {
			continue
		}
		life := w.Storage.Spec.SigningCertificateValidity.Duration
		ca, err := pki.NewCA(rand.Reader, w.Now, "issuer", purpose, 1, life)
		if err != nil {
			t.Fatalf("%v", err)
		}
		template, _ := spec["secretTemplate"].(map[string]any)
		annotations := maps.Clone(template["annotations"].(map[string]any))
		annotations[issuerNameAnnotation] = from
		w.Objects = append(slices.DeleteFunc(slices.Clone(w.Objects), func(o Object) bool { return o.Kind == KindSecret && o.meta("name") == name }), Object{KindSecret, map[string]any{
			"metadata": map[string]any{
				"name": name, "uid": "uid-" + name, "resourceVersion": "1", "annotations": annotations, "renew": w.Now.Add(life * 2 / 3).Unix(),
			},
			"data": map[string]any{keyCert: base64.StdEncoding.EncodeToString(ca.CertPEM), keyKey: base64.StdEncoding.EncodeToString(ca.KeyPEM)},
		}})
	}
	return w
}
