// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/internal/testkit"
)

const (
	// lives is how many objects of a chronicle live at once: an older one is deleted.
	lives = 20
	// pace is the pause between two objects, and before an operation that failed is tried again.
	pace = 50 * time.Millisecond
	// callTimeout bounds one attempt of a write: what is not known by then is found out by the next one.
	callTimeout = 20 * time.Second
	stepKey     = "step"
)

// chronicle writes numbered objects through an API server, one after the other: each is created, changed once, and deleted when it is old. An
// operation whose outcome is not known is repeated until it is, in a way that can take effect once only, so watchers must see each one exactly once.
type chronicle struct {
	*testing.T
	client   dynamic.ResourceInterface
	kind     metav1.TypeMeta
	prefix   string
	watchers []*watcher
	stop     chan struct{}
	done     sync.WaitGroup
	// written is how many objects are created and changed; only the writer changes it.
	written atomic.Int64
	// retried is how many attempts have failed.
	retried atomic.Int64
	// versions are the resource versions that the API server answered with, by happening; only for the writer, and for others once it has ended.
	versions map[string]string
}

// begin begins a chronicle with two watchers: one that stays for as long as it is let, and one that ends its watch and resumes every other second.
func begin(t *testing.T, client dynamic.ResourceInterface, kind metav1.TypeMeta, prefix string) *chronicle {
	t.Helper()
	c := &chronicle{T: t, client: client, kind: kind, prefix: prefix, stop: make(chan struct{}), versions: map[string]string{}}
	var from string
	testkit.Eventually(t, "a list of "+prefix, func() string {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		from = list.GetResourceVersion()
		return ""
	})
	restless := int64(2)
	for _, timeout := range []*int64{nil, &restless} {
		w := &watcher{client: client, last: from, timeout: timeout, prefix: prefix}
		c.watchers = append(c.watchers, w)
		go w.run(t.Context())
	}
	t.Cleanup(c.done.Wait)
	c.done.Go(c.write)
	return c
}

func (c *chronicle) write() {
	for i := 1; ; i++ {
		select {
		case <-c.stop:
			return
		case <-c.Context().Done():
			return
		case <-time.After(pace):
		}
		c.settle(func(ctx context.Context, again bool) error { return c.create(ctx, c.name(i), again) })
		c.settle(func(ctx context.Context, _ bool) error { return c.change(ctx, c.name(i)) })
		c.written.Store(int64(i))
		if old := i - lives; old > 0 {
			c.settle(func(ctx context.Context, again bool) error {
				err := c.client.Delete(ctx, c.name(old), metav1.DeleteOptions{})
				if again && apierrors.IsNotFound(err) {
					return nil
				}
				return err
			})
		}
	}
}

func (c *chronicle) name(i int) string { return fmt.Sprintf("%s-%06d", c.prefix, i) }

// settle attempts an operation until it is known to have taken effect. again says that an earlier attempt may have.
func (c *chronicle) settle(attempt func(ctx context.Context, again bool) error) {
	for again := false; c.Context().Err() == nil; again = true {
		ctx, cancel := context.WithTimeout(c.Context(), callTimeout)
		err := attempt(ctx, again)
		cancel()
		if err == nil || c.Context().Err() != nil {
			return
		}
		c.retried.Add(1)
		c.Logf("%s: %v", c.prefix, err)
		select {
		case <-c.Context().Done():
		case <-time.After(pace):
		}
	}
}

func (c *chronicle) create(ctx context.Context, name string, again bool) error {
	object := &unstructured.Unstructured{Object: map[string]any{"apiVersion": c.kind.APIVersion, "kind": c.kind.Kind}}
	object.SetName(name)
	object.SetAnnotations(map[string]string{stepKey: "1"})
	made, err := c.client.Create(ctx, object, metav1.CreateOptions{})
	if again && apierrors.IsAlreadyExists(err) {
		return nil
	}
	if err == nil {
		c.versions[happening(watch.Added, name)] = made.GetResourceVersion()
	}
	return err
}

func (c *chronicle) change(ctx context.Context, name string) error {
	object, err := c.client.Get(ctx, name, metav1.GetOptions{})
	if err != nil || object.GetAnnotations()[stepKey] == "2" {
		return err
	}
	object.SetAnnotations(map[string]string{stepKey: "2"})
	changed, err := c.client.Update(ctx, object, metav1.UpdateOptions{})
	if err == nil {
		c.versions[happening(watch.Modified, name)] = changed.GetResourceVersion()
	}
	return err
}

// progress waits until so many more objects are written and both watchers have seen them.
func (c *chronicle) progress(objects int) {
	c.Helper()
	goal := int(c.written.Load()) + objects
	testkit.Eventually(c, fmt.Sprintf("%d objects of %s", goal, c.prefix), func() string {
		if written := int(c.written.Load()); written < goal {
			return fmt.Sprintf("%d are written, after %d failed attempts", written, c.retried.Load())
		}
		for i, w := range c.watchers {
			if seen, _ := w.seen(); seen[happening(watch.Modified, c.name(goal))] == "" {
				return fmt.Sprintf("watcher %d has not seen it: %s", i, w)
			}
		}
		return ""
	})
}

// end ends the writer and holds against each other what it has written, what is there and what the watchers have seen.
func (c *chronicle) end() {
	c.Helper()
	close(c.stop)
	c.done.Wait()
	written := int(c.written.Load())
	want := map[string]bool{}
	var alive []string
	for i := 1; i <= written; i++ {
		want[happening(watch.Added, c.name(i))], want[happening(watch.Modified, c.name(i))] = true, true
		if i <= written-lives {
			want[happening(watch.Deleted, c.name(i))] = true
		} else {
			alive = append(alive, c.name(i))
		}
	}
	c.listed(alive)
	for i, w := range c.watchers {
		testkit.Eventually(c, fmt.Sprintf("all events of %s at watcher %d", c.prefix, i), func() string {
			seen, problems := w.seen()
			if len(problems) > 0 {
				c.Fatalf("watcher %d of %s: %s", i, c.prefix, strings.Join(problems, "; "))
			}
			for event := range want {
				if seen[event] == "" {
					return fmt.Sprintf("it has not seen: %s; %s", event, w)
				}
			}
			return ""
		})
		seen, _ := w.seen()
		for event, version := range seen {
			if !want[event] {
				c.Errorf("watcher %d of %s has seen what was not done: %s", i, c.prefix, event)
			}
			if acknowledged := c.versions[event]; acknowledged != "" && acknowledged != version {
				c.Errorf("watcher %d of %s has seen %s with version %s, and it was acknowledged with %s", i, c.prefix, event, version, acknowledged)
			}
		}
	}
	c.Logf("%s: %d objects, %d failed attempts; %s; %s", c.prefix, written, c.retried.Load(), c.watchers[0], c.watchers[1])
}

// listed sees that exactly these objects are there, as they were changed.
func (c *chronicle) listed(alive []string) {
	c.Helper()
	list, err := c.client.List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	var got []string
	for _, item := range list.Items {
		if !strings.HasPrefix(item.GetName(), c.prefix+"-") {
			continue
		}
		got = append(got, item.GetName())
		if step := item.GetAnnotations()[stepKey]; step != "2" {
			c.Errorf("%s is at step %q: an acknowledged change is lost", item.GetName(), step)
		}
	}
	if strings.Join(got, " ") != strings.Join(alive, " ") {
		c.Errorf("there are %v, and %v should be", got, alive)
	}
}

// happening names what can happen to an object once.
func happening(kind watch.EventType, name string) string { return string(kind) + " " + name }

// watcher records the events of a resource. When its watch ends it resumes from the last version it has seen, as an informer does; it never
// lists again.
type watcher struct {
	client  dynamic.ResourceInterface
	prefix  string
	timeout *int64

	mutex    sync.Mutex
	last     string
	events   map[string]string // the version of each happening
	problems []string
	watches  int
}

func (w *watcher) String() string {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return fmt.Sprintf("%d events in %d watches and one more, the last at %s, %v", len(w.events), w.watches, w.last, w.problems)
}

func (w *watcher) seen() (events map[string]string, problems []string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return maps.Clone(w.events), slices.Clone(w.problems)
}

func (w *watcher) run(ctx context.Context) {
	for ctx.Err() == nil {
		stream, err := w.client.Watch(ctx, metav1.ListOptions{ResourceVersion: w.last, AllowWatchBookmarks: true, TimeoutSeconds: w.timeout})
		if err == nil {
			for event := range stream.ResultChan() {
				if err = apierrors.FromObject(event.Object); event.Type == watch.Error {
					break
				}
				err = nil
				w.record(event)
			}
			stream.Stop()
		}
		w.mutex.Lock()
		w.watches++
		if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			w.problems = append(w.problems, fmt.Sprintf("it cannot resume from %s: %v", w.last, err))
		}
		w.mutex.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
	}
}

func (w *watcher) record(event watch.Event) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	object, ok := event.Object.(*unstructured.Unstructured)
	if !ok {
		w.problems = append(w.problems, fmt.Sprintf("an event holds a %T", event.Object))
		return
	}
	version := object.GetResourceVersion()
	bookmark := event.Type == watch.Bookmark
	if number(version) < number(w.last) || !bookmark && version == w.last {
		w.problems = append(w.problems, fmt.Sprintf("after %s came %s %s at %s", w.last, event.Type, object.GetName(), version))
	}
	w.last = version
	if bookmark || !strings.HasPrefix(object.GetName(), w.prefix+"-") {
		return
	}
	name := happening(event.Type, object.GetName())
	if w.events == nil {
		w.events = map[string]string{}
	}
	if earlier := w.events[name]; earlier != "" {
		w.problems = append(w.problems, fmt.Sprintf("%s came twice, at %s and %s", name, earlier, version))
	}
	w.events[name] = version
}

func number(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // etcd's revisions; "" is before all
	return n
}
