// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package eventsign_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/internal/platform/eventsign"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func newSigner(t *testing.T) *eventsign.Signer {
	t.Helper()
	s := must.Get(eventsign.New()).Or(t)
	return s
}

// recorded is an Event that client-go's recorder has sent through the Signer, as often as times says, as one that
// counts.
func recorded(t *testing.T, s *eventsign.Signer, times int32) corev1.Event {
	t.Helper()
	client := fake.NewClientset()
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: s.Client(client).CoreV1().Events("")})
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "c"})
	for range times {
		recorder.Event(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1"}}, corev1.EventTypeWarning, "R", "words")
	}
	var event corev1.Event
	testkit.Eventually(t, "the Event", func() string {
		list, err := client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 || list.Items[0].Count != times {
			return fmt.Sprintf("%+v, %v", list, err)
		}
		event = list.Items[0]
		return ""
	})
	return event
}

func TestWhatTheRecorderSendsIsSigned(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	keys := eventsign.KeysOf(s.Publish(nil))
	for _, times := range []int32{1, 3} {
		if e := recorded(t, s, times); !keys.Signed(&e) {
			t.Errorf("counted %d times it is not signed: %+v", times, e)
		}
	}
}

// Whoever may write Events can copy one, with its signature, and change it.
func TestACopyIsNotSigned(t *testing.T) {
	t.Parallel()
	s := newSigner(t)
	keys, event := eventsign.KeysOf(s.Publish(nil)), recorded(t, s, 1)
	for name, change := range map[string]func(e *corev1.Event){
		"no signature":   func(e *corev1.Event) { e.Annotations = nil },
		"half of one":    func(e *corev1.Event) { e.Annotations = map[string]string{eventsign.SignatureAnnotation: "AAAA"} },
		"none":           func(e *corev1.Event) { e.Annotations = map[string]string{eventsign.SignatureAnnotation: "?"} },
		"name":           func(e *corev1.Event) { e.Name += "0" },
		"namespace":      func(e *corev1.Event) { e.Namespace = "other" },
		"object":         func(e *corev1.Event) { e.InvolvedObject.Name = "other" },
		"kind":           func(e *corev1.Event) { e.InvolvedObject.Kind = "Node" },
		"UID":            func(e *corev1.Event) { e.InvolvedObject.UID = "2" },
		"type":           func(e *corev1.Event) { e.Type = corev1.EventTypeNormal },
		"reason":         func(e *corev1.Event) { e.Reason = "S" },
		"message":        func(e *corev1.Event) { e.Message += "!" },
		"source":         func(e *corev1.Event) { e.Source.Component = "d" },
		"reported by":    func(e *corev1.Event) { e.ReportingController = "d" },
		"made recent":    func(e *corev1.Event) { e.LastTimestamp.Time = e.LastTimestamp.Add(time.Hour) },
		"made old":       func(e *corev1.Event) { e.FirstTimestamp.Time = e.FirstTimestamp.Add(-time.Hour) },
		"counted higher": func(e *corev1.Event) { e.Count++ },
	} {
		changed := event.DeepCopy()
		change(changed)
		if keys.Signed(changed) {
			t.Errorf("%s: it counts as signed", name)
		}
	}
	if (eventsign.Keys)(nil).Signed(&event) || eventsign.KeysOf(newSigner(t).Publish(nil)).Signed(&event) {
		t.Error("it is signed by nobody, or by somebody else")
	}
}

// A Lease keeps the keys of the last eight processes, the newest first, and reads what is no key as none.
func TestALeaseKeepsTheLastKeys(t *testing.T) {
	t.Parallel()
	annotations := map[string]string{eventsign.KeysAnnotation: "nonsense AAAA"}
	var all []string
	var events []corev1.Event
	for range 10 {
		s := newSigner(t)
		annotations = s.Publish(s.Publish(annotations))
		all = slices.Insert(all, 0, strings.Fields(annotations[eventsign.KeysAnnotation])[0])
		events = append(events, recorded(t, s, 1))
	}
	if got := strings.Fields(annotations[eventsign.KeysAnnotation]); !slices.Equal(got, all[:8]) {
		t.Errorf("kept are %v, want %v", got, all[:8])
	}
	keys := eventsign.KeysOf(annotations)
	for i := range events {
		if got, want := keys.Signed(&events[i]), i >= 2; got != want {
			t.Errorf("the Event of process %d: signed %v", i, got)
		}
	}
}
