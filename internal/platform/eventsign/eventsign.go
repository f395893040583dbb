// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package eventsign shows which Events a component recorded. An Event about an object is in the object's namespace, where
// others may write Events that name any source (ADR 35).
//
//	component: key made at start ─► public key on its Lease ─► each Event with a signature of what it says
//	reader:    Lease, which only the component may write ─► public keys ─► [Keys.Signed]
//
// A copy proves nothing: its name, its object, its words and its times are signed. A private key never leaves the memory of
// its process; the Lease keeps the public keys of the last processes, since their Events outlive them for an hour.
package eventsign

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
)

const (
	// SignatureAnnotation is on an Event: the signature, as base64.
	SignatureAnnotation = "mooring.dev/event-signature"
	// KeysAnnotation is on a component's Lease: the public keys of its last processes as base64, the newest first, with
	// spaces in between.
	KeysAnnotation = "mooring.dev/event-keys"
	// keptKeys is how many public keys a Lease keeps.
	keptKeys = 8
)

// Signer signs the Events of one process.
type Signer struct {
	key    ed25519.PrivateKey
	public string
}

// New makes a Signer with a key of its own. The error is that of the system's source of randomness.
func New() (*Signer, error) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("making the key that signs Events: %w", err)
	}
	return &Signer{key: key, public: base64.StdEncoding.EncodeToString(public)}, nil
}

// Publish returns a Lease's annotations with the Signer's public key as the newest.
func (s *Signer) Publish(annotations map[string]string) map[string]string {
	if annotations == nil {
		annotations = map[string]string{}
	}
	keys := slices.DeleteFunc(strings.Fields(annotations[KeysAnnotation]), func(k string) bool { return k == s.public })
	keys = slices.Insert(keys, 0, s.public)
	annotations[KeysAnnotation] = strings.Join(keys[:min(len(keys), keptKeys)], " ")
	return annotations
}

// Keys are public keys.
type Keys []ed25519.PublicKey

// KeysOf reads the public keys in a Lease's annotations. What is none is left out.
func KeysOf(annotations map[string]string) Keys {
	var keys Keys
	for text := range strings.FieldsSeq(annotations[KeysAnnotation]) {
		if key, err := base64.StdEncoding.DecodeString(text); err == nil && len(key) == ed25519.PublicKeySize {
			keys = append(keys, key)
		}
	}
	return keys
}

// Signed reports whether the holder of one of the keys has recorded the Event as it is.
func (k Keys) Signed(e *corev1.Event) bool {
	signature, err := base64.StdEncoding.DecodeString(e.Annotations[SignatureAnnotation])
	if err != nil || len(signature) != ed25519.SignatureSize {
		return false
	}
	text := signedText(e)
	return slices.ContainsFunc(k, func(key ed25519.PublicKey) bool { return ed25519.Verify(key, text, signature) })
}

// sign returns the annotations of an Event with its signature.
func (s *Signer) sign(e *corev1.Event) map[string]string {
	annotations := map[string]string{}
	maps.Copy(annotations, e.Annotations)
	annotations[SignatureAnnotation] = base64.StdEncoding.EncodeToString(ed25519.Sign(s.key, signedText(e)))
	return annotations
}

// signedText is all of an Event that a reader goes by. Times are whole seconds, as the API server keeps them.
func signedText(e *corev1.Event) []byte {
	about := e.InvolvedObject
	text, _ := json.Marshal([]any{ // strings and numbers alone: it never fails
		"mooring event 1", e.Namespace, e.Name, about.Kind, about.Namespace, about.Name, about.UID, e.Type, e.Reason, e.Message,
		e.Source.Component, e.ReportingController, e.Count, e.FirstTimestamp.Unix(), e.LastTimestamp.Unix(),
	})
	return text
}

// Client is a client whose Events are signed: those that a recorder of client-go sends (tools/record, EventSinkImpl).
func (s *Signer) Client(client kubernetes.Interface) kubernetes.Interface {
	return signingClient{Interface: client, signer: s}
}

type signingClient struct {
	kubernetes.Interface
	signer *Signer
}

// CoreV1 implements kubernetes.Interface.
func (c signingClient) CoreV1() typedcorev1.CoreV1Interface {
	return signingCore{CoreV1Interface: c.Interface.CoreV1(), signer: c.signer}
}

type signingCore struct {
	typedcorev1.CoreV1Interface
	signer *Signer
}

// Events implements typedcorev1.EventsGetter.
func (c signingCore) Events(namespace string) typedcorev1.EventInterface {
	return signingEvents{EventInterface: c.CoreV1Interface.Events(namespace), signer: c.signer}
}

type signingEvents struct {
	typedcorev1.EventInterface
	signer *Signer
}

// CreateWithEventNamespace implements typedcorev1.EventExpansion, as client-go's sink of Events calls it.
func (e signingEvents) CreateWithEventNamespace(event *corev1.Event) (*corev1.Event, error) {
	return e.CreateWithEventNamespaceWithContext(context.Background(), event)
}

// CreateWithEventNamespaceWithContext implements typedcorev1.EventExpansion.
func (e signingEvents) CreateWithEventNamespaceWithContext(ctx context.Context, event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	event.Annotations = e.signer.sign(event)
	return e.EventInterface.CreateWithEventNamespaceWithContext(ctx, event) //nolint:wrapcheck // the recorder judges its type
}

// PatchWithEventNamespace implements typedcorev1.EventExpansion, as client-go's sink of Events calls it.
func (e signingEvents) PatchWithEventNamespace(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return e.PatchWithEventNamespaceWithContext(context.Background(), event, data)
}

// PatchWithEventNamespaceWithContext implements typedcorev1.EventExpansion. The event is what the patch leads to.
func (e signingEvents) PatchWithEventNamespaceWithContext(ctx context.Context, event *corev1.Event, data []byte) (*corev1.Event, error) {
	signature, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": e.signer.sign(event)}})
	if err != nil {
		return nil, fmt.Errorf("signing the patch of Event %s/%s: %w", event.Namespace, event.Name, err)
	}
	if data, err = jsonpatch.MergeMergePatches(data, signature); err != nil {
		return nil, fmt.Errorf("signing the patch of Event %s/%s: %w", event.Namespace, event.Name, err)
	}
	return e.EventInterface.PatchWithEventNamespaceWithContext(ctx, event, data) //nolint:wrapcheck // the recorder judges its type
}
