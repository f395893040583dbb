// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/podstatus"
)

const (
	// firstPause is waited before the second restart of a container in a row, and doubled up to maxPause; one that ran for maxPause begins anew. These
	// are kubelet's with ReduceDefaultCrashLoopBackOffDecay, since people wait for a lab.
	firstPause = time.Second
	maxPause   = time.Minute
	// configPause is waited after a container could not be described; most of what it may lack wakes its worker, too.
	configPause = 5 * time.Second
	// keptLogs is of how many runs the logs are kept: this one and the one before (kubelet: the last terminated container).
	keptLogs = 2
	// messageLimit is how much of a container's last words the status has (kubelet: 4096 bytes of the file, 2048 of the log).
	messageLimit, logMessageLimit = 4096, 2048
)

// Reasons of a container's state, as kubelet and containerd have them.
const (
	reasonCreating  = "ContainerCreating"
	reasonIniting   = "PodInitializing"
	reasonPull      = "ErrImagePull"
	reasonConfig    = "CreateContainerConfigError"
	reasonBackOff   = "CrashLoopBackOff"
	reasonCompleted = "Completed"
	reasonError     = "Error"
	reasonStart     = "StartError"
	reasonUnknown   = "ContainerStatusUnknown"
)

// task is one container of a pod. Only the worker's goroutine uses it.
type task struct {
	w       *worker
	spec    corev1.Container
	initial bool // it is an init container
	sidecar bool
	status  corev1.ContainerStatus

	process   *container.Process // nil while it does not run
	startedAt time.Time
	probes    *probes
	pause     time.Duration
	notBefore time.Time // no start before
	ending    *ending
}

// ending is the end of a container that has been told to end.
type ending struct {
	termAt, killAt     time.Time
	termSent, killSent bool
}

// newTask makes the task of a container; the API server may say something of it, from an earlier agent.
func newTask(w *worker, spec corev1.Container, initial bool, before []corev1.ContainerStatus) *task {
	no := false
	t := &task{w: w, spec: spec, initial: initial, sidecar: initial && podstatus.IsSidecar(spec)}
	t.status = corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, Started: &no}
	reason := reasonCreating
	if !initial && len(w.init) > 0 {
		reason = reasonIniting
	}
	t.status.State.Waiting = &corev1.ContainerStateWaiting{Reason: reason}
	i := slices.IndexFunc(before, func(s corev1.ContainerStatus) bool { return s.Name == spec.Name })
	if i < 0 || before[i].ContainerID == "" {
		return t
	}
	t.goOn(before[i])
	return t
}

// goOn goes on with a container that has run before: all that ran has ended with the agent of that time. Init containers run again, as after a reboot.
func (t *task) goOn(before corev1.ContainerStatus) {
	last := before.LastTerminationState
	switch {
	case before.State.Terminated != nil:
		last = before.State
	case before.State.Running != nil:
		last = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
			ExitCode: 128 + int32(syscall.SIGKILL), Reason: reasonUnknown, Message: "the node agent of the lab has been started anew, and all that it ran has ended",
			StartedAt: before.State.Running.StartedAt, FinishedAt: metav1.Now(), ContainerID: before.ContainerID,
		}}
	}
	if pod, _ := t.w.read(); !t.initial && last.Terminated != nil && !t.restarts(pod, int(last.Terminated.ExitCode)) {
		t.status = before
		t.status.State, t.status.Ready = last, false
		return
	}
	t.status.RestartCount = before.RestartCount + 1
	t.status.LastTerminationState = last
}

// dir is where the container has its files.
func (t *task) dir() string { return filepath.Join(t.w.dir, containersFolder, t.spec.Name) }

// logFile is the log of one of its runs.
func logFile(podDir, container string, run int32) string {
	return filepath.Join(podDir, containersFolder, container, strconv.Itoa(int(run))+".log")
}

func (t *task) messageFile() string { return filepath.Join(t.dir(), "termination-message") }

// advance starts the container if it is time, and otherwise looks after it. It returns when to look again.
func (t *task) advance(ctx context.Context, pod *corev1.Pod, now time.Time) time.Time {
	if t.process != nil {
		t.judge(pod, now)
		next := t.follow(now)
		if t.process != nil {
			return next
		}
		t.afterExit(pod, now)
	}
	if t.status.State.Terminated != nil {
		return idle(now) // for good
	}
	if now.Before(t.notBefore) {
		return t.notBefore
	}
	if problem := t.start(ctx, pod, now); problem != nil {
		t.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: problem.reason, Message: problem.Error()}}
		t.w.tell(pod, "Failed", problem)
		t.notBefore = now.Add(configPause)
		return t.notBefore
	}
	return idle(now)
}

// judge has a container that runs badly end, and says whether it is ready.
func (t *task) judge(pod *corev1.Pod, now time.Time) {
	verdict := t.probes.read()
	if verdict.sick != "" && t.ending == nil {
		t.w.events.Eventf(pod, corev1.EventTypeWarning, "Unhealthy", "Container %s is ended: %s", t.spec.Name, verdict.sick)
		t.stop(now, t.probes.grace(graceOf(pod)))
	}
	started := verdict.started
	t.status.Started = &started
	t.status.Ready = started && verdict.ready && t.ending == nil
}

// stop begins to end the container, or changes how long that may take.
func (t *task) stop(now time.Time, grace time.Duration) {
	if t.process == nil {
		return
	}
	t.status.Ready = false
	killAt := now.Add(grace)
	if t.ending == nil {
		sleep := time.Duration(0)
		if l := t.spec.Lifecycle; l != nil && l.PreStop != nil && l.PreStop.Sleep != nil {
			sleep = time.Duration(l.PreStop.Sleep.Seconds) * time.Second
		}
		t.ending = &ending{termAt: now.Add(min(sleep, grace)), killAt: killAt}
		return
	}
	t.ending.killAt = earlier(t.ending.killAt, killAt)
	t.ending.termAt = earlier(t.ending.termAt, t.ending.killAt)
}

// follow notices the end of the container, and sends what signals are due. It returns when the next one is.
func (t *task) follow(now time.Time) time.Time {
	if t.process == nil {
		return idle(now)
	}
	if exit, ended := t.process.Exit(); ended {
		t.exited(exit)
		return idle(now)
	}
	e := t.ending
	switch {
	case e == nil:
		return idle(now)
	case !now.Before(e.killAt) && !e.killSent:
		e.killSent = true
		t.signal(syscall.SIGKILL)
	case !now.Before(e.termAt) && !e.termSent:
		e.termSent = true
		t.signal(syscall.SIGTERM)
	}
	switch {
	case e.killSent:
		return idle(now)
	case e.termSent:
		return e.killAt
	default:
		return e.termAt
	}
}

func (t *task) signal(signal syscall.Signal) {
	if err := t.process.Signal(signal); err != nil {
		t.w.Logger.Error(err, "Ending a container", "container", t.spec.Name)
	}
}

// exited makes the state of a container that has ended.
func (t *task) exited(exit container.Exit) {
	state := &corev1.ContainerStateTerminated{
		ExitCode: int32(exit.Code), Signal: 0, Reason: reasonCompleted, Message: exit.Problem, //nolint:gosec // exit codes are below 256
		StartedAt: metav1.NewTime(t.startedAt), FinishedAt: metav1.NewTime(exit.At), ContainerID: t.status.ContainerID,
	}
	switch {
	case exit.Problem != "":
		state.Reason = reasonStart
	case exit.Code != 0:
		state.Reason = reasonError
	}
	if state.Message == "" {
		state.Message = t.lastWords(exit.Code != 0)
	}
	no := false
	t.status.State, t.status.Ready, t.status.Started = corev1.ContainerState{Terminated: state}, false, &no
	t.probes.stop()
	t.process, t.probes, t.ending = nil, nil, nil
}

// lastWords is what the container has left to be said of it.
func (t *task) lastWords(failed bool) string {
	content, err := os.ReadFile(t.messageFile())
	if err == nil && len(content) > 0 {
		return string(content[:min(len(content), messageLimit)])
	}
	if !failed || t.spec.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return ""
	}
	content, err = os.ReadFile(logFile(t.w.dir, t.spec.Name, t.status.RestartCount))
	if err != nil {
		return ""
	}
	return string(content[max(0, len(content)-logMessageLimit):])
}

// restarts reports whether the policy has the container start again after this exit code.
func (t *task) restarts(pod *corev1.Pod, code int) bool {
	switch {
	case t.sidecar:
		return true
	case t.initial:
		return code != 0 && pod.Spec.RestartPolicy != corev1.RestartPolicyNever
	case pod.Spec.RestartPolicy == corev1.RestartPolicyNever:
		return false
	case pod.Spec.RestartPolicy == corev1.RestartPolicyOnFailure:
		return code != 0
	default:
		return true
	}
}

// failedForGood reports whether it has failed and will not be started again.
func (t *task) failedForGood(pod *corev1.Pod) bool {
	state := t.status.State.Terminated
	return t.process == nil && state != nil && state.ExitCode != 0 && !t.restarts(pod, int(state.ExitCode))
}

// afterExit has a container wait that is to be started again: not at all the first time, then longer and longer.
func (t *task) afterExit(pod *corev1.Pod, now time.Time) {
	state := t.status.State.Terminated
	if !t.restarts(pod, int(state.ExitCode)) {
		return
	}
	if now.Sub(t.startedAt) >= maxPause {
		t.pause = 0
	}
	t.notBefore = now.Add(t.pause)
	message := fmt.Sprintf("back-off %v restarting failed container=%s pod=%s_%s(%s)", t.pause, t.spec.Name, t.w.name, t.w.namespace, t.w.uid)
	if t.pause > 0 {
		t.w.events.Eventf(pod, corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container %s", t.spec.Name)
	}
	t.pause = min(max(2*t.pause, firstPause), maxPause)
	t.status.LastTerminationState = t.status.State
	t.status.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reasonBackOff, Message: message}}
	t.status.RestartCount++
}

// kill ends the container at once and waits until it has.
func (t *task) kill() {
	if t.process == nil {
		return
	}
	t.signal(syscall.SIGKILL)
	<-t.process.Done()
	exit, _ := t.process.Exit()
	t.exited(exit)
}

// problem is why a container cannot be started.
type problem struct {
	reason string
	error
}

// Unwrap makes errors.Is see the cause.
func (p *problem) Unwrap() error { return p.error }

// start starts the container.
func (t *task) start(ctx context.Context, pod *corev1.Pod, now time.Time) *problem {
	found, err := t.w.Images.Find(t.spec.Image)
	if err != nil {
		return &problem{reasonPull, err}
	}
	spec, err := t.describe(ctx, pod, found)
	if err != nil {
		return &problem{reasonConfig, err}
	}
	probes, err := newProbes(t.spec, t.w.address.String(), t.w.poke)
	if err != nil {
		return &problem{reasonConfig, err}
	}
	if old := logFile(t.w.dir, t.spec.Name, t.status.RestartCount-keptLogs); fileExists(old) {
		_ = os.Remove(old) // it is only in the way
	}
	log, err := os.OpenFile(logFile(t.w.dir, t.spec.Name, t.status.RestartCount), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return &problem{reasonConfig, fmt.Errorf("opening the log: %w", err)}
	}
	process, err := container.Start(t.w.starter, t.w.Launcher, spec, filepath.Join(t.dir(), "spec.json"), log)
	if err := errors.Join(err, log.Close()); process == nil {
		return &problem{reasonStart, err}
	}
	t.process, t.probes, t.startedAt = process, probes, now
	t.status.ContainerID = fmt.Sprintf("process://%s-%s-%d", t.w.uid, t.spec.Name, t.status.RestartCount)
	t.status.ImageID = found.Program
	t.status.State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(now)}}
	t.probes.start() //nolint:contextcheck // they are asked for as long as the container runs, not as long as this step takes
	t.judge(pod, now)
	t.w.events.Eventf(pod, corev1.EventTypeNormal, "Started", "Container %s runs as process %d", t.spec.Name, process.PID())
	go func() {
		<-process.Done()
		t.w.poke()
	}()
	return nil
}
