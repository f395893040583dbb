// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/podstatus"
)

const (
	// callTimeout bounds the calls of one step.
	callTimeout = 30 * time.Second
	// retryPause is the pause after a step that failed; most of what a pod waits for wakes its worker, too.
	retryPause = time.Second
	// defaultGrace is that of a pod which the API has forgotten (kubelet: the spec's own, which the API server sets to 30 s).
	defaultGrace = 30 * time.Second
)

// worker runs one pod. Everything is done by the goroutine of run; others only tell it that something has changed.
type worker struct {
	*Agent
	namespace, name string
	uid             types.UID
	dir             string
	wake            chan struct{}

	mu   sync.Mutex // guards what others tell
	pod  *corev1.Pod
	gone bool

	// What follows is run's alone.
	starter container.Starter // the pod's network, nil before it has one
	address netip.Addr
	mounted bool
	tokens  map[string]token
	init    []*task
	main    []*task
	// stopSince is when the pod began to end.
	stopSince time.Time
	// trouble is what keeps containers from being started, told once as an event.
	trouble string
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	w := &worker{
		Agent: a, namespace: pod.Namespace, name: pod.Name, uid: pod.UID, dir: filepath.Join(a.Dir, string(pod.UID)),
		wake: make(chan struct{}, 1), pod: pod, tokens: map[string]token{},
	}
	for _, c := range pod.Spec.InitContainers {
		w.init = append(w.init, newTask(w, c, true, pod.Status.InitContainerStatuses))
	}
	for _, c := range pod.Spec.Containers {
		w.main = append(w.main, newTask(w, c, false, pod.Status.ContainerStatuses))
	}
	return w
}

// poke has the worker look again.
func (w *worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default: // it will look anyhow
	}
}

func (w *worker) update(pod *corev1.Pod) {
	w.mu.Lock()
	w.pod = pod
	w.mu.Unlock()
	w.poke()
}

func (w *worker) forget() {
	w.mu.Lock()
	w.gone = true
	w.mu.Unlock()
	w.poke()
}

func (w *worker) read() (pod *corev1.Pod, gone bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pod, w.gone
}

// run looks and acts until there is nothing left of the pod, or ctx ends; then its programs end at once.
func (w *worker) run(ctx context.Context) {
	for {
		stepping, cancel := context.WithTimeout(ctx, callTimeout)
		next, done := w.step(stepping)
		cancel()
		if done {
			return
		}
		timer := time.NewTimer(time.Until(next))
		select {
		case <-ctx.Done():
			timer.Stop()
			w.end()
			return
		case <-w.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// idle is when a worker looks again although nobody has told it to.
func idle(now time.Time) time.Time { return now.Add(10 * time.Minute) }

// step does what is missing and returns when to look again, or that there is nothing left to do for ever.
func (w *worker) step(ctx context.Context) (next time.Time, done bool) {
	pod, gone := w.read()
	machine, on := w.machine(pod.Spec.NodeName)
	now := time.Now()
	var err error
	switch {
	case !on:
		w.end()
		return next, true
	case gone:
		next, done, err = w.leave(now, pod)
	case machine.State == machines.Frozen:
		return idle(now), false
	case pod.DeletionTimestamp != nil:
		next, err = w.terminate(ctx, pod, machine, now)
	case kubelet.IsTerminal(pod):
		next, err = idle(now), w.withdraw()
	default:
		next, err = w.converge(ctx, pod, machine, now)
	}
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			w.Logger.Info("A pod is not as it should be yet", "pod", w.namespace+"/"+w.name, "because", err.Error())
		}
		return now.Add(retryPause), false
	}
	return next, done
}

// converge brings a pod that should run on its way.
func (w *worker) converge(ctx context.Context, pod *corev1.Pod, machine machines.Machine, now time.Time) (next time.Time, err error) {
	next = idle(now)
	err = w.connect(ctx, pod, machine)
	seen := w.withAddresses(pod, machine)
	if err == nil {
		var renew time.Time
		renew, err = w.syncVolumes(ctx, seen)
		next = earlier(next, renew)
	}
	if err != nil {
		w.tell(pod, "FailedMount", err)
		next = earlier(next, now.Add(retryPause))
	} else {
		w.trouble = ""
	}
	if err == nil || w.mounted {
		next = earlier(next, w.advance(ctx, seen, now))
	}
	return next, w.report(ctx, pod, w.world(pod, machine, now))
}

// advance advances all containers that may run now.
func (w *worker) advance(ctx context.Context, pod *corev1.Pod, now time.Time) (next time.Time) {
	next = idle(now)
	if w.ended(pod) {
		for _, t := range w.init { // those that run beside the others end after them
			t.stop(now, graceOf(pod))
			next = earlier(next, t.follow(now))
		}
		return next
	}
	for _, t := range w.init {
		next = earlier(next, t.advance(ctx, pod, now))
		if !podstatus.Initialized(t.spec, t.status) {
			return next
		}
	}
	for _, t := range w.main {
		next = earlier(next, t.advance(ctx, pod, now))
	}
	return next
}

// ended reports whether no container will run again, by the restart policy.
func (w *worker) ended(pod *corev1.Pod) bool {
	for _, t := range w.init {
		if !t.sidecar && t.failedForGood(pod) {
			return true
		}
	}
	for _, t := range w.main {
		if t.process != nil || t.status.State.Terminated == nil || t.restarts(pod, int(t.status.State.Terminated.ExitCode)) {
			return false
		}
	}
	return true
}

// world is what the status is made of.
func (w *worker) world(pod *corev1.Pod, machine machines.Machine, now time.Time) podstatus.World {
	world := podstatus.World{
		Host: machine.Address, Address: w.address, Connected: w.starter != nil, Ended: w.ended(pod) && !w.anyRuns(), Now: metav1.NewTime(now),
	}
	for _, t := range w.init {
		world.Init = append(world.Init, t.status)
	}
	for _, t := range w.main {
		world.Containers = append(world.Containers, t.status)
	}
	return world
}

func (w *worker) tasks() []*task { return append(append([]*task{}, w.init...), w.main...) }

func (w *worker) anyRuns() bool {
	for _, t := range w.tasks() {
		if t.process != nil {
			return true
		}
	}
	return false
}

// connect gives the pod its network.
func (w *worker) connect(ctx context.Context, pod *corev1.Pod, machine machines.Machine) error {
	if w.starter != nil {
		return nil
	}
	if pod.Spec.HostNetwork {
		w.starter, w.address = w.host, machine.Address
		return nil
	}
	attachment, err := w.Network.Attach(ctx, string(w.uid))
	if err != nil {
		return fmt.Errorf("connecting the pod: %w", err)
	}
	w.starter, w.address = attachment, attachment.IP
	return nil
}

// withAddresses is the pod with the addresses that its status will have.
func (w *worker) withAddresses(pod *corev1.Pod, machine machines.Machine) *corev1.Pod {
	seen := pod.DeepCopy()
	seen.Status.HostIP, seen.Status.HostIPs = machine.Address.String(), []corev1.HostIP{{IP: machine.Address.String()}}
	if w.address.IsValid() {
		seen.Status.PodIP, seen.Status.PodIPs = w.address.String(), []corev1.PodIP{{IP: w.address.String()}}
	}
	return seen
}

// report writes the status if the API server has another one, of this very pod.
func (w *worker) report(ctx context.Context, pod *corev1.Pod, world podstatus.World) error {
	patch, err := kubelet.PodStatusPatch(pod, podstatus.Make(pod, world))
	if err != nil || patch == nil {
		return err
	}
	written, err := w.API.CoreV1().Pods(w.namespace).Patch(ctx, w.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	switch {
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return nil // it is gone, or its name is another pod's; the watch will tell
	case err != nil:
		return fmt.Errorf("writing the status: %w", err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pod.ResourceVersion == pod.ResourceVersion { // else the watch has told of something newer
		w.pod = written
	}
	return nil
}

// tell tells of trouble, once.
func (w *worker) tell(pod *corev1.Pod, reason string, err error) {
	if text := err.Error(); text != w.trouble {
		w.trouble = text
		w.events.Event(pod, corev1.EventTypeWarning, reason, text)
	}
}

// terminate ends a pod that is being deleted.
func (w *worker) terminate(ctx context.Context, pod *corev1.Pod, machine machines.Machine, now time.Time) (time.Time, error) {
	if next, stopped := w.stopAll(pod, now); !stopped {
		// Kubelet goes on reporting, so that a pod which ends is not ready any more.
		return next, w.report(ctx, pod, w.world(pod, machine, now))
	}
	world := w.world(pod, machine, now)
	world.Ended, world.Connected = true, false
	if err := w.withdraw(); err != nil {
		return time.Time{}, err
	}
	if err := w.report(ctx, pod, world); err != nil {
		return time.Time{}, err
	}
	zero := int64(0)
	err := w.API.CoreV1().Pods(w.namespace).Delete(ctx, w.name, metav1.DeleteOptions{
		GracePeriodSeconds: &zero, Preconditions: metav1.NewUIDPreconditions(string(w.uid)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return time.Time{}, fmt.Errorf("removing the pod: %w", err)
	}
	return idle(now), nil // the watch tells when it is gone
}

// leave ends a pod that the API has forgotten.
func (w *worker) leave(now time.Time, pod *corev1.Pod) (next time.Time, done bool, err error) {
	if next, stopped := w.stopAll(pod, now); !stopped {
		return next, false, nil
	}
	if err := w.withdraw(); err != nil {
		return next, false, err
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return next, false, fmt.Errorf("removing the pod's files: %w", err)
	}
	return next, true, nil
}

// stopAll has all containers end, those that run beside the others last, and reports whether they have.
func (w *worker) stopAll(pod *corev1.Pod, now time.Time) (next time.Time, stopped bool) {
	if w.stopSince.IsZero() {
		w.stopSince = now
	}
	grace := max(0, graceOf(pod)-now.Sub(w.stopSince))
	next, stopped = idle(now), true
	for _, group := range [][]*task{w.main, w.init} {
		for _, t := range group {
			t.stop(now, grace)
			next = earlier(next, t.follow(now))
			stopped = stopped && t.process == nil
		}
		if !stopped {
			break
		}
	}
	return next, stopped
}

// graceOf is how long a pod's programs may take to end: for one that is being deleted what the deletion says.
func graceOf(pod *corev1.Pod) time.Duration {
	switch {
	case pod.DeletionGracePeriodSeconds != nil:
		return time.Duration(*pod.DeletionGracePeriodSeconds) * time.Second
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		return time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second
	default:
		return defaultGrace
	}
}

// withdraw takes the network and the volumes of a pod back whose programs have ended. Its logs stay.
func (w *worker) withdraw() error {
	if w.starter != nil && w.starter != container.Starter(w.host) {
		if err := w.Network.Detach(string(w.uid)); err != nil {
			return err
		}
	}
	w.starter, w.mounted = nil, false
	if err := os.RemoveAll(filepath.Join(w.dir, volumesFolder)); err != nil {
		return fmt.Errorf("removing the pod's volumes: %w", err)
	}
	return nil
}

// end ends everything at once, as the end of the machine does.
func (w *worker) end() {
	for _, t := range w.tasks() {
		t.kill()
	}
	err := errors.Join(w.withdraw(), os.RemoveAll(w.dir))
	if err != nil {
		w.Logger.Error(err, "Removing what is left of a pod", "pod", w.namespace+"/"+w.name)
	}
}

// earlier returns the earlier of two times; the zero time is none.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || !a.IsZero() && a.Before(b) {
		return a
	}
	return b
}
