// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import (
	"errors"
	"path/filepath"
)

// page describes kubectl-mooring's page of the cluster. It takes a port of its own choice, since the browser's address holds a secret
// anyway, and prints that address into its log.
func (d draft) page() Process {
	p := Process{
		Name:      Page,
		Program:   d.PageProgram,
		Args:      []string{"ui", "--no-browser", "--kubeconfig=" + d.Kubeconfig()},
		Env:       d.calicoEnv(d.Kubeconfig()),
		DependsOn: d.existing(Setup, APIServer, CalicoEtcd, DigitalOcean, Nodes),
	}
	if d.runs(DigitalOcean) {
		access := d.CloudAccess(d.ports)
		p.Env = append(p.Env,
			"DO_ACCESS_TOKEN_FILE="+access.TokenFile, "DO_OVERRIDE_URL="+access.APIURL, "SSL_CERT_FILE="+access.CAFile, "SSL_CERT_DIR="+d.Temp())
	}
	return p
}

func checkPage(o Options) error {
	if !o.Page {
		return nil
	}
	if o.Enclosed() {
		return errors.New("--page and real machines exclude each other, as these have a network of their own; " +
			"run `kubectl mooring ui --kubeconfig $(lab kubeconfig)` alongside the lab")
	}
	if err := checkNeeds(o, []string{Page}); err != nil {
		return err
	}
	if !filepath.IsAbs(o.PageProgram) {
		return errors.New("--page needs kubectl-mooring alongside the lab's own binary; build it with `make build`")
	}
	return nil
}
