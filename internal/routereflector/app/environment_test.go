// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"testing"

	"k8s.io/client-go/rest"
)

// K8S_API_ENDPOINT moves the Pod's account to another address, unless a flag says where the API server is.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	const before = "https://10.96.0.1:443"
	for name, c := range map[string]struct {
		value, kubeconfig, master string
		host, err                 string
	}{
		"none":            {host: before, err: "<nil>"},
		"one":             {value: "https://api.example.com:6443", host: "https://api.example.com:6443", err: "<nil>"},
		"with kubeconfig": {value: "https://api.example.com:6443", kubeconfig: "k", host: before, err: "<nil>"},
		"with master":     {value: "https://api.example.com:6443", master: "m", host: before, err: "<nil>"},
		"no URL":          {value: "api:6443", host: before, err: `K8S_API_ENDPOINT "api:6443": must be a URL like https://host:port, or absent`},
		"no TLS":          {value: "http://api:6443", host: before, err: `K8S_API_ENDPOINT "http://api:6443": must be a URL like https://host:port, or absent`},
	} {
		o, config := newOptions(), &rest.Config{Host: before}
		o.manager.Kubeconfig, o.manager.Master = c.kubeconfig, c.master
		err := o.endpoint(func(name string) string { return map[string]string{endpointVariable: c.value}[name] }, config)
		if config.Host != c.host || fmt.Sprint(err) != c.err {
			t.Errorf("%s: %s, %v", name, config.Host, err)
		}
	}
}

// The old operator's flags work under their names, and are not on the page of flags.
func TestOldFlags(t *testing.T) {
	t.Parallel()
	command := NewCommand()
	if err := command.ParseFlags([]string{"--metrics-addr=127.0.0.1:8080", "--enable-leader-election"}); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"metrics-bind-address": "127.0.0.1:8080", "leader-elect": "true"} {
		if got := command.Flags().Lookup(name).Value.String(); got != want {
			t.Errorf("--%s is %s, want %s", name, got, want)
		}
	}
	for old, want := range map[string]string{
		"metrics-addr": "The old operator's name of --metrics-bind-address.", "enable-leader-election": "The old operator's name of --leader-elect.",
	} {
		if flag := command.Flags().Lookup(old); !flag.Hidden || flag.Usage != want {
			t.Errorf("%+v", flag)
		}
	}
}
