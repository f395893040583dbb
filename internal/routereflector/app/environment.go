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

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/platform/manager"
	"github.com/mooring-dev/mooring/internal/routereflector/controller"
)

// endpointVariable is the variable of the calico-route-reflector-operator of 2020 that says where the API server is; DATASTORE_TYPE is read with the
// other settings of the datastore. Those that say what to do are package predecessor's. MUST NOT change: it is in users' manifests.
const endpointVariable = "K8S_API_ENDPOINT"

// addOldFlags adds the flags of the old operator under their names. They are the same as today's.
func (o *options) addOldFlags(fs *pflag.FlagSet) {
	for old, now := range map[string]string{"metrics-addr": "metrics-bind-address", "enable-leader-election": "leader-elect"} {
		flag := *fs.Lookup(now)
		flag.Name, flag.Usage, flag.Hidden = old, "The old operator's name of --"+now+".", true
		fs.AddFlag(&flag)
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
func (o *options) addSeeder(mgr *manager.Manager, kube kubernetes.Interface, store controller.Datastore) error {
	namespace := o.manager.LeaderElectionNamespace
	if namespace == "" {
		text, _ := os.ReadFile(filepath.Clean(accountNamespace))
		namespace = cmp.Or(strings.TrimSpace(string(text)), "default")
	}
	return mgr.Add(&controller.Seeder{
		Reader: mgr.GetCache(), Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Calico: store,
		Leases: kube.CoordinationV1().Leases(namespace), Getenv: os.Getenv,
		Events: mgr.GetEventRecorder(Component), Clock: clock.RealClock{}, Log: mgr.GetLogger(),
	})
}
