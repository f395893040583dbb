// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/sim/kubelet"
	"github.com/mooring-dev/mooring/lab/internal/machines"
)

// OwnerLabel marks Nodes that belong to machines of a lab. This process deletes no other Node.
const OwnerLabel = "lab.mooring.dev/machine"

// SimulatedTaint is on the Nodes of simulated machines where there are real ones, so that the scheduler puts pods where they run.
const SimulatedTaint = "lab.mooring.dev/simulated"

// RealLabel is on the Nodes of real machines, for pods that tolerate every taint.
const RealLabel = "lab.mooring.dev/real"

const (
	// pollInterval is how often the file is looked at.
	pollInterval = 200 * time.Millisecond
	// resyncInterval is how often the cluster is compared with an unchanged list; retryInterval is that after a failure.
	resyncInterval = 30 * time.Second
	retryInterval  = time.Second
	// callTimeout bounds one comparison.
	callTimeout = 30 * time.Second
)

// fleet follows the list of machines.
type fleet struct {
	api       kubernetes.Interface
	kubelets  *kubelet.Fleet
	datastore *caliconode.Datastore // nil without Calico
	// tunnels reports that calico-nodes have tunnel addresses, as in a pool of Calico's manifests. Where the pool gives none they would wait for one.
	tunnels bool
	// families are the families in which machines and pods have addresses: one of blueprint's values.
	families    string
	path        string
	podsPerNode int
	// taints are on the Nodes of these machines from the start.
	taints []corev1.Taint
	// removesNodes reports that there is no cloud controller manager, and nobody else who deletes the Node of a machine that is gone.
	removesNodes bool
	// uninitialized counts machines as up before a cloud controller manager has initialized their Nodes.
	uninitialized bool
	logger        logr.Logger

	// members are the machines that have been switched on. Only the goroutine of follow uses it.
	members  map[string]*member
	agents   sync.WaitGroup
	starting chan struct{}
}

// member is a machine that is switched on.
type member struct {
	machines.Machine
	calico *calicoHost
}

// run follows the list until ctx ends and calls ready once, when all machines of the list are up.
func (f *fleet) run(ctx context.Context, ready func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer f.agents.Wait()
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- f.kubelets.Run(ctx) }()
	followErr := f.follow(ctx, ready)
	cancel()
	return errors.Join(followErr, <-ended)
}

// follow compares the cluster with the list whenever the list changes, and now and then.
func (f *fleet) follow(ctx context.Context, ready func() error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last fingerprint
	var next time.Time
	announced := false
	for {
		current := fingerprintOf(f.path)
		if current != last || time.Now().After(next) {
			last, next = current, time.Now().Add(resyncInterval)
			up, err := f.reconcile(ctx)
			if err != nil && ctx.Err() == nil {
				f.logger.Error(err, "The cluster does not follow the list of machines yet")
			}
			if err != nil || !up {
				next = time.Now().Add(retryInterval)
			}
			if up && err == nil && !announced {
				announced = true
				if err := ready(); err != nil {
					return fmt.Errorf("saying that the machines are up: %w", err)
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// fingerprint changes whenever the file is replaced.
type fingerprint struct {
	modified time.Time
	size     int64
}

func fingerprintOf(path string) fingerprint {
	info, err := os.Stat(path)
	if err != nil {
		return fingerprint{}
	}
	return fingerprint{modified: info.ModTime(), size: info.Size()}
}

// reconcile makes the cluster follow the list and reports whether everything in it is up.
func (f *fleet) reconcile(ctx context.Context) (up bool, err error) {
	list, err := machines.Load(f.path)
	if err != nil {
		return false, err // nothing is known, so nothing is done
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	f.switchOff(list)
	if f.removesNodes {
		if err := f.deleteNodes(ctx, list); err != nil {
			return false, err
		}
	}
	if err := f.switchOn(ctx, list); err != nil {
		return false, err
	}
	return f.furnish(ctx, list)
}

// switchOff ends machines that are no longer in the list, are in it as another machine of the same name, or are switched off.
func (f *fleet) switchOff(list machines.List) {
	for name, m := range f.members {
		wanted, ok := list.Find(name)
		if ok && wanted.Same(m.Machine) && wanted.State != machines.Off {
			continue
		}
		m.calico.stop()
		if err := f.kubelets.Destroy(name); err != nil {
			f.logger.Error(err, "Destroying a machine") // it was never there
		}
		delete(f.members, name)
		f.logger.Info("Machine ended", "machine", name, "off", ok && wanted.State == machines.Off)
	}
}

// switchOn switches on what is new in the list, and freezes and thaws.
func (f *fleet) switchOn(ctx context.Context, list machines.List) error {
	for _, wanted := range list.Machines {
		if wanted.State == machines.Off || wanted.Real {
			continue
		}
		m, ok := f.members[wanted.Name]
		if !ok {
			m = &member{Machine: wanted, calico: f.newCalicoHost(wanted)}
			err := f.kubelets.Add(kubelet.Machine{
				Name: wanted.Name, Zone: wanted.Zone, Address: wanted.Address,
				ExternalCloudProvider: wanted.ExternalCloudProvider,
				Labels:                LabelsOf(wanted),
				Taints:                f.taints,
				PodNetwork:            m.calico.podNetwork(),
			})
			if err != nil {
				return fmt.Errorf("switching on %s: %w", wanted.Name, err)
			}
			f.members[wanted.Name] = m
			m.State = machines.Running
			// The agent outlives this comparison: it is stopped by switchOff or with the process.
			f.agents.Go(func() { m.calico.run(context.WithoutCancel(ctx)) })
			f.logger.Info("Machine switched on", "machine", wanted.Name)
		}
		if m.State == wanted.State {
			continue
		}
		change := f.kubelets.Thaw
		if wanted.State == machines.Frozen {
			change = f.kubelets.Freeze
		}
		if err := change(wanted.Name); err != nil {
			return fmt.Errorf("making %s %s: %w", wanted.Name, wanted.State, err)
		}
		m.State = wanted.State
		f.logger.Info("Machine changed", "machine", wanted.Name, "state", wanted.State)
	}
	return nil
}

// LabelsOf returns what the kubelet of a machine is told to label its Node with. DigitalOcean has no zones, so that anyone who wants the label there
// gives it to the kubelet.
func LabelsOf(machine machines.Machine) map[string]string {
	labels := map[string]string{OwnerLabel: "true"}
	if machine.Real {
		labels[RealLabel] = "true"
	}
	if machine.Droplet != 0 && machine.Zone != "" {
		labels[corev1.LabelTopologyZone] = machine.Zone
	}
	return labels
}

// deleteNodes deletes the Nodes of machines that are gone, where there is no cloud controller manager.
func (f *fleet) deleteNodes(ctx context.Context, list machines.List) error {
	nodes, err := f.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: OwnerLabel + "=true"})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, node := range nodes.Items {
		if machine, exists := list.Find(node.Name); exists && !f.isFormer(node, machine) {
			continue
		}
		if err := f.deleteNode(ctx, node.Name); err != nil {
			return err
		}
	}
	return nil
}

// isFormer reports whether the Node is that of an earlier machine with the name of this one, known by its other address.
func (f *fleet) isFormer(node corev1.Node, machine machines.Machine) bool {
	if f.members[machine.Name] != nil || machine.ExternalCloudProvider || len(node.Status.Addresses) == 0 {
		return false // it is this machine's, or its addresses are the cloud's to say, or not said yet
	}
	return !slices.ContainsFunc(node.Status.Addresses, func(a corev1.NodeAddress) bool {
		return a.Type == corev1.NodeInternalIP && a.Address == machine.Address.String()
	})
}

func (f *fleet) deleteNode(ctx context.Context, name string) error {
	live, err := f.api.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading node %s: %w", name, err)
	}
	if live.Labels[OwnerLabel] != "true" {
		return nil // somebody else's by now
	}
	err = f.api.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(live.UID))})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting node %s: %w", name, err)
	}
	f.logger.Info("Node deleted: its machine is gone", "node", name, "uid", live.UID)
	return nil
}
