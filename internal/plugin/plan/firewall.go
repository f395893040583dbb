// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/firewall"
	"github.com/mooring-dev/mooring/internal/plugin/observe"

	"github.com/mooring-dev/mooring/internal/platform/screen"
)

const firewallLong = `Prints the desired state of the cluster's firewall at DigitalOcean (PUBLIC_ACCESS_FIREWALL_NAME and _TAGS). It is offline:
neither a cluster nor DigitalOcean is queried. Give it all Services of the cluster, since one firewall serves them all.

For people, with -f: Services are read from files (YAML or JSON, several documents, Lists). Documents of other kinds are
skipped.

For programs, without -f: a JSON object on standard input,
  {"name","tags":[...],"defaultType","defaults":{annotation: value},"services":[Service...]}
results in a JSON object:
  {"request":{...}}   the body of the request
A Service that cannot be parsed opens no port and does not affect the others: "request" is without it, "leftOut" names
it with the reason, and "error" has all reasons in one text. An existing firewall keeps its rules for that Service.
"warnings" are about the other Services.

Exit codes: 0 the request was printed; 1 the input cannot be read, or (with -f) a Service is left out.`

const firewallExample = `  kubectl get services -A -o yaml | kubectl mooring plan firewall -f - --name k8s-public --tag k8s:worker
  kubectl mooring plan firewall < input.json`

// fwAnswer is the answer of the machine form. Its JSON form is a contract with programs.
type fwAnswer struct {
	Request  firewall.Request `json:"request"`
	Error    string           `json:"error,omitempty"`
	LeftOut  []fwLeftOut      `json:"leftOut,omitempty"`
	Warnings []fwWarning      `json:"warnings,omitempty"`
}

// fwLeftOut is a Service that cannot be understood, and why.
type fwLeftOut struct {
	Service string `json:"service"`
	Error   string `json:"error"`
}

// fwWarning is a warning about a Service.
type fwWarning struct {
	Service string `json:"service"`
	annotation.Warning
}

// firewallInput is the object of the machine form. Its JSON form is a contract with programs.
type firewallInput struct {
	Name        string            `json:"name"`
	Tags        []string          `json:"tags"`
	DefaultType string            `json:"defaultType"`
	Defaults    map[string]string `json:"defaults"`
	Services    []json.RawMessage `json:"services"`
}

// firewallFlags are the flags of the human form.
type firewallFlags struct {
	services string
	defaults string
	config   firewall.Config
	format   screen.Format
}

func newFirewall() *cobra.Command {
	var f firewallFlags
	cmd := &cobra.Command{
		Use:     "firewall",
		Aliases: []string{"fw"},
		Short:   "Print the desired state of the cluster's firewall at DigitalOcean",
		Long:    firewallLong,
		Example: firewallExample,
	}
	flags := cmd.Flags()
	flags.StringVarP(&f.services, "filename", "f", "", "File with all Services of the cluster, - for standard input. Selects the text output.")
	flags.StringVar(&f.config.Name, "name", "", "Name of the firewall, as in PUBLIC_ACCESS_FIREWALL_NAME.")
	flags.StringSliceVar(&f.config.Tags, "tag", nil, "Tag of the droplets that it covers, as in PUBLIC_ACCESS_FIREWALL_TAGS.")
	flags.Var(firewall.AllowFlag{Config: &f.config}, "allow-reserved-ports", "Allow Services to open ports that the machines use themselves, as --firewall-allow-reserved-ports.")
	flags.Lookup("allow-reserved-ports").NoOptDefVal = "true"
	addPlanFlags(cmd, &f.services, &f.config.DefaultType, &f.defaults, &f.format, f.plan, planFirewallMachine)
	return cmd
}

// answerFirewall plans the firewall; unreadable are Services that are none.
func answerFirewall(in firewall.Input, unreadable []fwLeftOut) fwAnswer {
	result := firewall.Desired(in)
	a := fwAnswer{Request: result.Request, LeftOut: unreadable}
	for _, p := range result.Problems {
		a.LeftOut = append(a.LeftOut, fwLeftOut{firewall.Key(p.Service), p.Err.Error()})
	}
	for _, w := range result.Warnings {
		a.Warnings = append(a.Warnings, fwWarning{firewall.Key(w.Service), w.Warning})
	}
	texts := make([]string, len(a.LeftOut))
	for i, l := range a.LeftOut {
		texts[i] = fmt.Sprintf("%s is left out: %s", strings.TrimSpace("service "+l.Service), l.Error)
	}
	a.Error = strings.Join(texts, "; ")
	return a
}

// planFirewallMachine is the machine form: JSON in, JSON out. What is wrong with one Service is part of the answer.
func planFirewallMachine(cmd *cobra.Command) error {
	if err := mayRead(cmd, "name", "tag", "default-type", "defaults", "output"); err != nil {
		return err
	}
	in, unreadable, err := readFirewallInput(cmd.InOrStdin(), cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	return screen.JSON(cmd.OutOrStdout(), answerFirewall(in, unreadable))
}

// readFirewallInput reads the machine form's object. Keys that nobody knows are passed over, and named on notes.
func readFirewallInput(r io.Reader, notes io.Writer) (firewall.Input, []fwLeftOut, error) {
	var in firewall.Input
	m, err := readObject[firewallInput](r, notes)
	if err != nil {
		return in, nil, err
	}
	if err := observe.CheckDefaultType("defaultType", m.DefaultType); err != nil { // the controller goes on too
		fmt.Fprintf(notes, "note: %v; %s is used\n", err, annotation.DefaultType)
	}
	in.Config = firewall.Config{Name: m.Name, Tags: m.Tags, DefaultType: m.DefaultType}
	if in.Config.Defaults, err = checkedDefaults("defaults", m.Defaults); err != nil {
		return in, nil, err
	}
	var unreadable []fwLeftOut
	for i, raw := range m.Services {
		service, err := serviceAt(i, raw)
		if err != nil {
			unreadable = append(unreadable, fwLeftOut{service.Name, err.Error()})
			continue
		}
		in.Services = append(in.Services, service)
	}
	return in, unreadable, nil
}

// plan is the human form.
func (f *firewallFlags) plan(cmd *cobra.Command) error {
	if f.config.Name == "" || len(f.config.Tags) == 0 {
		return errors.New("give the firewall's --name and at least one --tag")
	}
	var err error
	if f.config.Defaults, err = observe.ReadDefaults(f.defaults, f.config.DefaultType); err != nil {
		return err
	}
	services, err := readObjects[corev1.Service](f.services, "Service", cmd.InOrStdin())
	if err != nil {
		return err
	}
	a := answerFirewall(firewall.Input{Config: f.config, Services: services}, nil)
	if err := f.format.Print(cmd.OutOrStdout(), a.text(), a); err != nil {
		return fmt.Errorf("printing the plan: %w", err)
	}
	if len(a.LeftOut) > 0 {
		return fmt.Errorf("%d of %d services cannot be parsed, see above", len(a.LeftOut), len(services))
	}
	return nil
}

// text is the plan for people.
func (a fwAnswer) text() string {
	var b strings.Builder
	line := lines(&b)
	fmt.Fprintf(&b, "Firewall %s\n", a.Request.Name)
	line("covers", "droplets with the tag %s", strings.Join(a.Request.Tags, ", "))
	for _, r := range a.Request.InboundRules {
		line("lets in", "%s", r)
	}
	for _, r := range a.Request.OutboundRules {
		line("lets out", "%s", r)
	}
	for _, l := range a.LeftOut {
		line("left out", "service %s: %s", l.Service, l.Error)
	}
	for _, one := range a.Warnings {
		line("warning", "service %s: %s", one.Service, one.Message)
	}
	return b.String()
}
