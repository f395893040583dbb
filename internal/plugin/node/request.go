// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package node is the group of commands that ask calico-node-sync to forget or restore a machine.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/commands"
	nodesynccontroller "github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/plugin/annotate"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const forgetLong = `Remove the leftovers of machines that are gone from Calico's datastore, by the names of their Calico Nodes. calico-node-sync does it with its own rights and with
the same checks as for any machine: the Kubernetes Node is read again before each write and must not exist, no pod may run there, the annotation
` + nodesync.KeepAnnotation + ` forbids it, and everything is journaled before it is removed. Naming a machine replaces the grace period and the confirmation
of the mass guard. It also allows the removal of the old name of a machine that has joined again under another name, and of a second Calico Node of a
machine, if something shows that the machine uses the other one. A machine that still speaks in Calico's datastore is left alone, and what speaks is
printed: --ignore-signs-of-life confirms that it is gone.

` + requestLong + `

Exit codes: 0 everything is done; 2 something was not done, for the reason that is printed; 1 an error, or it is not finished.`

// requestLong is how calico-node-sync is asked.
const requestLong = `The request is the annotation ` + nodesync.RequestAnnotation + ` on ConfigMap calico-node-sync-state in the namespace of calico-node-sync, and its
response is the annotation ` + nodesync.AnswerAnnotation + ` there: a person needs only get and patch on that ConfigMap.`

const (
	// takeUp is how long a controller may take until it begins: it looks every ten seconds, and a round of a large cluster takes some.
	takeUp = time.Minute
	// answerPeriod is how often an answer is looked for.
	answerPeriod = time.Second
)

// requestFlags are those of the commands that ask calico-node-sync for something.
type requestFlags struct {
	wait time.Duration
}

// New is kubectl mooring node.
func New(env *observe.Env) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Aliases: []string{"nodes"}, Short: "Act on machines by name"}
	cmd.AddCommand(newForget(env))
	return cmd
}

func newForget(env *observe.Env) *cobra.Command {
	var f requestFlags
	var dryRun, ignoreSigns bool
	var alsoRemove []string
	cmd := &cobra.Command{
		Use: "forget NODE...", Short: "Remove the leftovers of machines that are gone from Calico's datastore", Long: forgetLong,
		Example: "  kubectl mooring node forget worker-7 --dry-run\n  kubectl mooring node forget worker-7 worker-8\n" +
			"  kubectl mooring node forget worker-7 --also-remove=HostEndpoint",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || slices.Contains(args, "") {
				return fmt.Errorf("%s needs the name of a Calico Node; see '%s --help'", cmd.CommandPath(), cmd.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, names []string) error {
			request := nodesynccontroller.Request{Verb: nodesynccontroller.VerbForget, Names: names, DryRun: dryRun, IgnoreSigns: ignoreSigns}
			for _, kind := range alsoRemove {
				request.AlsoRemove = append(request.AlsoRemove, nodesync.ResourceKind(kind))
			}
			return f.ask(cmd.Context(), cmd.OutOrStdout(), env, request)
		},
	}
	cmd.Flags().StringSliceVar(&alsoRemove, "also-remove", nil,
		"Kinds of which users' objects go as well: HostEndpoint, BGPPeer, CalicoNodeStatus, BGPConfiguration, FelixConfiguration.")
	cmd.Flags().BoolVar(&ignoreSigns, "ignore-signs-of-life", false,
		"Confirm that the machines are gone, or the Calico Nodes stale, although something in Calico's datastore speaks for them.")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "Show what would be done, and do nothing.")
	f.addTo(cmd)
	return cmd
}

// NewRestore is kubectl mooring restore.
func NewRestore(env *observe.Env) *cobra.Command {
	r := &restorer{env: env}
	cmd := commands.NewRestore(r, "calico-node-sync does it with its own rights.\n"+requestLong+"\n--list needs the right to list ConfigMaps there.")
	cmd.Example = "  kubectl mooring restore --list\n  kubectl mooring restore worker-7 --dry-run\n  kubectl mooring restore worker-7"
	r.addTo(cmd)
	return cmd
}

// restorer restores by a request: commands.Restorer.
type restorer struct {
	requestFlags
	env *observe.Env
}

// Journal implements commands.Restorer.
func (r *restorer) Journal(ctx context.Context) (*nodesynccontroller.ConfigMapJournal, error) {
	c, namespaces, err := places(r.env)
	if err != nil {
		return nil, err
	}
	state, err := oneState(ctx, c, namespaces)
	if err != nil {
		return nil, err
	}
	return nodesynccontroller.NewConfigMapJournal(c.Config, state.Namespace)
}

// Restore implements commands.Restorer.
func (r *restorer) Restore(ctx context.Context, names []string, dryRun bool, out io.Writer) error {
	return r.ask(ctx, out, r.env, nodesynccontroller.Request{Verb: nodesynccontroller.VerbRestore, Names: names, DryRun: dryRun})
}

func (f *requestFlags) addTo(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&f.wait, "wait", 5*time.Minute,
		"How long to wait for the response. Meanwhile calico-node-sync retries what is held back temporarily, such as by pods that still run.")
}

// places are where a calico-node-sync is looked for: in the namespace of -n, or in those of Mooring.
func places(env *observe.Env) (c *observe.Cluster, namespaces []string, err error) {
	if c, err = env.Cluster(); err != nil {
		return nil, nil, err
	}
	namespace, explicit, err := env.Namespace()
	if explicit {
		return c, []string{namespace}, err
	}
	return c, c.Namespaces, err
}

// ask gives a request to the one calico-node-sync that there is, and prints its answer.
func (f *requestFlags) ask(ctx context.Context, out io.Writer, env *observe.Env, request nodesynccontroller.Request) error {
	if f.wait < time.Minute || f.wait > nodesynccontroller.LongestRequestTime {
		return fmt.Errorf("--wait is %s: it must be between 1m and %s, 5m is the default", f.wait, nodesynccontroller.LongestRequestTime)
	}
	c, namespaces, err := places(env)
	if err != nil {
		return err
	}
	request.ID, request.Until = rand.String(12), time.Now().Add(f.wait-10*time.Second).UTC().Truncate(time.Second)
	return asking{c: c, request: request, wait: f.wait, to: out, clock: clock.RealClock{}}.run(ctx, namespaces)
}

// asking is one request on its way.
type asking struct {
	c       *observe.Cluster
	request nodesynccontroller.Request
	wait    time.Duration
	to      io.Writer
	clock   clock.Clock
}

func (a asking) run(ctx context.Context, namespaces []string) error {
	text, err := json.Marshal(a.request)
	if err != nil {
		return fmt.Errorf("encoding the request: %w", err)
	}
	if _, err := nodesynccontroller.ParseRequest(string(text)); err != nil {
		return err
	}
	state, err := oneState(ctx, a.c, namespaces)
	if err != nil {
		return err
	}
	if err := a.annotate(ctx, state, string(text)); err != nil {
		return err
	}
	return a.await(ctx, state.Namespace, string(text))
}

// oneState is the ConfigMap of the one calico-node-sync in the namespaces. Which of several is meant is for a person to say.
func oneState(ctx context.Context, c *observe.Cluster, namespaces []string) (*corev1.ConfigMap, error) {
	ctx, cancel := context.WithTimeout(ctx, observe.ReadTime)
	defer cancel()
	var found []*corev1.ConfigMap
	var problems, in []string
	for _, namespace := range namespaces {
		object, err := c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{})
		switch {
		case err == nil:
			found, in = append(found, object), append(in, namespace)
		case !apierrors.IsNotFound(err):
			problems = append(problems, observe.SideOf(fmt.Errorf("reading ConfigMap %s/%s: %w", namespace, nodesynccontroller.StateName, err)).Problem)
		}
	}
	switch {
	case len(found) == 1 && len(problems) == 0:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("there is a calico-node-sync in each of the namespaces %s: choose one with -n", strings.Join(in, ", "))
	case len(problems) > 0:
		return nil, errors.New(strings.Join(problems, "; ") + ": name the namespace of calico-node-sync with -n")
	}
	return nil, fmt.Errorf("there is no ConfigMap %s in the namespaces %s: calico-node-sync makes it when it runs with --mode=enforce; name its namespace with -n",
		nodesynccontroller.StateName, strings.Join(namespaces, ", "))
}

// annotate writes the request, unless another is being worked on.
func (a asking) annotate(ctx context.Context, state *corev1.ConfigMap, text string) error {
	ctx, cancel := context.WithTimeout(ctx, observe.ReadTime)
	defer cancel()
	return annotate.Confirming("ConfigMap "+nodesynccontroller.StateName, func() error {
		object, err := a.c.Typed.CoreV1().ConfigMaps(state.Namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{})
		if err != nil {
			return fmt.Errorf("reading ConfigMap %s/%s: %w", state.Namespace, nodesynccontroller.StateName, err)
		}
		given := nodesynccontroller.ParseAnswer(object.Annotations[nodesync.AnswerAnnotation])
		if before := object.Annotations[nodesync.RequestAnnotation]; before != "" {
			other, wrong := nodesynccontroller.ParseRequest(before)
			if answered := given.ID == other.ID && given.Final(); wrong == nil && !answered && a.clock.Now().Before(other.Until) {
				return fmt.Errorf("calico-node-sync already has a request to %s %s, valid until %s: wait for it first",
					other.Verb, prose.Printable(strings.Join(other.Names, " ")), other.Until.Format(time.RFC3339))
			}
		}
		return a.patch(ctx, object, text)
	})
}

// patch sets the request, or with nil removes it, if the object is still as it was read.
func (a asking) patch(ctx context.Context, object *corev1.ConfigMap, request any) error {
	called := "ConfigMap " + object.Namespace + "/" + object.Name
	return annotate.Set(ctx, a.c.Typed.CoreV1().ConfigMaps(object.Namespace).Patch, object, called, nodesync.RequestAnnotation, request)
}

// await prints the answer when it is final. Who stops to wait is told whether it goes on.
func (a asking) await(ctx context.Context, namespace, text string) error {
	began := a.clock.Now()
	var last nodesynccontroller.Answer
	for {
		select {
		case <-ctx.Done():
			return a.stopped(context.WithoutCancel(ctx), namespace, text, last, ctx.Err())
		case <-a.clock.After(answerPeriod):
		}
		object, err := a.c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{})
		if err == nil {
			if answer := nodesynccontroller.ParseAnswer(object.Annotations[nodesync.AnswerAnnotation]); answer.ID == a.request.ID {
				last = answer
			}
		}
		waited := a.clock.Since(began)
		switch {
		case last.Final():
			return a.print(last)
		case last.State == "" && waited >= takeUp:
			return a.stopped(ctx, namespace, text, last, fmt.Errorf("calico-node-sync in namespace %s has not started on it for %s: check that it runs with --mode=enforce",
				namespace, takeUp))
		case waited >= a.wait+takeUp:
			return a.stopped(ctx, namespace, text, last, errors.New("it is not finished"))
		}
	}
}

// stopped withdraws a request that nobody has taken up, and says of any other that it goes on.
func (a asking) stopped(ctx context.Context, namespace, text string, last nodesynccontroller.Answer, why error) error {
	ctx, cancel := context.WithTimeout(ctx, observe.ReadTime)
	defer cancel()
	object, err := a.c.Typed.CoreV1().ConfigMaps(namespace).Get(ctx, nodesynccontroller.StateName, metav1.GetOptions{})
	if err == nil && object.Annotations[nodesync.RequestAnnotation] == text &&
		nodesynccontroller.ParseAnswer(object.Annotations[nodesync.AnswerAnnotation]).ID != a.request.ID && a.patch(ctx, object, nil) == nil {
		return fmt.Errorf("%w; the request was withdrawn, and nothing was done", why)
	}
	for _, line := range last.Lines {
		fmt.Fprintln(a.to, prose.Printable(line))
	}
	return fmt.Errorf("%w; calico-node-sync continues with it until %s, and its response will be the annotation %s of ConfigMap %s/%s", why,
		a.request.Until.Format(time.RFC3339), nodesync.AnswerAnnotation, namespace, nodesynccontroller.StateName)
}

// print shows a final answer.
func (a asking) print(answer nodesynccontroller.Answer) error {
	for _, line := range answer.Lines {
		fmt.Fprintln(a.to, prose.Printable(line))
	}
	switch answer.State {
	case nodesynccontroller.AnswerDone:
		if len(answer.Lines) == 0 {
			fmt.Fprintln(a.to, "nothing to do")
		}
		return nil
	case nodesynccontroller.AnswerHeld:
		return command.Attention(true)
	}
	return errors.New("calico-node-sync could not do it, see above")
}
