// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Command registrar is the program of the image mooring-lab/registrar. It has the flags and the part of Kubernetes' node-driver-registrar in manifests of other
// volume drivers: it tells kubelet of a driver and its socket.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	csi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// patience is how long the driver may take until it answers.
const patience = 2 * time.Minute

func main() {
	address := flag.String("csi-address", "/csi/csi.sock", "socket of the driver, as this container sees it")
	path := flag.String("kubelet-registration-path", "", "socket of the driver, as kubelet sees it")
	folder := flag.String("registration-dir", "/registration", "folder in which kubelet looks for plugins, as this container sees it")
	_ = flag.Int("v", 0, "accepted and without effect")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, *address, *path, *folder); err != nil {
		fmt.Fprintln(os.Stderr, "registrar:", err)
		os.Exit(1) //nolint:gocritic // the signals end with the process
	}
}

func run(ctx context.Context, address, path, folder string) error {
	conn, err := grpc.NewClient("unix://"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	asked, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	driver, err := csi.NewIdentityClient(conn).GetPluginInfo(asked, &csi.GetPluginInfoRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return fmt.Errorf("asking the driver for its name: %w", err)
	}
	socket := filepath.Join(folder, driver.GetName()+"-reg.sock")
	if err := os.Remove(socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	registration.RegisterRegistrationServer(server, &registrar{name: driver.GetName(), path: path})
	defer context.AfterFunc(ctx, server.Stop)()
	return server.Serve(listener)
}

type registrar struct {
	registration.UnsafeRegistrationServer

	name, path string
}

// GetInfo names the driver and its socket.
func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: r.name, Endpoint: r.path, SupportedVersions: []string{"1.0.0"}}, nil
}

// NotifyRegistrationStatus logs what kubelet has made of it. Kubelet tries again by itself.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, s *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	fmt.Fprintln(os.Stdout, "registered:", s.GetPluginRegistered(), s.GetError())
	return &registration.RegistrationStatusResponse{}, nil
}
