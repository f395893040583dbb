// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/refusal"
)

// Name is the executable's name. It MUST not be changed: kubectl finds plugins as kubectl-NAME.
const Name = "kubectl-mooring"

// How long the cluster is read for one answer, and how long a shell waits for names from it.
const (
	ReadTime       = time.Minute
	CompletionTime = 3 * time.Second
)

// How many requests go out at once, and a second after those: as many as kubectl's own. The limit of client-go, 5, would
// have status wait for itself for ten seconds.
const (
	perSecond = 50
	atOnce    = 300
)

// Env is what the plugin's commands share: kubectl's own flags for which cluster, as whom, and in which namespace. The rules are kubectl's too (KUBECONFIG,
// then ~/.kube/config): a person typed the command and expects what kubectl does. Controllers have stricter rules; see package manager. Nothing is dialed
// before [Env.RESTConfig] is called.
type Env struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
	// namespaces are those of Mooring's components.
	namespaces []string
}

// AddFlags binds --kubeconfig, --context, --cluster, --user, -n/--namespace, --server, --token and the rest of kubectl's connection flags, and the namespaces
// of the components.
func (e *Env) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&e.kubeconfig, "kubeconfig", e.kubeconfig, "Path to the kubeconfig file to use for CLI requests")
	fs.StringSliceVar(&e.namespaces, "mooring-namespace", defaultNamespaces(),
		"Namespaces of Mooring's components: Events and state from other namespaces are not trusted.")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	connection := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&e.overrides, connection, names)
	connection.VisitAll(func(f *pflag.Flag) {
		// kubectl, too, keeps the others out of its help texts.
		f.Hidden = !slices.Contains([]string{clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout}, f.Name)
		fs.AddFlag(f)
	})
}

// RESTConfig returns which API server to talk to and as whom.
func (e *Env) RESTConfig() (*rest.Config, error) {
	if timeout := e.overrides.Timeout; timeout != "" {
		if _, err := clientcmd.ParseTimeout(timeout); err != nil {
			return nil, fmt.Errorf("invalid value %q for --%s: use a number and a unit, such as 30s or 2m", timeout, clientcmd.FlagTimeout)
		}
	}
	config, err := e.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig says which cluster to use: set KUBECONFIG, or pass --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, pass --kubeconfig or --context to choose another: %w", err)
	}
	config.UserAgent = buildinfo.Get().UserAgent(Name)
	config.QPS, config.Burst = perSecond, atOnce
	config.Wrap(refusal.Explain)
	return config, nil
}

// Namespace is the one asked for by flag, or the context's, or "default". explicit tells whether a flag
// asked for it.
func (e *Env) Namespace() (namespace string, explicit bool, err error) {
	namespace, explicit, err = e.loader().Namespace()
	if err != nil {
		return "", false, fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
	}
	return namespace, explicit, nil
}

func (e *Env) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = e.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &e.overrides)
}
