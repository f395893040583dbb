// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
)

// KubeFlags are kubectl's own flags for which cluster, as whom, and in which namespace. The rules are
// kubectl's too (KUBECONFIG, then ~/.kube/config): a person typed the command and expects what kubectl
// does. Controllers have stricter rules; see package manager.
type KubeFlags struct {
	kubeconfig string
	overrides  clientcmd.ConfigOverrides
}

// NewKubeFlags returns flags without values.
func NewKubeFlags() *KubeFlags { return &KubeFlags{} }

// AddFlags binds --kubeconfig, --context, --cluster, --user, -n/--namespace, --server, --token and the
// rest of kubectl's connection flags.
func (k *KubeFlags) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&k.kubeconfig, "kubeconfig", k.kubeconfig, "Path to the kubeconfig file to use for CLI requests")
	names := clientcmd.RecommendedConfigOverrideFlags("")
	names.ClusterOverrideFlags.APIServer.ShortName = "s"
	connection := pflag.NewFlagSet("connection", pflag.ContinueOnError)
	clientcmd.BindOverrideFlags(&k.overrides, connection, names)
	connection.VisitAll(func(f *pflag.Flag) {
		f.Hidden = !slices.Contains(shownFlags(), f.Name)
		fs.AddFlag(f)
	})
}

// shownFlags are the connection flags in the help text; kubectl, too, keeps the others out of it.
func shownFlags() []string {
	return []string{clientcmd.FlagContext, clientcmd.FlagNamespace, clientcmd.FlagTimeout}
}

// RESTConfig returns which API server to talk to and as whom.
func (k *KubeFlags) RESTConfig() (*rest.Config, error) {
	if timeout := k.overrides.Timeout; timeout != "" {
		if _, err := clientcmd.ParseTimeout(timeout); err != nil {
			return nil, fmt.Errorf("invalid value %q for --%s: use a number and a unit, such as 30s or 2m", timeout, clientcmd.FlagTimeout)
		}
	}
	config, err := k.loader().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no kubeconfig says which cluster to use: set KUBECONFIG, or pass --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig, pass --kubeconfig or --context to choose another: %w", err)
	}
	config.UserAgent = buildinfo.Get().UserAgent(Name)
	return config, nil
}

// Namespace is the one asked for by flag, or the context's, or "default". explicit tells whether a flag
// asked for it.
func (k *KubeFlags) Namespace() (namespace string, explicit bool, err error) {
	namespace, explicit, err = k.loader().Namespace()
	if err != nil {
		return "", false, fmt.Errorf("reading the namespace from the kubeconfig: %w", err)
	}
	return namespace, explicit, nil
}

// describe names the cluster at a host for people: by the context that is used, if there is one.
func (k *KubeFlags) describe(host string) string {
	name := k.overrides.CurrentContext
	if name == "" {
		if raw, err := k.loader().RawConfig(); err == nil { // an error would have shown before
			name = raw.CurrentContext
		}
	}
	if name == "" {
		return host
	}
	return name + " at " + host
}

func (k *KubeFlags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &k.overrides)
}
