// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/cloud"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

const (
	// pollInterval is how often the story looks at the cluster, the datastore and the log.
	pollInterval = 200 * time.Millisecond
	// quickly bounds what should take seconds; patiently what includes pod garbage collection, a minute and a half at worst.
	quickly   = 5 * time.Minute
	patiently = 10 * time.Minute
	// silence is how long the story may be silent.
	silence = 20 * time.Second
)

// Story is one showing on a running lab.
type Story struct {
	Layout blueprint.Layout
	Lab    folder.Lab
	// Newcomer is the name of the machine to create, Victim of the one to destroy.
	Newcomer, Victim string
	// PodsPerNode is how many pods the lab gives to each machine.
	PodsPerNode int
	Out         io.Writer

	api     kubernetes.Interface
	cloud   *cloud.Client
	calico  *clientv3.Client
	journal *journal
	begin   time.Time
	// address is that of the Service.
	address string
}

// Run tells the story and returns nil if the main job was seen done.
func (s *Story) Run(ctx context.Context) error {
	if s.Lab.CalicoEtcd == nil {
		return errors.New("the story needs a lab with --calico-datastore etcdv3")
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.Layout.Kubeconfig())
	if err != nil {
		return fmt.Errorf("reading %s: %w", s.Layout.Kubeconfig(), err)
	}
	if s.Lab.DigitalOcean == nil {
		return errors.New("the story needs a lab with a cloud; start again with `lab down --delete`")
	}
	if s.cloud, err = cloud.Connect(*s.Lab.DigitalOcean); err != nil {
		return err
	}
	if s.api, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	if s.calico, err = connect(*s.Lab.CalicoEtcd); err != nil {
		return err
	}
	defer func() { _ = s.calico.Close() }()
	if s.journal, err = openJournal(s.Layout.Log(blueprint.CalicoNodeSync)); err != nil {
		return err
	}
	defer s.journal.close()
	s.begin = time.Now()
	for _, part := range []func(context.Context) error{s.introduce, s.askForBalancer, s.awaitAddress} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	before, items, err := s.takeStock(ctx)
	if err != nil {
		return err
	}
	for _, part := range []func(context.Context) error{s.destroy, s.replace, s.showTargets} {
		if err := part(ctx); err != nil {
			return err
		}
	}
	after, err := s.watchCleanUp(ctx)
	if err != nil {
		return err
	}
	return s.verify(before, after, items)
}

// introduce shows the cluster before anything happens.
func (s *Story) introduce(ctx context.Context) error {
	nodes, err := s.api.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	zones, droplets := map[string]bool{}, map[string]bool{}
	for _, node := range nodes.Items {
		zones[node.Labels[corev1.LabelTopologyZone]] = true
		if node.Spec.ProviderID != "" {
			droplets[node.Spec.ProviderID] = true
		}
	}
	snapshot, err := read(ctx, s.calico)
	if err != nil {
		return err
	}
	s.chapter("A cluster")
	s.say("Kubernetes knows %s in %s, on %s of the simulated DigitalOcean.",
		prose.Plural(len(nodes.Items), "Node"), prose.Plural(len(zones), "zone"), prose.Plural(len(droplets), "droplet"))
	s.say("Calico knows %s: %s.", prose.Plural(len(snapshot.Nodes()), "Node"), strings.Join(snapshot.Nodes(), ", "))
	return nil
}

// takeStock shows what Calico holds of the victim and returns the datastore as it is.
func (s *Story) takeStock(ctx context.Context) (Snapshot, []Item, error) {
	before, err := read(ctx, s.calico)
	if err != nil {
		return nil, nil, err
	}
	items, err := before.Of(s.Victim)
	if err != nil {
		return nil, nil, err
	}
	s.chapter("What Calico's datastore holds of %s", s.Victim)
	if len(items) == 0 {
		return nil, nil, fmt.Errorf("calico's datastore holds nothing of %s; start again with `lab down --delete`", s.Victim)
	}
	for _, item := range items {
		s.say("%-18s %s", item.Kind, item.Text)
	}
	s.say("In all %s under %s, of %s in the datastore.",
		prose.Plural(len(items), "thing"), prose.Plural(len(keysOf(items)), "key"), prose.Plural(len(before), "key"))
	return before, items, nil
}

// destroy destroys the machine and waits until its Node goes.
func (s *Story) destroy(ctx context.Context) error {
	s.chapter("The machine is destroyed")
	d, err := s.droplet(ctx)
	if err != nil {
		return err
	}
	if err := s.cloud.Delete(ctx, d); err != nil {
		return err
	}
	s.begin = time.Now()
	s.sayAt("machine %s destroyed: droplet %d is deleted, nothing more is heard of it", s.Victim, d.ID)
	err = s.until(ctx, quickly, "the Node of "+s.Victim+" to become NotReady", func(ctx context.Context) (bool, error) {
		node, err := s.api.CoreV1().Nodes().Get(ctx, s.Victim, metav1.GetOptions{})
		if err != nil {
			return apierrors.IsNotFound(err), ignoreNotFound(err)
		}
		return !isReady(node), nil
	})
	if err != nil {
		return err
	}
	s.sayAt("its Node is NotReady: kube-controller-manager has missed its heartbeats")
	err = s.until(ctx, quickly, "the Node of "+s.Victim+" to go", func(ctx context.Context) (bool, error) {
		_, err := s.api.CoreV1().Nodes().Get(ctx, s.Victim, metav1.GetOptions{})
		return apierrors.IsNotFound(err), ignoreNotFound(err)
	})
	if err != nil {
		return err
	}
	s.sayAt("its Node went: digitalocean-cloud-controller-manager asked DigitalOcean for droplet %d, which responded with 404", d.ID)
	snapshot, err := read(ctx, s.calico)
	if err != nil {
		return err
	}
	items, err := snapshot.Of(s.Victim)
	if err != nil {
		return err
	}
	s.sayAt("Calico still holds %s of it", prose.Plural(len(items), "thing"))
	return nil
}

// watchCleanUp tells what calico-node-sync does until nothing of the victim is left, and returns the datastore as it is then.
func (s *Story) watchCleanUp(ctx context.Context) (Snapshot, error) {
	s.chapter("calico-node-sync follows")
	s.say("It waits for its grace period, and for Kubernetes' pod garbage collection to remove the pods of the missing Node.")
	var after Snapshot
	var left []Item
	var gone time.Time // when nothing of the victim was left
	spoken, told := time.Now(), false
	err := s.until(ctx, patiently, "calico-node-sync to clean up", func(ctx context.Context) (bool, error) {
		snapshot, err := read(ctx, s.calico)
		if err != nil {
			return false, err
		}
		lines, err := s.journal.next()
		if err != nil {
			return false, err
		}
		for _, line := range lines {
			s.sayAt("%s", line)
			spoken, told = time.Now(), told || strings.Contains(line, "remove Calico Node "+s.Victim)
		}
		if time.Since(spoken) > silence {
			s.sayAt("still waiting")
			spoken = time.Now()
		}
		after = snapshot
		if left, err = snapshot.Of(s.Victim); err != nil || len(left) > 0 || len(lines) > 0 {
			return false, err
		}
		if gone.IsZero() {
			gone = time.Now()
		}
		// A step is logged after it is written; a process that was killed in between never logs it.
		return told || time.Since(gone) > silence, nil
	})
	if err != nil {
		for _, item := range left {
			s.say("still there: %s %s", item.Kind, item.Text)
		}
	}
	return after, err
}

// verify compares the datastore with what it was.
func (s *Story) verify(before, after Snapshot, items []Item) error {
	s.chapter("Verification, from the datastore itself")
	left := after.Mentions(s.Victim)
	for _, key := range left {
		s.say("left: %s", key)
	}
	newcomers, err := after.Of(s.Newcomer)
	if err != nil {
		return err
	}
	expected := keysOf(items)
	maps.Copy(expected, keysOf(newcomers))
	if after.bound() && !before.bound() { // on a busy machine it looks around for the first time only after the story has begun
		expected[clusterInformation] = true
	}
	differences := Differences(before, after, expected)
	for _, line := range differences {
		s.say("%s", line)
	}
	others := len(before) - len(keysOf(items))
	if len(left) > 0 || len(differences) > 0 {
		return fmt.Errorf("the job is not done: %s left of %s, and %s of others differ",
			prose.Plural(len(left), "key"), s.Victim, prose.Plural(len(differences), "key"))
	}
	s.say("Nothing of %s is left: no key and no value names it.", s.Victim)
	s.say("Nothing of the others has changed: %s, same values and same revisions.", prose.Plural(others, "key"))
	s.say("Calico knows %s: %s.", prose.Plural(len(after.Nodes()), "Node"), strings.Join(after.Nodes(), ", "))
	return nil
}

// until polls until done says so. A passing error is not the end of the story: the lab's processes may be killed while it is told.
func (s *Story) until(ctx context.Context, patience time.Duration, what string, done func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	var last error
	for {
		ok, err := done(ctx)
		if ok && err == nil {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			err := fmt.Errorf("waiting for %s: %w", what, ctx.Err())
			if last != nil {
				err = fmt.Errorf("%w (last error: %w)", err, last)
			}
			return err
		case <-ticker.C:
		}
	}
}

func (s *Story) chapter(format string, args ...any) { fmt.Fprintf(s.Out, "\n"+format+"\n", args...) }

func (s *Story) say(format string, args ...any) { s.print(fmt.Sprintf("  "+format+"\n", args...)) }

// print writes lines that fit a usual terminal.
func (s *Story) print(text string) {
	const columns = 80
	fmt.Fprint(s.Out, screen.Fold(text, columns))
}

// sayAt says when it happened, in seconds since the machine was destroyed; further lines are indented.
func (s *Story) sayAt(format string, args ...any) {
	text := strings.ReplaceAll(fmt.Sprintf(format, args...), "\n", "\n             ")
	s.print(fmt.Sprintf("  %+7.1f s  %s\n", time.Since(s.begin).Seconds(), text))
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

func keysOf(items []Item) map[string]bool {
	keys := make(map[string]bool, len(items))
	for _, item := range items {
		keys[item.Key] = true
	}
	return keys
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
