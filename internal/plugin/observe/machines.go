// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"

	"github.com/sirupsen/logrus" //nolint:depguard // libcalico-go logs through it, to the person at the terminal
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/routereflector"
)

// The cloud component's variables, with its meaning.
const (
	envDOToken     = "DO_ACCESS_TOKEN"
	envDOTokenFile = "DO_ACCESS_TOKEN_FILE"
	envDOURL       = "DO_OVERRIDE_URL"
)

// Where the cloud component keeps whose droplets the cluster's are (package docloud/machines, which links Kubernetes'
// cloud controllers).
const (
	accountLease      = "digitalocean-cloud-controller-manager-account"
	accountAnnotation = "cloud.mooring.dev/account"
	teamAnnotation    = "cloud.mooring.dev/team"
	tokenAnnotation   = "cloud.mooring.dev/token-healthy"
)

// mostAsked bounds how many droplets are asked for by ID: those that a complete list does not have. Others stay
// unknown.
const mostAsked = 50

// uninitializedTaint is on Nodes that wait for a cloud controller (k8s.io/cloud-provider/api).
const uninitializedTaint = "node.cloudprovider.kubernetes.io/uninitialized"

// autoscalerTaint is on Nodes whose machine cluster-autoscaler is about to delete (k8s.io/autoscaler, utils/taints).
const autoscalerTaint = "ToBeDeletedByClusterAutoscaler"

// CalicoKinds is where Calico's kubernetes datastore is.
const CalicoKinds = "crd.projectcalico.org/v1"

// Machines reads every side, DigitalOcean by droplets, or by [Droplets] without it. Calico and topologies are read
// before the Nodes: what they know of a machine by then has its Node by now, if it has one.
func Machines(
	ctx context.Context, c *Cluster, now clock.PassiveClock, droplets func(context.Context, []*corev1.Node) (agreement.Cloud, error),
) (w agreement.World, err error) {
	if w.Calico, err = readCalico(ctx, c); err != nil {
		return w, err
	}
	topologies, _, err := c.Topologies(ctx)
	w.Reflectors = reflectorsFrom(topologies, err)
	nodes, err := c.Nodes(ctx)
	if err != nil {
		return w, err
	}
	for _, n := range nodes {
		w.Nodes = append(w.Nodes, AgreementNode(n))
	}
	if droplets == nil {
		w.Cloud, err = Droplets(ctx, c, nodes, now)
	} else {
		w.Cloud, err = droplets(ctx, nodes)
	}
	if err != nil {
		return w, err
	}
	w.CleanUps, w.Unwatched = cleanUps(ctx, c, w, now), c.unwatched(ctx, now)
	w.Now = c.ServerTime(now.Now())
	return w, nil
}

// unwatched is why nobody makes Nodes NotReady: kube-controller-manager, which does, no longer renews its Lease.
// Without such a Lease, or the right to read it, nothing is known of it, as where it elects no leader.
func (c *Cluster) unwatched(ctx context.Context, now clock.PassiveClock) string {
	const name = "kube-controller-manager"
	lease, err := c.Typed.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return ""
	}
	l, at := LeaseOf(lease), c.ServerTime(now.Now())
	if !l.Stale(at) {
		return ""
	}
	return fmt.Sprintf("%s, which makes Nodes NotReady, renewed its Lease %s ago", name, prose.Span(at.Sub(l.Renewed)))
}

// Datastore is Calico's by --datastore-type, "" without that flag, and the environment, the kubernetes one where they
// name none.
func Datastore(kind string) (calico.Config, error) {
	config, err := calico.ResolveOrKubernetes(kind, os.LookupEnv)
	if config.Kind == calico.EtcdV3 {
		logrus.SetOutput(io.Discard) // libcalico-go's; what cannot be read is said
	}
	return config, err
}

// AgreementNode is a Node as far as it is compared with other sides.
func AgreementNode(n *corev1.Node) agreement.Node {
	known := routereflector.NodeFrom(n, 0, 0)
	out := agreement.Node{
		Name: n.Name, ProviderID: n.Spec.ProviderID, Created: n.CreationTimestamp.Time, Ready: string(known.Ready), ReadySince: known.ReadySince,
		Deleting: known.Deleting, ClusterID: known.ClusterID, Reflector: n.Labels[v1alpha1.ReflectorLabel],
		Uninitialized: slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == uninitializedTaint }),
		Leaving:       n.Spec.Unschedulable || slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == autoscalerTaint }),
	}
	if at := n.DeletionTimestamp; at != nil {
		out.DeletedAt = at.Time
	}
	if address := known.IPv4; address.IsValid() {
		out.Address = address.String()
	} else if known.IPv6.IsValid() {
		out.Address = known.IPv6.String()
	}
	return out
}

// reflectorsFrom is what a list of the topologies says. A cluster without that kind has none, which was read and is not
// missing.
func reflectorsFrom(list []v1alpha1.RouteReflectorTopology, err error) agreement.Reflectors {
	out := agreement.Reflectors{}
	if err != nil {
		out.Problem = err.Error()
	}
	for _, t := range list {
		out.Topologies = append(out.Topologies, t.Name)
		for _, r := range t.Status.Reflectors {
			out.Reflectors = append(out.Reflectors, agreement.Reflector{
				Topology: t.Name, Node: r.Node, Group: r.Group, ClusterID: r.ClusterID, Role: r.Role,
			})
		}
	}
	return out
}

// readCalico reads the datastore that the environment names, or the kubernetes one. What the environment says wrongly
// is an error; what cannot be read is part of the answer.
func readCalico(ctx context.Context, c *Cluster) (agreement.Calico, error) {
	config, err := Datastore("")
	if err != nil {
		return agreement.Calico{}, err
	}
	out := agreement.Calico{OnNodes: config.Kind == calico.Kubernetes}
	if out.OnNodes {
		if _, err := c.Typed.Discovery().ServerResourcesForGroupVersionWithContext(ctx, CalicoKinds); apierrors.IsNotFound(err) {
			out.NotAsked = "no kinds of Calico; set ETCD_ENDPOINTS for etcdv3"
			return out, nil
		}
	}
	snapshot, err := snapshotOf(ctx, c, config)
	if err != nil {
		return agreement.Calico{OnNodes: out.OnNodes, Side: finding.Side{Problem: OneLine(err)}}, nil
	}
	for _, n := range snapshot.Nodes {
		out.Nodes = append(out.Nodes, agreement.CalicoNode{Name: n.Name, Kubernetes: nodesync.ReferredNode(n.OrchRefs), Host: n.Implied})
	}
	for _, key := range snapshot.Unreadable {
		out.Unreadable = append(out.Unreadable, path.Base(key))
	}
	return out, nil
}

func snapshotOf(ctx context.Context, c *Cluster, config calico.Config) (calico.Snapshot, error) {
	store, err := commands.Connect(config, c.Config)
	if err != nil {
		return calico.Snapshot{}, err
	}
	defer func() { _ = store.Close() }()
	snapshot, err := store.Snapshot(ctx)
	if err != nil || config.Kind == calico.Kubernetes {
		return snapshot, err
	}
	system, err := c.Typed.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
	if err != nil {
		return snapshot, fmt.Errorf("reading namespace kube-system: %w", err)
	}
	if bound := snapshot.ClusterInformation.Annotations[routereflector.BindingAnnotation]; bound != "" && bound != string(system.UID) {
		return snapshot, fmt.Errorf("this etcd belongs to the cluster whose namespace kube-system has UID %s, and this one's has %s", bound, system.UID)
	}
	return snapshot, nil
}

// Droplets asks DigitalOcean, if there is a token. What the variables say wrongly is an error.
func Droplets(ctx context.Context, c *Cluster, nodes []*corev1.Node, now clock.PassiveClock) (agreement.Cloud, error) {
	client, notAsked, err := CloudClient(now)
	if err != nil || client == nil {
		return agreement.Cloud{Side: finding.Side{NotAsked: notAsked}}, err
	}
	w := instance.World{Answers: map[int]instance.Answer{}, Nodes: nodes}
	attached := c.attachedBefore(ctx)
	list, err := ask(ctx, c, client, &w, now)
	if err != nil {
		return agreement.Cloud{Side: finding.Side{Problem: OneLine(err)}}, nil
	}
	out := judged(w, list)
	out.Volumes = attached.beside(ctx, nodes, list)
	return out, nil
}

// CloudClient is DigitalOcean by the environment, nil if there is no token: then notAsked says so. What the variables
// say wrongly is an error.
func CloudClient(c clock.PassiveClock) (client *doapi.Client, notAsked string, err error) {
	token, file := os.Getenv(envDOToken), os.Getenv(envDOTokenFile)
	var source doapi.TokenSource = doapi.StaticToken(token)
	switch {
	case token == "" && file == "":
		return nil, "there is no token in " + envDOToken, nil
	case token != "" && file != "":
		return nil, "", errors.New(envDOToken + " and " + envDOTokenFile + " are both set: unset one of them")
	case file != "":
		if source, err = doapi.NewFileToken(file, c); err != nil {
			return nil, "", err
		}
	default:
		if err := doapi.ValidateToken(token); err != nil {
			return nil, "", fmt.Errorf("the DigitalOcean token in %s: %w", envDOToken, err)
		}
	}
	client, err = doapi.New(doapi.Options{URL: os.Getenv(envDOURL), Token: source, UserAgent: buildinfo.Get().UserAgent(Name)})
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", envDOURL, err)
	}
	return client, "", nil
}

// evidence is by which rules a droplet counts as gone: the cloud component's, but for the pace, since nothing is
// deleted here.
func evidence() instance.Config {
	config := instance.DefaultConfig()
	config.Percent = 100
	return config
}

// ask reads the account, all droplets, and by ID those that the list does not have.
func ask(ctx context.Context, c *Cluster, client *doapi.Client, w *instance.World, now clock.PassiveClock) ([]instance.Droplet, error) {
	var err error
	if w.Recorded, err = c.recordedAccount(ctx); err != nil {
		return nil, err
	}
	if w.Current, err = client.Account(ctx); err != nil {
		return nil, fmt.Errorf("asking for the account: %w", err)
	}
	w.List.At = c.ServerTime(now.Now())
	droplets, err := client.Droplets(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing droplets: %w", err)
	}
	w.List.Complete = true
	for _, d := range droplets {
		w.List.Droplets = append(w.List.Droplets, d.ID)
	}
	w.Now = c.ServerTime(now.Now())
	missing := instance.MakePlan(*w, evidence()).Ask
	for _, id := range missing[:min(len(missing), mostAsked)] {
		at := c.ServerTime(now.Now())
		found, err := client.Droplet(ctx, id)
		switch {
		case err == nil:
			w.Answers[id] = instance.Answer{At: at, Outcome: instance.AnswerFound}
			droplets = append(droplets, found)
		case errors.Is(err, doapi.ErrNotFound):
			w.Answers[id] = instance.Answer{At: at, Outcome: instance.AnswerNotFound}
		default:
			w.Answers[id] = instance.Answer{At: at, Outcome: instance.AnswerFailed, Problem: err.Error()}
		}
	}
	w.Now = c.ServerTime(now.Now())
	return droplets, nil
}

// judged is the cloud component's verdict on each Node.
func judged(w instance.World, droplets []instance.Droplet) agreement.Cloud {
	off := map[int]bool{}
	for _, d := range droplets {
		off[d.ID] = instance.IsShutdown(d)
	}
	var out agreement.Cloud
	for _, v := range instance.MakePlan(w, evidence()).Verdicts {
		out.Droplets = append(out.Droplets, agreement.Droplet{Verdict: v, Off: off[v.Droplet]})
	}
	return out
}
