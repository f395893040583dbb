// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/estate"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/volumes"
)

// ErrNoToken is that DigitalOcean is not queried.
var ErrNoToken = errors.New("DigitalOcean is not queried")

// Estate is what was read of DigitalOcean, and of what in the cluster refers to it.
type Estate struct {
	World  estate.World
	client *doapi.Client
	clock  clock.PassiveClock
	// notRead are the sides that were not read, volumes and snapshots apart.
	notRead []string
	// Recorded reports that the token is known to be of the cluster's account.
	Recorded bool
}

// ReadEstate reads DigitalOcean, with the token of the environment, and then the cluster: what a list shows has its
// record by then. It is [ErrNoToken] without a token. A list of DigitalOcean that fails is in the World, with why.
func ReadEstate(ctx context.Context, c *Cluster, now clock.PassiveClock) (*Estate, error) {
	client, notAsked, err := CloudClient(now)
	switch {
	case err != nil:
		return nil, err
	case client == nil:
		return nil, fmt.Errorf("%w: %s", ErrNoToken, notAsked)
	}
	e := &Estate{client: client, clock: now}
	if e.Recorded, err = c.SameAccount(ctx, client); err != nil {
		return nil, err
	}
	config, err := c.cloudConfig(ctx)
	if err != nil {
		return nil, err
	}
	w := &e.World
	w.Cluster, w.Firewall, w.Controller, w.NotRead = config.cluster, config.firewall, config.workload, config.notRead
	w.LoadBalancers = estate.Listed(client.LoadBalancers(ctx))
	w.Certificates = estate.Listed(client.Certificates(ctx))
	w.Droplets = estate.Listed(client.Droplets(ctx))
	if w.Firewall.Name != "" {
		w.Firewalls = estate.Listed(client.Firewalls(ctx))
	}
	if w.Sizes, err = doapi.NewCleanup(client).Prices(ctx); err != nil {
		w.NotRead = append(w.NotRead, "prices of droplets: "+OneLine(err))
	}
	e.notRead = w.NotRead
	return e, e.readCluster(ctx, c)
}

// readCluster reads what leads to the estate.
func (e *Estate) readCluster(ctx context.Context, c *Cluster) error {
	w := &e.World
	services, err := All[corev1.Service](ctx, "Services", c.Typed.CoreV1().Services(metav1.NamespaceAll).List)
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return err
	}
	w.Services, w.Machines = services, loadbalancer.DropletsOf(nodes)
	w.NotRead = slices.Clone(e.notRead)
	v, err := Volumes(ctx, c, e.clock)
	if err != nil {
		w.Storage, w.NotRead = nil, append(w.NotRead, storageSide+OneLine(err))
	} else {
		v.Tag = loadbalancer.ClusterTag(w.Cluster.ID)
		r := volumes.Compare(v)
		w.Storage = storage(v, r)
		for _, n := range r.NotRead {
			w.NotRead = append(w.NotRead, storageSide+n)
		}
	}
	w.Now = e.clock.Now()
	return nil
}

// storageSide begins what could not be read of volumes and snapshots.
const storageSide = "volumes: "

// storage translates the verdicts of package volumes.
func storage(w volumes.World, r volumes.Report) []estate.Stored {
	var out []estate.Stored
	for _, v := range r.Volumes {
		s := estate.Stored{Kind: estate.Volume, Name: v.Volume, ID: v.ID, GiB: float64(v.GiB), State: estate.Referenced}
		switch {
		case v.ID == "", v.State == volumes.Gone: // it costs nothing
			continue
		case v.State == volumes.Unclaimed:
			s.State, s.Why, s.Next = stateOfFinding(v.Findings[0])
			if s.State == estate.Unreferenced && v.Droplet != 0 {
				s.State, s.Next = estate.Unknown, "detach it in DigitalOcean's panel, if nothing uses it"
			}
		default:
			s.ReferencedBy = []string{"PersistentVolume " + v.Volume}
			if v.Claim != "" {
				s.ReferencedBy = append(s.ReferencedBy, "claim "+v.Claim)
			}
		}
		out = append(out, s)
	}
	alone := map[string]finding.Verdict{}
	for _, s := range r.Snapshots {
		alone[s.ID] = s.Finding
	}
	owners := map[string]string{}
	for _, content := range w.Contents {
		owners[content.Handle] = "VolumeSnapshotContent " + content.Name
	}
	for _, snapshot := range w.Cloud.Snapshots {
		s := estate.Stored{Kind: estate.Snapshot, Name: snapshot.Name, ID: snapshot.ID, GiB: snapshot.Size, State: estate.Referenced}
		if f, ok := alone[s.ID]; ok {
			s.State, s.Why, s.Next = stateOfFinding(f)
		} else if owners[s.ID] == "" {
			continue
		} else {
			s.ReferencedBy = []string{owners[s.ID]}
		}
		out = append(out, s)
	}
	return out
}

// stateOfFinding is what a finding about something without an owner means.
func stateOfFinding(f finding.Verdict) (state estate.State, why, next string) {
	switch f.State {
	case finding.Disagree:
		return estate.Unreferenced, f.What, ""
	case finding.Settling:
		return estate.Settling, f.What, ""
	default:
		return estate.Unknown, f.What, f.Next
	}
}

// cloudConfig is how the cluster's cloud controller manager is configured, as far as its Deployment shows.
type cloudConfig struct {
	cluster  loadbalancer.Cluster
	firewall firewall.Config
	workload string
	notRead  []string
}

// cloudConfig reads the Deployment in the namespaces that are believed.
func (c *Cluster) cloudConfig(ctx context.Context) (config cloudConfig, err error) {
	env := map[string]corev1.EnvVar{}
	for _, namespace := range c.Namespaces {
		list, err := c.Typed.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return config, fmt.Errorf("listing Deployments in %s: %w", namespace, err)
		}
		for i := range list.Items {
			d := &list.Items[i]
			if container := controllerIn(d); container != nil && config.workload == "" {
				config.workload = "Deployment " + namespace + "/" + d.Name
				for _, v := range container.Env {
					env[v.Name] = v
				}
			}
		}
	}
	config.cluster.ID = config.value(env, "DO_CLUSTER_ID")
	config.firewall.Name = config.value(env, "PUBLIC_ACCESS_FIREWALL_NAME")
	for tag := range strings.SplitSeq(config.value(env, "PUBLIC_ACCESS_FIREWALL_TAGS"), ",") {
		if tag = strings.TrimSpace(tag); tag != "" {
			config.firewall.Tags = append(config.firewall.Tags, tag)
		}
	}
	if config.workload == "" {
		config.notRead = append(config.notRead, "the configuration: there is no Deployment of "+doctor.Cloud+" in the namespaces "+
			strings.Join(c.Namespaces, ", ")+" (--mooring-namespace)")
	}
	return config, nil
}

// value is a variable's value. One that is in another object is not known.
func (c *cloudConfig) value(env map[string]corev1.EnvVar, name string) string {
	if env[name].ValueFrom != nil {
		c.notRead = append(c.notRead, "the configuration: "+name+" of "+c.workload+" is in another object")
	}
	return env[name].Value
}

// controllerIn returns the container of a Deployment that is the cloud controller manager, Mooring's or DigitalOcean's
// own, nil for none.
func controllerIn(d *appsv1.Deployment) *corev1.Container {
	for i, container := range d.Spec.Template.Spec.Containers {
		if doctor.RunsCloud([]doctor.Workload{{Labels: d.Labels, Images: []string{container.Image}}}) {
			return &d.Spec.Template.Spec.Containers[i]
		}
	}
	return nil
}

// Again reads an object by its ID, and then all that may lead to it, and judges again. It is doapi.ErrNotFound if the
// object is gone.
func (e *Estate) Again(ctx context.Context, c *Cluster, o estate.Object) (estate.Report, error) {
	w := &e.World
	var err error
	switch o.Kind {
	case estate.LoadBalancer:
		var seen loadbalancer.Observed
		seen, err = e.client.LoadBalancer(ctx, o.ID)
		w.LoadBalancers.Items = append(slices.DeleteFunc(slices.Clone(w.LoadBalancers.Items),
			func(one loadbalancer.Observed) bool { return one.ID == o.ID }), seen)
	case estate.Certificate:
		var seen loadbalancer.Certificate
		seen, err = doapi.NewCleanup(e.client).Certificate(ctx, o.ID)
		w.Certificates.Items = []loadbalancer.Certificate{seen}
		w.LoadBalancers = estate.Listed(e.client.LoadBalancers(ctx))
	case estate.Volume:
		_, err = e.client.Volume(ctx, o.ID)
	case estate.Snapshot:
		_, err = e.client.VolumeSnapshot(ctx, o.ID)
	case estate.Firewall:
		err = errors.New("a firewall is removed by the cloud controller manager's administrator")
	}
	if err != nil {
		return estate.Report{}, fmt.Errorf("reading %s: %w", o, err)
	}
	if err := e.readCluster(ctx, c); err != nil {
		return estate.Report{}, err
	}
	return estate.Judge(*w), nil
}

// Remove deletes an object at DigitalOcean.
func (e *Estate) Remove(ctx context.Context, o estate.Object) error {
	remove := map[estate.Kind]func(context.Context, string) error{
		estate.LoadBalancer: e.client.DeleteLoadBalancer, estate.Certificate: doapi.NewCleanup(e.client).DeleteCertificate,
		estate.Volume: e.client.DeleteVolume, estate.Snapshot: e.client.DeleteSnapshot,
	}[o.Kind]
	if remove == nil {
		return fmt.Errorf("%s cannot be removed by this command", o)
	}
	if err := remove(ctx, o.ID); err != nil {
		return fmt.Errorf("deleting %s: %w", o, err)
	}
	return nil
}

// RemovableKinds are the words for kinds that can be removed, sorted.
func RemovableKinds() []string { return slices.Sorted(maps.Keys(estate.Removable())) }
