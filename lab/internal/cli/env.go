// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

func (a *app) envCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "env",
		Short: "Print what a shell needs to use the lab: eval \"$(lab env)\"",
		Long: `Print export lines for a POSIX shell: PATH with the lab's own folder of programs, so that "kubectl mooring" is found, KUBECONFIG, and the variables by
which Mooring's programs and the plugin reach the simulated DigitalOcean and Calico's datastore. SSL_CERT_DIR adds the lab's authorities to the
system's in that shell.`,
		Example: `  eval "$(bin/lab env)"`,
		Args:    noArguments,
		RunE: func(command *cobra.Command, _ []string) error {
			layout, err := a.layout()
			if err != nil {
				return err
			}
			variables, err := a.environment(layout)
			if err != nil {
				return err
			}
			_, err = io.WriteString(command.OutOrStdout(), exports(variables))
			return err
		},
	}
}

// environment is what a shell needs to use a lab that was started, in the order of its lines; the values are quoted.
func (a *app) environment(layout blueprint.Layout) ([][2]string, error) {
	var lab folder.Lab
	if err := folder.ReadJSON(layout.LabFile(), &lab); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("there is no lab in %s; start one with `lab up --dir %s`", layout.Dir, layout.Dir)
		}
		return nil, err
	}
	executable, err := a.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding the lab's own binary: %w", err)
	}
	variables := [][2]string{
		{"PATH", quoted(filepath.Dir(executable)) + string(os.PathListSeparator) + `"$PATH"`},
		{"KUBECONFIG", quoted(layout.Kubeconfig())},
		{DirVariable, quoted(layout.Dir)},
	}
	if cloud := lab.DigitalOcean; cloud != nil {
		variables = append(variables, [2]string{"DO_ACCESS_TOKEN_FILE", quoted(cloud.TokenFile)}, [2]string{"DO_OVERRIDE_URL", quoted(cloud.APIURL)},
			[2]string{"SSL_CERT_DIR", quoted(filepath.Dir(cloud.CAFile))})
	}
	if etcd := lab.CalicoEtcd; etcd != nil {
		variables = append(variables, [2]string{"DATASTORE_TYPE", blueprint.DatastoreEtcd}, [2]string{"ETCD_ENDPOINTS", quoted(strings.Join(etcd.Endpoints, ","))},
			[2]string{"ETCD_CA_CERT_FILE", quoted(etcd.CAFile)}, [2]string{"ETCD_CERT_FILE", quoted(etcd.CertFile)}, [2]string{"ETCD_KEY_FILE", quoted(etcd.KeyFile)})
	}
	return variables, nil
}

// exports are the lines of a shell that export variables.
func exports(variables [][2]string) string {
	var b strings.Builder
	for _, v := range variables {
		b.WriteString("export " + v[0] + "=" + v[1] + "\n")
	}
	return b.String()
}

// quoted is a text as one word of a POSIX shell (IEEE Std 1003.1, 2.2.2).
func quoted(text string) string {
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
