// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package birdtemplates is the command bird-templates: it patches the templates of a user's Calico and shows where
// the patch is in force.
package birdtemplates

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
	"github.com/mooring-dev/mooring/internal/routereflector/birdtemplates"
)

const long = `Print a ConfigMap with the templates of your Calico's BIRD configuration, patched so that nodes lose a dead neighbor within seconds. Nothing is written.

The patch adds to sessions between nodes that BGPPeers ask for:
  BFD             a neighbor that is silent for 3 s is lost, not after BIRD's hold time of 240 s; UDP port 4784 must be open between nodes
  one direction   of two nodes with one AS number the one with the higher address connects, so that they do not reset each other's connections
  short waits     1 to 3 s before a lost session is tried again, and a restarted BIRD waits 20 s at most for its neighbors' routes
Sessions with neighbors that are not nodes, with local workloads and of the node-to-node mesh keep Calico's options. With BFD each restart of calico-node
interrupts that node's own Pods for 2 to 3 s, since its neighbors drop its routes; without it, graceful restart holds them.

The templates are those in the folder of --from, or else those of the ConfigMap bird-templates that Calico reads. Copy them out of a calico-node pod first:
  mkdir templates
  for file in bird.cfg.template bird6.cfg.template; do
    kubectl -n calico-system exec ds/calico-node -c calico-node -- cat /etc/calico/confd/templates/$file > templates/$file
  done
(the namespace is kube-system where Calico was installed from its manifest). Templates of Calico 3.29 to 3.31 are patched; what differs from them is refused.
A patch of a patched template changes nothing.

The comments above the ConfigMap say how to roll it out, node by node, and how to undo it. The ConfigMap replaces the templates of the image:
print it again, from the new image, before you upgrade Calico.

With --check the command shows on which nodes the patch is in force, as far as the API server knows: whether the calico-node pod mounts the patched files, and
is not older than the ConfigMap's last change. Required rights for it: list on DaemonSets of all namespaces, get on the ConfigMap and list on Pods of
calico-node's namespace.

Exit codes: 0 printed, or in force on every node; 2 not in force on some node; 1 an error.`

const example = `  kubectl mooring bird-templates --from templates > bird-templates.yaml
  kubectl mooring bird-templates --from templates --installed-by manifest | kubectl apply --server-side -f -
  kubectl mooring bird-templates --check`

// The values of --installed-by.
const (
	byOperator = "operator"
	byManifest = "manifest"
)

// options are the flags.
type options struct {
	env         *observe.Env
	from        string
	installedBy string
	check       bool
}

// New is the command.
func New(env *observe.Env) *cobra.Command {
	o := &options{env: env}
	cmd := &cobra.Command{
		Use: "bird-templates", Short: "Patch Calico's BIRD templates so that dead neighbors are lost within seconds", Long: long, Example: example,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.check && (o.from != "" || o.installedBy != "") {
				return errors.New("--check looks at the cluster: it takes neither --from nor --installed-by")
			}
			if o.check {
				return o.show(cmd.Context(), cmd.OutOrStdout())
			}
			return o.print(cmd.Context(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "Folder with bird.cfg.template and bird6.cfg.template of your Calico. Without it: the ConfigMap bird-templates.")
	flags.StringVar(&o.installedBy, "installed-by", "",
		"What installed Calico: operator (the ConfigMap is in tigera-operator) or manifest (in kube-system). Without it: as the DaemonSet calico-node shows.")
	flags.BoolVar(&o.check, "check", false, "Show on which nodes the patch is in force.")
	_ = cmd.RegisterFlagCompletionFunc("installed-by", cobra.FixedCompletions([]string{byOperator, byManifest}, cobra.ShellCompDirectiveNoFileComp))
	return observe.Bounded(cmd)
}

// place is where Calico takes the ConfigMap from.
type place struct {
	// configMap is the namespace of the ConfigMap that users write, daemonSet that of calico-node.
	configMap, daemonSet string
	operator             bool
}

func (o *options) place(ctx context.Context) (place, error) {
	switch o.installedBy {
	case byOperator:
		return place{"tigera-operator", "calico-system", true}, nil
	case byManifest:
		return place{metav1.NamespaceSystem, metav1.NamespaceSystem, false}, nil
	case "":
	default:
		return place{}, fmt.Errorf("--installed-by %q is unknown: use %s or %s", o.installedBy, byOperator, byManifest)
	}
	at, err := observe.Read(ctx, o.env, func(ctx context.Context, c *observe.Cluster) (at place, err error) {
		set, operator, err := c.CalicoNode(ctx)
		if err == nil {
			at = place{set.Namespace, set.Namespace, operator}
		}
		return at, err
	})
	if err != nil {
		return place{}, fmt.Errorf("finding out what installed Calico, which --installed-by says as well: %w", err)
	}
	if at.operator {
		at.configMap = "tigera-operator"
	}
	return at, nil
}

func (o *options) print(ctx context.Context, out io.Writer) error {
	at, err := o.place(ctx)
	if err != nil {
		return err
	}
	data, err := o.templates(ctx, at)
	if err != nil {
		return err
	}
	for _, file := range birdtemplates.Files() {
		text, ok := data[file]
		if !ok {
			return fmt.Errorf("%s has no %s: both files of the image are needed", o.source(at), file)
		}
		if data[file], err = birdtemplates.Patch(file, text); err != nil {
			return fmt.Errorf("patching the templates of %s: %w", o.source(at), err)
		}
	}
	if _, err := io.WriteString(out, instructions(at)); err != nil {
		return fmt.Errorf("printing the ConfigMap: %w", err)
	}
	if err := screen.YAML(out, object{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": object{"name": birdtemplates.ConfigMap, "namespace": at.configMap}, "data": data,
	}); err != nil {
		return fmt.Errorf("printing the ConfigMap: %w", err)
	}
	return nil
}

// source is where the templates come from, as people call it.
func (o *options) source(at place) string {
	if o.from != "" {
		return "folder " + o.from
	}
	return "ConfigMap " + at.configMap + "/" + birdtemplates.ConfigMap
}

// templates reads what is to be patched, and what else the ConfigMap has.
func (o *options) templates(ctx context.Context, at place) (map[string]string, error) {
	if o.from != "" {
		return fromFolder(o.from)
	}
	c, err := o.env.Cluster()
	if err != nil {
		return nil, err
	}
	stored, err := c.Typed.CoreV1().ConfigMaps(at.configMap).Get(ctx, birdtemplates.ConfigMap, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("there is no %s: copy the templates out of a calico-node pod, as --help shows, and give their folder by --from", o.source(at))
	case err != nil:
		return nil, fmt.Errorf("reading the %s: %w", o.source(at), err)
	}
	return stored.Data, nil
}

func fromFolder(dir string) (map[string]string, error) {
	data := map[string]string{}
	for _, file := range birdtemplates.Files() {
		content, err := os.ReadFile(filepath.Join(dir, file))
		if errors.Is(err, fs.ErrNotExist) {
			continue // print says so
		}
		if err != nil {
			return nil, fmt.Errorf("reading a template: %w", err)
		}
		data[file] = string(content)
	}
	return data, nil
}

// show prints on which nodes the patch is in force.
func (o *options) show(ctx context.Context, out io.Writer) error {
	c, err := o.env.Cluster()
	if err != nil {
		return err
	}
	is, err := c.BIRDTemplates(ctx)
	if err != nil {
		return err
	}
	nodes := is.Nodes()
	t := screen.Table{Columns: []string{"NODE", "IN FORCE", "WHY NOT"}}
	for _, n := range nodes {
		answer := "no"
		if n.InForce {
			answer = "yes"
		}
		t.Rows = append(t.Rows, []string{n.Name, answer, n.Why})
	}
	columns, _ := screen.Terminal(out)
	head := "There is no ConfigMap " + is.Name() + ".\n"
	if is.Data != nil {
		head = fmt.Sprintf("ConfigMap %s, sha256 %s\n", is.Name(), is.Hash())
	}
	if _, err := io.WriteString(out, head+t.Text(columns)); err != nil {
		return fmt.Errorf("printing the nodes: %w", err)
	}
	return command.Attention(slices.ContainsFunc(nodes, func(n birdtemplates.Node) bool { return !n.InForce }))
}
