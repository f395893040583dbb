// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// Destination is a ConfigMap or Secret of a tenant.
type Destination struct {
	Kind, Namespace, Name string
	State                 DestinationState
	// Verb is what is forbidden, where State says so.
	Verb string
	// Problem is the API server's answer where State is Failed.
	Problem string

	UID, ResourceVersion string
	// Data is what the operator's own keys hold.
	Data map[string][]byte
	// Delivered is the mark of who wrote them, "" for none. Predecessor says that etcdproxy-controller did.
	Delivered   string
	Predecessor bool
	// TLS reports that it is a Secret of type kubernetes.io/tls, which may not lose its keys.
	TLS bool
}

// DestinationState is what is known of a destination.
type DestinationState string

// The states.
const (
	Readable  DestinationState = "Readable"
	Missing   DestinationState = "Missing"
	Forbidden DestinationState = "Forbidden"
	Failed    DestinationState = "Failed"
)

// String is kind namespace/name.
func (d Destination) String() string { return d.Kind + " " + d.Namespace + "/" + d.Name }

// Keys are the operator's own keys in it.
func (d Destination) Keys() []string {
	if d.Kind == KindConfigMap {
		return []string{v1alpha1.ServingCAKey}
	}
	return []string{"tls.crt", "tls.key"}
}

// PredecessorAnnotation is how etcdproxy-controller marked what it had written.
const PredecessorAnnotation = "etcd.xmudrii.com/certificate-signed-by"

// Mark is the value of DeliveredAnnotation for an EtcdStorage.
func Mark(s *v1alpha1.EtcdStorage) string { return s.Name + "/" + string(s.UID) }

// refusal says why a destination is not written to; false if it may be.
func (w World) refusal(d Destination) (Refusal, bool) {
	switch {
	case d.Namespace == w.Settings.Namespace:
		return refuse(ReasonDestination, "%s: this is the operator's own namespace, where it may write to other tenants' Secrets; name an object in the tenant's", d), true
	case w.namedBy(d) != "":
		return refuse(ReasonDestinationTaken, "%s: EtcdStorage %s is older and names it as well; name another one", d, w.namedBy(d)), true
	case d.State == Failed:
		return refuse(ReasonMissingPermission, "%s: the API server does not respond: %s", d, d.Problem), true
	case d.State == Forbidden && d.Verb == "create":
		return refuse(ReasonMissingObject, "%s does not exist, and the operator may not create it; run: %s", d, d.creation()), true
	case d.State == Forbidden:
		return refuse(ReasonMissingPermission, "%s: the operator may not %s it; run: %s", d, d.Verb, w.Cure(d)), true
	case d.State == Missing:
		return Refusal{}, false
	case d.Delivered != "" && d.Delivered != Mark(&w.Storage) && w.alive(d.Delivered):
		return refuse(ReasonDestinationTaken, "%s belongs to EtcdStorage %s; name another one", d, strings.SplitN(d.Delivered, "/", 2)[0]), true
	case d.Delivered == "" && !d.Predecessor && !d.empty():
		return refuse(ReasonForeignObject, "%s has %s, which the operator did not write; name another one, or remove them there",
			d, strings.Join(d.Keys(), " and ")), true
	}
	return Refusal{}, false
}

// empty reports that its keys hold nothing.
func (d Destination) empty() bool {
	return !slices.ContainsFunc(d.Keys(), func(key string) bool { return len(d.Data[key]) > 0 })
}

// alive reports that a mark is that of another EtcdStorage that there is.
func (w World) alive(mark string) bool {
	return slices.ContainsFunc(w.Others, func(o v1alpha1.EtcdStorage) bool { return Mark(&o) == mark })
}

// namedBy is an older EtcdStorage that names the destination as well, "" if there is none.
func (w World) namedBy(d Destination) string {
	var out []string
	for _, o := range w.Others {
		targets := o.Spec.CACertConfigMaps
		if d.Kind == KindSecret {
			targets = o.Spec.ClientCertSecrets
		}
		if older(&o, &w.Storage) && slices.Contains(targets, v1alpha1.Destination{Name: d.Name, Namespace: d.Namespace}) {
			out = append(out, o.Name)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return slices.Min(out)
}

// older orders EtcdStorages by age, and by name where that is the same.
func older(a, b *v1alpha1.EtcdStorage) bool {
	if !a.CreationTimestamp.Time.Equal(b.CreationTimestamp.Time) {
		return a.CreationTimestamp.Time.Before(b.CreationTimestamp.Time)
	}
	return a.Name < b.Name
}

// Cure is the command that grants the operator what it needs for a destination. Anyone who runs it needs rights in the tenant's namespace alone. What
// exists already is left by it, and the rest is still made.
func (w World) Cure(d Destination) string {
	role := "etcd-storage-" + strings.ToLower(d.Kind) + "-" + short(d.Name)
	subject := "--user=" + quote(w.Settings.User)
	if account, ok := strings.CutPrefix(w.Settings.User, "system:serviceaccount:"); ok {
		subject = "--serviceaccount=" + account
	}
	return fmt.Sprintf("%s; kubectl -n %s create role %s --verb=get,patch --resource=%ss --resource-name=%s; kubectl -n %s create rolebinding %s --role=%s %s",
		d.creation(), d.Namespace, role, strings.ToLower(d.Kind), d.Name, d.Namespace, role, role, subject)
}

// short keeps a name in a command within bounds, since a condition has room for about a thousand characters.
func short(name string) string {
	const most = 40
	if len(name) <= most {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:most-9], ".-") + "-" + hex.EncodeToString(sum[:4])
}

// creation is the command that creates a destination, empty.
func (d Destination) creation() string {
	what := "configmap"
	if d.Kind == KindSecret {
		what = "secret generic"
	}
	return fmt.Sprintf("kubectl -n %s create %s %s", d.Namespace, what, d.Name)
}

// quote makes a word of text for a shell.
func quote(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789:._-@/", r)
	}) {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
