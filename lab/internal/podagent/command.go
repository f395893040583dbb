// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/record"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/machines"
	"github.com/mooring-dev/mooring/lab/internal/names"
	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
	"github.com/mooring-dev/mooring/lab/internal/podagent/kubeletapi"
	"github.com/mooring-dev/mooring/lab/internal/podnet"
	"github.com/mooring-dev/mooring/lab/internal/subcommand"
)

type options struct {
	kubeconfig, machines, dir, bin, readyFile string
	kubeletCA, kubeletKey                     string
	images                                    []string
}

// NewCommand returns the hidden subcommand that the supervisor runs, in the lab's own network namespace.
func NewCommand() *cobra.Command {
	var o options
	command := subcommand.Hidden(blueprint.PodAgents, "Run pods", func(ctx context.Context) error { return o.run(ctx) })
	flags := command.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig of the node agents")
	flags.StringVar(&o.machines, "machines", "", "file with the list of machines")
	flags.StringVar(&o.dir, "pods-dir", "", "folder for the pods' files; what is in it is removed")
	flags.StringVar(&o.bin, "bin", "", "folder of the binaries that images stand for (default that of the lab's own)")
	flags.StringArrayVar(&o.images, "image", nil, "REPOSITORY=/PATH: a further image, and the binary it stands for")
	flags.StringVar(&o.kubeletCA, "kubelet-ca-file", "", "authority of the kubelets' certificates and of the API server's towards them")
	flags.StringVar(&o.kubeletKey, "kubelet-ca-key-file", "", "its key")
	flags.StringVar(&o.readyFile, "ready-file", "", "file to write once pods are run")
	return command
}

// The agents of a whole lab share one client.
const (
	clientQPS   = 200
	clientBurst = 400
)

// certificates is where Debian keeps the public certificate authorities.
const certificates = "/etc/ssl/certs/ca-certificates.crt"

func (o options) run(ctx context.Context) error {
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("reading %s: %w", o.kubeconfig, err)
	}
	config.QPS, config.Burst = clientQPS, clientBurst
	api, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	executable, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the lab's own binary: %w", err)
	}
	bin := o.bin
	if bin == "" {
		bin = filepath.Dir(executable)
	}
	images, err := image.NewTable(bin, executable, o.images)
	if err != nil {
		return err
	}
	network, err := podnet.New()
	if err != nil {
		return err
	}
	defer func() { _ = network.Close() }()
	agent := New(Config{
		API: api, Network: network, Images: images, Dir: o.dir,
		Machines: func() (machines.List, error) { return machines.Load(o.machines) },
		Launcher: container.Launcher{executable, container.Name}, Variables: apiServerVariables(),
		ResolvConf: names.ResolvConf, Certificates: certificates,
		Logger: logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, nil)),
	})
	recorder, stop := recordEvents(api)
	defer stop()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	served := make(chan error, 1)
	go func() {
		defer cancel() // one without the other is of no use; the supervisor starts both again
		served <- kubeletapi.Serve(ctx, ":"+kubeletapi.Port, o.kubeletCA, o.kubeletKey, agent)
	}()
	err = agent.Run(ctx, recorder, func() error { return os.WriteFile(o.readyFile, []byte("ready\n"), 0o600) })
	cancel()
	return errors.Join(err, <-served)
}

// recordEvents returns a recorder that writes events as a kubelet's.
func recordEvents(api kubernetes.Interface) (recorder record.EventRecorder, stop func()) {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: api.CoreV1().Events("")})
	return broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet"}), broadcaster.Shutdown
}

// apiServerVariables are what every container has of the Service kubernetes (kubelet: pkg/kubelet/envvars). Those of other Services are left out: names
// are asked for instead.
func apiServerVariables() map[string]string {
	const host, port = blueprint.APIServerService, "443"
	address := "tcp://" + host + ":" + port
	return map[string]string{
		"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port, "KUBERNETES_SERVICE_PORT_HTTPS": port, "KUBERNETES_PORT": address,
		"KUBERNETES_PORT_443_TCP": address, "KUBERNETES_PORT_443_TCP_PROTO": "tcp", "KUBERNETES_PORT_443_TCP_PORT": port,
		"KUBERNETES_PORT_443_TCP_ADDR": host,
	}
}
