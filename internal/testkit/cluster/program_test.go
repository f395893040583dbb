// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/internal/testkit/cluster"
)

// What is refused changes nothing: it is not a write at which a program dies, whether the API server refuses it or another one.
func TestRefusedWritesDoNotCount(t *testing.T) {
	t.Parallel()
	c := cluster.New(t)
	p := c.Program(t, cluster.Death{Write: 3, After: true})
	var seen []string
	p.Look(func(write string) { seen = append(seen, write) })
	maps := kubernetes.NewForConfigOrDie(p.Config()).CoreV1().ConfigMaps("default")
	create := func(name string) error {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
		_, err := maps.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	}
	if err := create("a"); err != nil {
		t.Fatal(err)
	}
	if err := create("a"); !apierrors.IsAlreadyExists(err) {
		t.Errorf("the same again: %v", err)
	}
	refusal := errors.New("no")
	if err := p.Call("PUT /etcd/a", func() error { return refusal }); !errors.Is(err, refusal) {
		t.Errorf("what etcd refuses: %v", err)
	}
	if err := p.Call("PUT /etcd/a", func() error { return nil }); err != nil || p.Died() {
		t.Errorf("the second write: %v, died: %t", err, p.Died())
	}
	if err := create("b"); !errors.Is(err, cluster.ErrDead) || !p.Died() {
		t.Errorf("the third write: %v, died: %t", err, p.Died())
	}
	if _, err := c.Client.CoreV1().ConfigMaps("default").Get(t.Context(), "b", metav1.GetOptions{}); err != nil {
		t.Errorf("it died after the write, which was not done: %v", err)
	}
	if err := create("c"); !errors.Is(err, cluster.ErrDead) {
		t.Errorf("a dead program writes: %v", err)
	}
	const posts = "POST /api/v1/namespaces/default/configmaps"
	if want := []string{posts, "PUT /etcd/a", posts}; !slices.Equal(p.Done(), want) || !slices.Equal(seen, want) {
		t.Errorf("done: %v, seen: %v, want %v", p.Done(), seen, want)
	}
}
