// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/mooring-dev/mooring/internal/platform/refusal"
)

// serviceAccountDir is where Kubernetes mounts a Pod's credentials; fixed by the kubelet.
const serviceAccountDir = "/var/run/secrets/kubernetes.io/serviceaccount"

// RESTConfig returns which API server to talk to and as whom: the file of --kubeconfig, or the Pod's
// service account, or an error of one sentence; there is no other source and no fallback. All files
// the result depends on have been read once, so that a bad CA or key is an error here and not a
// retried one later. userAgent is sent with every request (see buildinfo.Info.UserAgent). Client-side
// rate limiting is off, as in controller-runtime: components bound their own calls, and the API
// server's priority and fairness does the rest.
func (o Options) RESTConfig(userAgent string) (*rest.Config, error) {
	config, err := o.loadConfig(os.Getenv, serviceAccountDir)
	if err != nil {
		return nil, err
	}
	config.UserAgent = userAgent
	config.QPS = -1
	config.Wrap(refusal.Explain)
	return config, nil
}

func (o Options) loadConfig(getenv func(string) string, accountDir string) (*rest.Config, error) {
	if o.Master != "" {
		u, err := url.Parse(o.Master)
		if err != nil || u.Host == "" || (u.Scheme != "https" && u.Scheme != "http") {
			return nil, fmt.Errorf("--master %q is not a URL like https://host:port", o.Master)
		}
	}
	switch {
	case o.Kubeconfig != "":
		return fromKubeconfig(o.Kubeconfig, o.Master)
	case o.Master != "":
		return &rest.Config{Host: o.Master}, nil
	default:
		return inCluster(getenv, accountDir)
	}
}

// fromKubeconfig uses clientcmd's direct configuration. Its deferred one, which kubectl uses, takes the
// Pod's service account when the file turns out to be empty.
func fromKubeconfig(path, master string) (*rest.Config, error) {
	say := func(err error) error { return fmt.Errorf("--kubeconfig %q: %w", path, err) }
	file, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return nil, fmt.Errorf("--kubeconfig %q cannot be read: %w", path, pathless(err))
	}
	if err := checkContext(file); err != nil {
		return nil, say(err)
	}
	if err := clientcmd.ResolveLocalPaths(file); err != nil {
		return nil, say(err)
	}
	overrides := &clientcmd.ConfigOverrides{ClusterInfo: clientcmdapi.Cluster{Server: master}}
	config, err := clientcmd.NewNonInteractiveClientConfig(*file, file.CurrentContext, overrides, nil).ClientConfig()
	if err != nil {
		return nil, say(err)
	}
	if err := checkTLS(config); err != nil {
		return nil, say(err)
	}
	return config, nil
}

// checkContext finds the gaps of a file that clientcmd would fill from elsewhere or report in riddles.
func checkContext(file *clientcmdapi.Config) error {
	if file.CurrentContext == "" {
		return errors.New("it names no current-context; set one with 'kubectl config use-context'")
	}
	context, ok := file.Contexts[file.CurrentContext]
	if !ok {
		return fmt.Errorf("its current-context %q does not exist in it", file.CurrentContext)
	}
	cluster, ok := file.Clusters[context.Cluster]
	if !ok || cluster.Server == "" {
		return fmt.Errorf("context %q names cluster %q, which has no server in it", file.CurrentContext, context.Cluster)
	}
	if _, ok := file.AuthInfos[context.AuthInfo]; !ok && context.AuthInfo != "" {
		return fmt.Errorf("context %q names user %q, which does not exist in it", file.CurrentContext, context.AuthInfo)
	}
	return nil
}

// checkTLS loads CA and client certificate the way the transport will, but tells them apart.
func checkTLS(config *rest.Config) error {
	if config.CAFile != "" {
		if _, err := certutil.NewPool(config.CAFile); err != nil {
			return fmt.Errorf("the certificate authority %s of server %s is unusable: %w", config.CAFile, config.Host, err)
		}
	}
	if len(config.CAData) > 0 {
		if _, err := certutil.ParseCertsPEM(config.CAData); err != nil {
			return fmt.Errorf("the certificate-authority-data of server %s is unusable: %w", config.Host, err)
		}
	}
	if _, err := rest.TLSConfigFor(config); err != nil {
		return fmt.Errorf("the client certificate for server %s is unusable: %w", config.Host, err)
	}
	return nil
}

// inCluster is rest.InClusterConfig with two differences: it explains itself, and a missing CA is an
// error, where client-go logs a line and goes on with the system's roots.
func inCluster(getenv func(string) string, accountDir string) (*rest.Config, error) {
	host, port := getenv("KUBERNETES_SERVICE_HOST"), getenv("KUBERNETES_SERVICE_PORT")
	if host == "" || port == "" {
		return nil, errors.New("no API server is configured: pass --kubeconfig, or run as a Pod " +
			"(this is not one: KUBERNETES_SERVICE_HOST is unset); KUBECONFIG and ~/.kube/config are not read, so that no other cluster is changed by accident")
	}
	tokenFile, caFile := filepath.Join(accountDir, "token"), filepath.Join(accountDir, "ca.crt")
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return nil, fmt.Errorf("the Pod has no service account token, check automountServiceAccountToken or pass --kubeconfig: %w", err)
	}
	if _, err := certutil.NewPool(caFile); err != nil {
		return nil, fmt.Errorf("the CA of the Pod's service account is unusable: %w", err)
	}
	return &rest.Config{
		Host:            "https://" + net.JoinHostPort(host, port),
		TLSClientConfig: rest.TLSClientConfig{CAFile: caFile},
		BearerToken:     string(token),
		BearerTokenFile: tokenFile, // the kubelet rotates it, client-go reads it again
	}, nil
}

// pathless drops the path that os errors repeat.
func pathless(err error) error {
	if p, ok := errors.AsType[*os.PathError](err); ok {
		return p.Err
	}
	return err
}
