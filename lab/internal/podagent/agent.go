// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
	"github.com/mooring-dev/mooring/lab/internal/podnet"
)

// machinePoll is how often the list of machines is looked at.
const machinePoll = 200 * time.Millisecond

// Network is where pods get their addresses and network namespaces. *podnet.Network is one.
type Network interface {
	Attach(ctx context.Context, key string) (podnet.Attachment, error)
	Detach(key string) error
}

// Config is what an agent needs.
type Config struct {
	API     kubernetes.Interface
	Network Network
	// Machines returns the list of machines; while it fails, nothing changes.
	Machines func() (machines.List, error)
	Images   image.Table
	// Dir is where pods have their files. It is the agent's alone: what is there when it starts is removed.
	Dir      string
	Launcher container.Launcher
	// Variables are those that every container has, such as the API server's address.
	Variables map[string]string
	// ResolvConf is the /etc/resolv.conf of pods of a namespace.
	ResolvConf func(namespace string) string
	// Certificates is the file of the public certificate authorities; empty if there is none.
	Certificates string
	Logger       logr.Logger
}

// Agent runs pods.
type Agent struct {
	Config
	pods       cache.SharedIndexInformer
	secrets    corelisters.SecretLister
	configMaps corelisters.ConfigMapLister
	events     record.EventRecorder
	host       *hostThread
	// life ends with Run; it is that of the workers, who are started by watches.
	life context.Context

	mu       sync.Mutex // guards what follows
	machines map[string]machines.Machine
	workers  map[types.UID]*worker
	running  sync.WaitGroup
}

// New returns an agent that does nothing before Run.
func New(config Config) *Agent {
	return &Agent{Config: config, machines: map[string]machines.Machine{}, workers: map[types.UID]*worker{}}
}

// Run runs pods until ctx ends, and calls ready once everything that is there has been seen. All programs have ended when it returns; what the API
// server says of their pods stays.
func (a *Agent) Run(ctx context.Context, recorder record.EventRecorder, ready func() error) error {
	a.events = recorder
	if err := a.clear(); err != nil {
		return err
	}
	a.host = newHostThread()
	defer a.host.close()
	ctx, cancel := context.WithCancel(ctx)
	defer a.running.Wait()
	defer cancel()
	a.life = ctx
	if err := a.watch(ctx); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return nil
	}
	a.followMachines()
	if err := ready(); err != nil {
		return fmt.Errorf("saying that pods are run: %w", err)
	}
	ticker := time.NewTicker(machinePoll)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			a.followMachines()
		}
	}
}

// clear removes what an earlier agent has left: files of pods whose programs have ended with it.
func (a *Agent) clear() error {
	if err := os.MkdirAll(a.Dir, 0o700); err != nil {
		return fmt.Errorf("making the pods' folder: %w", err)
	}
	entries, err := os.ReadDir(a.Dir)
	if err != nil {
		return fmt.Errorf("reading the pods' folder: %w", err)
	}
	var errs []error
	for _, entry := range entries {
		errs = append(errs, os.RemoveAll(filepath.Join(a.Dir, entry.Name())))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("removing an earlier agent's files: %w", err)
	}
	return nil
}

// watch starts the watches and waits until each has seen all that there is.
func (a *Agent) watch(ctx context.Context) error {
	bound := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
	}
	a.pods = coreinformers.NewFilteredPodInformer(a.API, metav1.NamespaceAll, 0, cache.Indexers{}, bound)
	factory := informers.NewSharedInformerFactory(a.API, 0)
	secrets, configMaps := factory.Core().V1().Secrets(), factory.Core().V1().ConfigMaps()
	a.secrets, a.configMaps = secrets.Lister(), configMaps.Lister()
	handlers := map[cache.SharedIndexInformer]func(any){
		a.pods: a.seen, secrets.Informer(): a.sourceSeen, configMaps.Informer(): a.sourceSeen,
	}
	var synced []cache.InformerSynced
	for informer, seen := range handlers {
		registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) },
			DeleteFunc: func(obj any) {
				if tombstone, ok := obj.(cache.DeletedFinalStateUnknown); ok {
					obj = tombstone.Obj
				}
				if pod, ok := obj.(*corev1.Pod); ok {
					a.gone(pod)
					return
				}
				seen(obj)
			},
		})
		if err != nil {
			return fmt.Errorf("preparing the watches: %w", err)
		}
		synced = append(synced, registration.HasSynced)
	}
	factory.Start(ctx.Done())
	a.running.Go(func() { a.pods.RunWithContext(ctx) })
	cache.WaitForCacheSync(ctx.Done(), synced...)
	return nil
}

// followMachines reads the list of machines, and looks at all pods anew when it has changed.
func (a *Agent) followMachines() {
	list, err := a.Machines()
	if err != nil {
		return // nothing is known, so nothing is done
	}
	a.mu.Lock()
	changed := len(list.Machines) != len(a.machines)
	current := map[string]machines.Machine{}
	for _, machine := range list.Machines {
		current[machine.Name] = machine
		changed = changed || a.machines[machine.Name] != machine
	}
	a.machines = current
	a.mu.Unlock()
	if !changed {
		return
	}
	for _, obj := range a.pods.GetStore().List() {
		a.seen(obj)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		w.poke()
	}
}

// machine returns the machine of that name; ok is false if there is none, or it is off.
func (a *Agent) machine(name string) (m machines.Machine, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m, ok = a.machines[name]
	return m, ok && m.State != machines.Off
}

// seen gives a pod that is bound to a machine of the lab to its worker, who is made if there is none.
func (a *Agent) seen(obj any) {
	pod, ok := obj.(*corev1.Pod)
	if !ok || pod.Annotations[corev1.MirrorPodAnnotationKey] != "" {
		return
	}
	if _, ok := a.machine(pod.Spec.NodeName); !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	w, ok := a.workers[pod.UID]
	if !ok {
		w = newWorker(a, pod)
		a.workers[pod.UID] = w
		a.running.Go(func() {
			w.run(a.life)
			a.mu.Lock()
			defer a.mu.Unlock()
			delete(a.workers, pod.UID)
		})
	}
	w.update(pod)
}

// gone tells the worker of a pod that the API has forgotten it.
func (a *Agent) gone(pod *corev1.Pod) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w, ok := a.workers[pod.UID]; ok {
		w.forget()
	}
}

// sourceSeen has all pods of the namespace look at their volumes, and at what they wait for.
func (a *Agent) sourceSeen(obj any) {
	object, ok := obj.(metav1.Object)
	if !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, w := range a.workers {
		if w.namespace == object.GetNamespace() {
			w.poke()
		}
	}
}

// secret and configMap return an object, asking the API server itself for one that the watch has not told of: it may have been made a moment ago.
func (a *Agent) secret(ctx context.Context, namespace, name string) (*corev1.Secret, error) {
	secret, err := a.secrets.Secrets(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return a.API.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return secret, err
}

func (a *Agent) configMap(ctx context.Context, namespace, name string) (*corev1.ConfigMap, error) {
	config, err := a.configMaps.ConfigMaps(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return a.API.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	return config, err
}
