// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
)

// Variables of the calico-route-reflector-operator of 2020 that say where things are. Those that say what to do are package predecessor's. MUST NOT
// change: they are in users' manifests.
const (
	datastoreVariable = "DATASTORE_TYPE"
	endpointVariable  = "K8S_API_ENDPOINT"
)

// addOldFlags adds the flags of the old operator under their names. They are the same as today's.
func (o *options) addOldFlags(fs *pflag.FlagSet) {
	for old, now := range map[string]string{"metrics-addr": "metrics-bind-address", "enable-leader-election": "leader-elect"} {
		flag := *fs.Lookup(now)
		flag.Name, flag.Usage, flag.Hidden = old, "The old operator's name of --"+now+".", true
		fs.AddFlag(&flag)
	}
}

// getenv is as os.Getenv, with the old operator's word for a datastore in today's: its "incluster" is the kubernetes datastore by the Pod's own account.
func getenv(env func(string) string) func(string) string {
	return func(name string) string {
		if value := env(name); name != datastoreVariable || value != "incluster" {
			return value
		}
		return "kubernetes"
	}
}

// endpoint has the Pod's account reach the API server at K8S_API_ENDPOINT. The flags --kubeconfig and --master win.
func (o *options) endpoint(env func(string) string, config *rest.Config) error {
	value := env(endpointVariable)
	if value == "" || o.manager.Kubeconfig != "" || o.manager.Master != "" {
		return nil
	}
	u, err := url.Parse(value)
	if err != nil || u.Host == "" || u.Scheme != "https" {
		return fmt.Errorf("%s %q: must be a URL like https://host:port, or absent", endpointVariable, value)
	}
	config.Host = value
	return nil
}

// accountNamespace is the file that says in which namespace the Pod is.
const accountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// addSeeder lets the old operator's variables make a topology.
func (o *options) addSeeder(mgr *manager.Manager, kube kubernetes.Interface, log logr.Logger) error {
	namespace := o.manager.LeaderElectionNamespace
	if namespace == "" {
		text, _ := os.ReadFile(filepath.Clean(accountNamespace))
		namespace = cmp.Or(strings.TrimSpace(string(text)), "default")
	}
	return mgr.Add(&controller.Seeder{
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Leases: kube.CoordinationV1().Leases(namespace), Getenv: os.Getenv,
		Events: mgr.GetEventRecorder(Component), Clock: clock.RealClock{}, Log: log,
	})
}
