// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"

	"github.com/mooring-dev/mooring/internal/platform/screen"
)

const loadBalancerLong = `Prints what would be sent to DigitalOcean for Services of type LoadBalancer. It is offline: neither a cluster nor
DigitalOcean is queried.

For people, with -f: Services and Nodes are read from files (YAML or JSON, several documents, Lists). Documents of other
kinds are skipped.

For programs, without -f: a JSON object on standard input,
  {"region","clusterID","vpcID","defaultType","defaults":{annotation: value},"certificates":[{"id","name"}],
   "droplets":[{"id","name"}],"nodes":[Node...],"services":[Service...]}
results in a JSON array with one element per Service, in their order:
  {"name","request":{...}}   the body of the request; fields that only the creation has are in "createOnly"
  {"name","error":"..."}     why there is none
"disowned" means that the request would not be sent, because an annotation of the Service forbids it.

A certificate by domains is assumed to exist in the account: its ID is its name in parentheses unless it is given.

Exit codes: 0 every Service has a result; 1 the input cannot be read, or (with -f) a Service cannot have a load balancer.`

const loadBalancerExample = `  kubectl get nodes -o yaml > nodes.yaml
  kubectl mooring plan loadbalancer -f service.yaml --nodes nodes.yaml --region nyc1
  kubectl get service web -o yaml | kubectl mooring plan loadbalancer -f - --nodes nodes.yaml -o yaml
  kubectl mooring plan loadbalancer < input.json`

// loadBalancerFlags are the flags of the human form.
type loadBalancerFlags struct {
	services, nodes        string
	defaults               string
	cluster                loadbalancer.Cluster
	certificates, droplets map[string]string
	format                 screen.Format
}

func newLoadBalancer() *cobra.Command {
	var f loadBalancerFlags
	cmd := &cobra.Command{
		Use:     "loadbalancer",
		Aliases: []string{"lb"},
		Short:   "Print what would be sent to DigitalOcean for Services",
		Long:    loadBalancerLong,
		Example: loadBalancerExample,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.services, "filename", "f", "", "File with Services, - for standard input. Selects the text output.")
	flags.StringVar(&f.nodes, "nodes", "", "File with the cluster's Nodes, - for standard input.")
	flags.StringVar(&f.cluster.Region, "region", "", "Region of the cluster, as in REGION.")
	flags.StringVar(&f.cluster.ID, "cluster-id", "", "ID of the cluster, as in DO_CLUSTER_ID.")
	flags.StringVar(&f.cluster.VPC, "vpc-id", "", "UUID of the cluster's VPC, as in DO_CLUSTER_VPC_ID.")
	flags.StringToStringVar(&f.certificates, "certificate", nil, "NAME=ID of a certificate of the account, for annotations that name one.")
	flags.StringToStringVar(&f.droplets, "droplet", nil, "NAME=ID of a droplet of the account, for Nodes without a provider ID.")
	addPlanFlags(cmd, &f.services, &f.cluster.DefaultType, &f.defaults, &f.format, f.plan, planMachine)
	return cmd
}

// lbAnswer is the answer for one Service in the machine form. Its JSON form is a contract with programs.
type lbAnswer struct {
	Name       string                   `json:"name"`
	Request    *loadbalancer.Request    `json:"request,omitempty"`
	CreateOnly *loadbalancer.CreateOnly `json:"createOnly,omitempty"`
	Disowned   bool                     `json:"disowned,omitempty"`
	Error      string                   `json:"error,omitempty"`
}

// answer plans one Service.
func answer(in loadbalancer.Input) (lbAnswer, loadbalancer.Result) {
	a := lbAnswer{Name: in.Service.Name}
	err := loadbalancer.Asks(in.Service)
	var result loadbalancer.Result
	if err == nil {
		result, err = loadbalancer.Desired(assume(in))
	}
	if err != nil {
		a.Error = err.Error()
		return a, result
	}
	a.Request, a.Disowned = &result.Request, result.Disowned
	if result.CreateOnly != (loadbalancer.CreateOnly{}) {
		a.CreateOnly = &result.CreateOnly
	}
	return a, result
}

// assume is the input as if the account had the certificate that the Service asks for by domains.
func assume(in loadbalancer.Input) loadbalancer.Input {
	managed, ok := loadbalancer.AssumedCertificate(in.Cluster.Effective(in.Service))
	if ok && !slices.ContainsFunc(in.Certificates, func(c loadbalancer.Certificate) bool { return c.Name == managed.Name }) {
		in.Certificates = append(slices.Clip(in.Certificates), managed)
	}
	return in
}

// planMachine is the machine form: JSON in, JSON out. What is wrong with one Service is part of the answer.
func planMachine(cmd *cobra.Command) error {
	human := []string{"nodes", "region", "cluster-id", "vpc-id", "default-type", "defaults", "certificate", "droplet", "output"}
	if err := mayRead(cmd, human...); err != nil {
		return err
	}
	in, services, err := readMachineInput(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	answers := make([]lbAnswer, 0, len(services))
	for i, raw := range services {
		var a lbAnswer
		if in.Service, err = serviceAt(i, raw); err != nil {
			a = lbAnswer{Name: in.Service.Name, Error: err.Error()}
		} else {
			a, _ = answer(in)
		}
		answers = append(answers, a)
	}
	return screen.JSON(cmd.OutOrStdout(), answers)
}

// plan is the human form.
func (f *loadBalancerFlags) plan(cmd *cobra.Command) error {
	in, services, err := f.read(cmd.InOrStdin())
	if err != nil {
		return err
	}
	var plans []lbPlan
	refused := 0
	for _, service := range services {
		in.Service = service
		p := planOf(in)
		if p.Error != "" {
			refused++
		}
		plans = append(plans, p)
	}
	if err := f.format.Print(cmd.OutOrStdout(), plansText(plans), plans); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	if refused > 0 {
		return fmt.Errorf("%d of %d services cannot have the load balancer that they ask for, see above", refused, len(services))
	}
	return nil
}

// planOf plans one Service that may not have been through the API server yet.
func planOf(in loadbalancer.Input) lbPlan {
	service := in.Service.DeepCopy()
	p := lbPlan{Namespace: service.Namespace, Draft: service.UID == ""}
	if service.Spec.Type == "" {
		service.Spec.Type = corev1.ServiceTypeClusterIP // the API server's default
	}
	for i := range service.Spec.Ports {
		if service.Spec.Ports[i].Protocol == "" {
			service.Spec.Ports[i].Protocol = corev1.ProtocolTCP // likewise
		}
	}
	in.Service = service
	var result loadbalancer.Result
	p.lbAnswer, result = answer(in)
	p.Warnings, p.Targets, p.LeftOut = result.Warnings, result.Targets, result.LeftOut
	return p
}
