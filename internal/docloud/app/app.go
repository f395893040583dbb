// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	framework "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/names"
	"k8s.io/cloud-provider/options"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the client and of queues, as the upstream project has them
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/balancers"
	"github.com/mooring-dev/mooring/internal/docloud/clustertag"
	"github.com/mooring-dev/mooring/internal/docloud/defaults"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/docloud/firewalls"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/leftovers"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/docloud/machines"
	"github.com/mooring-dev/mooring/internal/docloud/provider"
	"github.com/mooring-dev/mooring/internal/docloud/startuptaint"
	"github.com/mooring-dev/mooring/internal/platform/buildinfo"
	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/platform/reconcile"
)

// Component is the binary's name, in its metrics and user agents. It MUST NOT change.
const Component = "digitalocean-cloud-controller-manager"

// NewCommand returns the command. It has all flags of the framework's, with the same defaults; --cloud-provider is preset.
func NewCommand() (*cobra.Command, error) { return newCommand(machines.DefaultConfig()) }

// newCommand is NewCommand with another pace, for tests.
func newCommand(pace machines.Config) (*cobra.Command, error) {
	framed, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		return nil, fmt.Errorf("preparing the options of Kubernetes' framework: %w", err)
	}
	framed.KubeCloudShared.CloudProvider.Name = provider.Name
	// As the upstream project: a cluster need not publish its request headers' CA for a scrape of metrics.
	framed.Authentication.SkipInClusterLookup = true
	setElection(&framed.Generic.LeaderElection)
	o := &commandOptions{framework: framed, logs: logs.NewOptions(), machines: pace, mode: outputs.Enforce}
	command := &cobra.Command{
		Use:   Component,
		Short: "Manage a cluster's Nodes and load balancers at DigitalOcean",
		Long: "digitalocean-cloud-controller-manager gives Nodes the identity, addresses and labels of their droplets, removes Nodes whose droplets " +
			"are gone, and manages a load balancer for each Service that requests one. The token and the cluster's settings come from environment " +
			"variables; see the documentation.",
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), o, c.Flags()) },
	}
	o.addFlags(command)
	return command, nil
}

// setElection lets another replica lead sooner than with the framework's 15, 10 and 2 seconds: after a loss without a farewell the median of
// the wait for the next leader falls by a third. The renewal, a small write a second, is the price.
func setElection(o *componentbaseconfig.LeaderElectionConfiguration) {
	o.LeaseDuration.Duration, o.RenewDeadline.Duration, o.RetryPeriod.Duration = 12*time.Second, 8*time.Second, time.Second
}

type commandOptions struct {
	framework *options.CloudControllerManagerOptions
	logs      *logs.Options
	tokenFile string
	defaults  string // the file with defaults for annotations
	machines  machines.Config
	// takeOver lets Services take over any load balancer that they name.
	takeOver bool
	// domains are those for which Services of all namespaces may have certificates.
	domains []string
	// requireTag lets only droplets with the cluster's tag be targets.
	requireTag bool
	// startupTaint lets the taint be removed with which kubelets may register until the volume driver is.
	startupTaint bool
	// ports are which ports of the machines themselves Services may open; reserved are more of them.
	ports        firewall.Config
	reserved     []string
	outOfService outOfServiceOptions
	mode         outputs.Mode
}

func controllerNames() []string {
	return framework.ControllerNames(framework.DefaultInitFuncConstructors)
}

// addFlags binds the flags by section, as the framework's own command does it.
func (o *commandOptions) addFlags(command *cobra.Command) {
	sections := o.framework.Flags(controllerNames(), framework.ControllersDisabledByDefault.List(), names.CCMControllerAliases(),
		framework.AllWebhooks, framework.DisabledByDefaultWebhooks)
	global := sections.FlagSet("global")
	logsapi.AddFlags(o.logs, global)
	globalflag.AddGlobalFlags(global, command.Name(), logs.SkipLoggingConfigurationFlags())
	sections.FlagSet("digitalocean").StringVar(&o.tokenFile, "token-file", "",
		"File with the DigitalOcean token, which may be replaced at any time. Also "+envTokenFile+"; a token that does not change may be in "+envToken+".")
	sections.FlagSet("digitalocean").StringVar((*string)(&o.mode), "mode", string(o.mode), outputs.ModeUsage)
	defaults.AddFlag(sections.FlagSet("digitalocean"), &o.defaults)
	sections.FlagSet("digitalocean").Var(firewall.AllowFlag{Config: &o.ports}, "firewall-allow-reserved-ports",
		"Allow Services to open ports in the firewall that the machines use themselves: all (true), or some, such as "+
			"22,4789/udp. They are 22, 111, 179, 2379 to 2381, 5473, 6443, 9091, 9100, 9178, 9179, 10249, 10250, 10255, "+
			"10257 to 10260, and 111, 4789 and 8472 of UDP.")
	sections.FlagSet("digitalocean").Lookup("firewall-allow-reserved-ports").NoOptDefVal = "true"
	sections.FlagSet("digitalocean").StringSliceVar(&o.reserved, "firewall-reserved-ports", nil,
		"More ports that the machines use themselves, which Services do not open in the firewall, such as 9443,51820/udp.")
	sections.FlagSet("digitalocean").BoolVar(&o.takeOver, "allow-load-balancer-take-over", false,
		"Allow every Service to adopt any load balancer of the account by its ID, as the upstream project does. Otherwise load balancers of others are adopted only if an "+
			"annotation of the namespace allows it: "+loadbalancer.TakeOverAnnotation+".")
	sections.FlagSet("digitalocean").BoolVar(&o.requireTag, "require-cluster-tag", false,
		"Initialize only Nodes of droplets with the cluster's tag, k8s:DO_CLUSTER_ID, and make only those targets of load "+
			"balancers. For others an "+
			"administrator confirms the Node with the label "+instance.ConfirmedLabel+"=ID. Nothing is required while no "+
			"droplet carries the tag.")
	sections.FlagSet("digitalocean").StringSliceVar(&o.domains, "allow-certificate-domains", nil,
		"Domains for which the Services of all namespaces may have certificates, such as example.com and *.example.com, "+
			"or * for all. Others need an annotation of the namespace: "+loadbalancer.DomainsAnnotation+".")
	o.outOfService.addFlags(sections.FlagSet("digitalocean"))
	sections.FlagSet("digitalocean").BoolVar(&o.startupTaint, "volume-startup-taint", false,
		"Remove the taint "+startuptaint.Key+" from Nodes on which the volume driver is registered. Configure kubelets to "+
			"register with it, so that no Pod is placed on a machine before the number of its volumes is known.")
	for _, section := range sections.FlagSets {
		command.Flags().AddFlagSet(section)
	}
	command.Flags().Var(new(versionFlag), "version", "Print the version and exit.")
	command.Flags().Lookup("version").NoOptDefVal = "true"
	command.SetUsageFunc(func(c *cobra.Command) error {
		_, err := fmt.Fprintf(c.OutOrStderr(), "Usage:\n  %s\n", c.UseLine())
		cliflag.PrintSections(c.OutOrStderr(), sections, 0)
		return err
	})
	command.SetHelpFunc(func(c *cobra.Command, _ []string) {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "%s\n\nUsage:\n  %s\n", c.Long, c.UseLine())
		cliflag.PrintSections(c.OutOrStdout(), sections, 0)
	})
}

// versionFlag is --version, and --version=raw, which is the same here.
type versionFlag bool

// String implements pflag.Value.
func (v *versionFlag) String() string { return fmt.Sprint(bool(*v)) }

// Type implements pflag.Value; cobra asks for a bool.
func (v *versionFlag) Type() string { return "bool" }

// Set implements pflag.Value.
func (v *versionFlag) Set(text string) error {
	switch text {
	case "true", "raw":
		*v = true
	case "false":
		*v = false
	default:
		return errors.New("it must be true, false or raw")
	}
	return nil
}

func run(ctx context.Context, o *commandOptions, flags *pflag.FlagSet) error {
	log, err := o.startLogging(flags)
	if err != nil {
		return err
	}
	if name := o.framework.KubeCloudShared.CloudProvider.Name; name != provider.Name {
		return fmt.Errorf("--cloud-provider is %q: this program serves %s only", name, provider.Name)
	}
	if err := o.checkCluster(os.Getenv); err != nil {
		return err
	}
	environment, err := readEnvironment(os.Getenv, o.tokenFile)
	if err != nil {
		return environment.withoutToken(err)
	}
	if err := errors.Join(o.mode.Validate(), o.outOfService.check()); err != nil {
		return err
	}
	environment.ports, environment.takeOver, environment.outOfService = o.ports, o.takeOver, o.outOfService
	environment.startupTaint, environment.mode = o.startupTaint, o.mode
	if environment.requireTag = o.requireTag; o.requireTag && environment.clusterID == "" {
		return fmt.Errorf("--require-cluster-tag needs %s", envClusterID)
	}
	if len(o.reserved) > 0 {
		if environment.ports.Reserved, err = firewall.ParsePorts(strings.Join(o.reserved, ",")); err != nil {
			return fmt.Errorf("--firewall-reserved-ports: %w", err)
		}
	}
	environment.domains = loadbalancer.ParseDomains(strings.Join(o.domains, ","))
	if err := environment.readDefaults(os.Getenv, o.defaults); err != nil {
		return environment.withoutToken(err)
	}
	for _, doubt := range environment.doubts {
		log.Info("A default for annotations has no effect", "warning", doubt.Message)
	}
	cloud, err := build(ctx, environment, o.machines, log)
	if err != nil {
		return environment.withoutToken(err)
	}
	config, err := o.framework.Config(controllerNames(), framework.ControllersDisabledByDefault.List(), names.CCMControllerAliases(),
		framework.AllWebhooks, framework.DisabledByDefaultWebhooks)
	if err != nil {
		return fmt.Errorf("the flags: %w", err)
	}
	build := buildinfo.Get()
	log.Info("Starting", "version", build.Version, "commit", build.Commit)
	return supervise(ctx, config.Complete(), cloud, o.transport(cloud, log))
}

// checkCluster says at once that no cluster is named, which the framework would find out later and with other words.
func (o *commandOptions) checkCluster(getenv func(string) string) error {
	if o.framework.Master == "" && o.framework.Generic.ClientConnection.Kubeconfig == "" && getenv("KUBERNETES_SERVICE_HOST") == "" {
		return errors.New("no API server is configured: pass --kubeconfig, or run in a Pod with a service account")
	}
	return nil
}

// startLogging makes the log that all of Mooring has, at the verbosity of the framework's flags. Who asks for one of the framework's own formats,
// or for verbosity by file, gets the framework's own log.
func (o *commandOptions) startLogging(flags *pflag.FlagSet) (logr.Logger, error) {
	if err := logsapi.ValidateAndApply(o.logs, utilfeature.DefaultFeatureGate); err != nil {
		return logr.Logger{}, fmt.Errorf("the flags of the log: %w", err)
	}
	if flags.Changed("logging-format") || flags.Changed("vmodule") {
		return klog.Background(), nil
	}
	ours := logging.Options{Verbosity: min(int(o.logs.Verbosity), 10)} //nolint:gosec // it is bounded
	return logging.Install(logging.NewHandler(os.Stderr, ours), ours), nil
}

// transport returns what the clients of all controllers send through, ours and the framework's. What the framework would
// write in mode report is logged once for each object.
func (o *commandOptions) transport(
	cloud *provider.Provider, log logr.Logger,
) func(http.RoundTripper) http.RoundTripper {
	var told sync.Map
	declared := o.mode.Transport(provider.OutsideRounds(), func(verb, path string) {
		if _, again := told.LoadOrStore(verb+path, nil); !again {
			log.Info("Would write to the API server, but this is a dry run", "verb", verb, "path", path)
		}
	})
	return func(next http.RoundTripper) http.RoundTripper { return cloud.Deletions(declared(next)) }
}

// build asks DigitalOcean for what must be known before anything starts, and puts the provider together.
func build(ctx context.Context, e environment, config machines.Config, log logr.Logger) (*provider.Provider, error) {
	registry := legacyregistry.Registerer()
	client, err := newClient(e, buildinfo.Get().UserAgent(Component), doapi.NewMetrics(registry))
	if err != nil {
		return nil, err
	}
	region, err := findRegion(ctx, e, client)
	if err != nil {
		return nil, err
	}
	account, err := client.Account(ctx)
	if err != nil {
		return nil, explain(err, e)
	}
	log.Info("DigitalOcean's API responds", "account", account.String(), "region", region)
	if err := errors.Join(serve(ctx, envDebugAddr, e.debugAddr, healthz(client)), serve(ctx, envMetricsAddr, e.metricsAddr, metrics())); err != nil {
		return nil, err
	}
	registry.MustRegister(buildinfo.Get().Collector(Component))
	config.Labels, config.Mode = e.nodeLabels, e.mode
	config.Tag, config.RequireTag = loadbalancer.ClusterTag(e.clusterID), e.requireTag
	gate := &reconcile.Gate{}
	instances := machines.New(client, machines.NewSnapshot(client, clock.RealClock{}), config, clock.RealClock{}, registry)
	controller := balancers.New(balancers.Options{
		API: client, Fleet: instances, Metrics: balancers.NewMetrics(registry), Clock: clock.RealClock{}, Log: log, Gate: gate, Mode: e.mode,
		TakeOverAny: e.takeOver, Domains: e.domains, Identities: instances.Identities,
		Cluster: loadbalancer.Cluster{ID: e.clusterID, Region: region, VPC: e.vpc, DefaultType: e.defaultType, Defaults: e.defaults},
	})
	leftovers.NewMetrics(registry).Count(controller.Known)
	common := provider.Common{Instances: instances, Controller: controller}
	others := append(extras(e, client, common, gate, log, registry), e.outOfService.controller(client, instances, gate, e.mode, log, registry))
	return provider.New(gate, instances, controller, others...).Probing(client), nil
}

// extras are the controllers that work only where they are asked for: those of the firewall, of the cluster's tag, and of
// the start-up taint.
func extras(e environment, client *doapi.Client, common provider.Common, gate *reconcile.Gate, log logr.Logger, registry prometheus.Registerer) []provider.Extra {
	var out []provider.Extra
	if e.firewallName != "" {
		out = append(out, firewalls.New(firewalls.Options{
			API: client, Surroundings: common, Gate: gate, Clock: clock.RealClock{}, Log: log, Mode: e.mode,
			Metrics: firewalls.NewMetrics(registry),
			Config: firewall.Config{Name: e.firewallName, Tags: e.firewallTags, DefaultType: e.defaultType, Defaults: e.defaults,
				AllowReserved: e.ports.AllowReserved, Allowed: e.ports.Allowed, Reserved: e.ports.Reserved},
		}))
	}
	if e.clusterID != "" {
		out = append(out, clustertag.New(clustertag.Options{
			API: client, Surroundings: common, Gate: gate, ClusterID: e.clusterID, Clock: clock.RealClock{}, Log: log,
			Mode: e.mode, Metrics: clustertag.NewMetrics(registry),
		}))
	}
	if e.startupTaint {
		out = append(out, startuptaint.New(clock.RealClock{}, gate, e.mode, log))
	}
	return out
}
