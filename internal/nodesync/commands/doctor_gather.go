// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"cmp"
	"context"
	"errors"
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/calico"
	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
)

// questionTimeout bounds each question that doctor asks, so that one server that does not respond costs seconds and not minutes.
const questionTimeout = 10 * time.Second

// examination gathers the evidence of one doctor. No failure ends it: each is part of the evidence. It only reads.
type examination struct {
	*Doctor
	clock clock.WithTicker

	cluster *rest.Config
	api     kubernetes.Interface
	watch   controller.Cluster
	live    client.Client
	config  calico.Config
	store   Datastore
}

// ask puts one question, bounded in time.
func ask[T any](ctx context.Context, question func(context.Context) (T, error)) doctor.Answer[T] {
	return askFor(ctx, questionTimeout, question)
}

func askFor[T any](ctx context.Context, limit time.Duration, question func(context.Context) (T, error)) doctor.Answer[T] {
	if ctx.Err() != nil { // not every client minds it
		return doctor.Answer[T]{}
	}
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	value, err := question(bounded)
	return answer(ctx, value, err)
}

// answer is that to a question. One that was cut short by the end of the whole examination counts as not asked: its failure says nothing about what was asked.
func answer[T any](ctx context.Context, value T, err error) doctor.Answer[T] {
	switch {
	case err == nil:
		return doctor.Answered(value)
	case ctx.Err() != nil:
		return doctor.Answer[T]{}
	}
	return failed[T](err)
}

func failed[T any](err error) doctor.Answer[T] {
	return doctor.Answer[T]{Asked: true, Failure: plain(err), Forbidden: apierrors.IsForbidden(err)}
}

// plain is an error in one line, without client-go's "Get URL:" if a plainer one is inside.
func plain(err error) string {
	if errors.Is(err, context.DeadlineExceeded) {
		return "no response in time"
	}
	return oneLine(err)
}

func (x *examination) gather(ctx context.Context) doctor.Evidence {
	e := doctor.Evidence{Now: x.clock.Now(), Namespace: x.Source.Namespace(ctx), Config: x.Settings.Config, Among: x.Among, ForPerson: x.ForPerson}
	x.gatherSettings(ctx, &e)
	x.gatherKubernetes(ctx, &e)
	x.gatherCertificates(&e)
	if ctx.Err() == nil {
		x.gatherDatastore(ctx, &e)
	}
	if ctx.Err() == nil && x.store != nil && e.Datastore.Failure == "" && x.watch != nil && e.KubernetesNodes.Failure == "" {
		e.Plan = x.plan(ctx)
	}
	return e
}

func (x *examination) close() {
	if x.store != nil {
		_ = x.store.Close()
	}
}

// gatherSettings reads what names the datastore, and nothing else.
func (x *examination) gatherSettings(ctx context.Context, e *doctor.Evidence) {
	config, err := x.Source.Datastore(ctx, x.Settings.Datastore)
	x.config = config
	e.Settings = doctor.Settings{Flag: x.Settings.Datastore, Kind: string(config.Kind), Endpoints: config.Etcd.Endpoints, Variables: map[string]string{}}
	e.Settings.Failure = oneLine(err)
	for _, bare := range doctor.VariableNames() {
		for _, name := range []string{bare, "CALICO_" + bare} {
			value := os.Getenv(name)
			if value != "" && doctor.Secret(name) {
				value = "(set)"
			}
			if value != "" {
				e.Settings.Variables[name] = value
			}
		}
	}
}

// gatherKubernetes asks the API server. If it does not respond at all, it is asked nothing more.
func (x *examination) gatherKubernetes(ctx context.Context, e *doctor.Evidence) {
	config, err := x.Source.Cluster()
	if err != nil {
		e.KubernetesVersion = failed[string](err)
		return
	}
	config = rest.CopyConfig(config)
	config.Timeout = questionTimeout
	if end, bounded := ctx.Deadline(); bounded { // discovery minds no context
		config.Timeout = max(min(questionTimeout, end.Sub(x.clock.Now())), time.Millisecond)
	}
	x.cluster, e.KubernetesURL = config, config.Host
	x.api, err = kubernetes.NewForConfig(config)
	if err != nil {
		e.KubernetesVersion = failed[string](err)
		return
	}
	e.KubernetesVersion = ask(ctx, func(ctx context.Context) (string, error) {
		is, err := x.api.Discovery().ServerVersionWithContext(ctx)
		if err != nil {
			return "", err
		}
		return is.GitVersion, nil
	})
	if e.KubernetesVersion.Failure != "" && !e.KubernetesVersion.Forbidden {
		return
	}
	if x.live, err = controller.NewLive(config); err != nil {
		e.KubernetesNodes = failed[[]string](err)
		return
	}
	x.watch = controller.ReadOnce(x.live, x.clock)
	if e.Settings.Kind == string(calico.EtcdV3) { // another datastore is its cluster's
		e.ClusterUID = ask(ctx, x.watch.UID)
	}
	e.KubernetesNodes = ask(ctx, func(ctx context.Context) ([]string, error) {
		nodes, err := x.watch.ListNodes(ctx)
		return each(nodes, func(n *nodesync.KubernetesNode) string { return n.Name }), err
	})
	e.Deployments, e.DaemonSets = x.workloads(ctx)
	e.Leases = x.leases(ctx, e.Namespace)
	if !x.ForPerson {
		kind := cmp.Or(e.Settings.Kind, x.Settings.Datastore)
		e.RightsOf, e.Rights = x.rights(ctx, kind == string(calico.Kubernetes), e.Namespace)
	}
}

// gatherDatastore asks Calico's datastore, if the settings name one that can be asked.
func (x *examination) gatherDatastore(ctx context.Context, e *doctor.Evidence) {
	if e.Settings.Failure != "" || x.config.Kind == calico.Kubernetes && x.watch == nil {
		return
	}
	store, err := Connect(x.config, x.cluster)
	if err != nil {
		e.Datastore = failed[struct{}](err)
		return
	}
	x.store = store
	e.Datastore = ask(ctx, func(ctx context.Context) (struct{}, error) { return struct{}{}, store.Ping(ctx) })
	if x.config.Kind == calico.EtcdV3 {
		x.gatherEtcd(ctx, e)
	} else if e.Datastore.Failure == "" {
		e.ClusterInformation = ask(ctx, x.clusterInformation)
	}
	if e.Datastore.Failure == "" {
		e.CalicoNodes = ask(ctx, x.calicoNodes)
	}
}

func (x *examination) calicoNodes(ctx context.Context) ([]nodesync.CalicoNode, error) {
	snapshot, err := x.store.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	nodes := make([]nodesync.CalicoNode, 0, len(snapshot.Nodes))
	for _, n := range snapshot.Nodes {
		nodes = append(nodes, controller.CalicoNode(n))
	}
	return nodes, nil
}

// plan is what a controller would do now. A big datastore takes longer to read than one question may.
func (x *examination) plan(ctx context.Context) doctor.Answer[nodesync.Plan] {
	sides := Sides{Store: x.store, Cluster: x.watch, State: controller.StateIn(x.live, x.Source.Namespace(ctx))}
	plan, _, err := sides.Preview(ctx, x.Settings.Config)
	return answer(ctx, plan, err)
}
