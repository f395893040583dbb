// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/embed"
)

// etcdReadyTimeout is how long an etcd of one member may take to elect itself; on a busy machine it reads its log first.
const etcdReadyTimeout = 2 * time.Minute

type etcdOptions struct {
	name, dataDir            string
	listenClient, listenPeer string
	certFile, keyFile        string
	clientCAFile             string
	reusePort, unsafeNoFsync bool
	bcryptCost               uint
	readyFile                string
}

// newEtcdCommand runs an etcd of one member. Tests use it on its own; its flags are a contract with internal/testkit.
func newEtcdCommand() *cobra.Command {
	var o etcdOptions
	command := &cobra.Command{
		Use:    "etcd",
		Short:  "Run an etcd of one member (used by the supervisor and by tests)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(*cobra.Command, []string) error { return runEtcd(o) },
	}
	flags := command.Flags()
	flags.StringVar(&o.name, "name", "default", "name of the member")
	flags.StringVar(&o.dataDir, "data-dir", "", "folder of its data (required)")
	flags.StringVar(&o.listenClient, "listen-client", "", "URL for clients; port 0 means any free port (required)")
	flags.StringVar(&o.listenPeer, "listen-peer", "", "URL for peers; port 0 means any free port (required)")
	flags.StringVar(&o.certFile, "cert-file", "", "serving certificate, also used towards peers")
	flags.StringVar(&o.keyFile, "key-file", "", "key of the serving certificate")
	flags.StringVar(&o.clientCAFile, "client-ca-file", "", "authority that must have signed the certificates of clients and peers")
	flags.BoolVar(&o.reusePort, "reuse-port", false, "join ports that the supervisor holds")
	flags.BoolVar(&o.unsafeNoFsync, "unsafe-no-fsync", false, "do not wait for the disk: safe when the process is killed, not when the machine is")
	flags.UintVar(&o.bcryptCost, "bcrypt-cost", 10, "cost of each hash of a user's password: 4 to 31")
	flags.StringVar(&o.readyFile, "ready-file", "", "file to write {\"client\": URL} to once it serves")
	for _, name := range []string{"data-dir", "listen-client", "listen-peer"} {
		if err := command.MarkFlagRequired(name); err != nil {
			panic(err) // a flag name that is not one of the above, found by the first test that makes the command
		}
	}
	return command
}

func (o etcdOptions) config() (*embed.Config, error) {
	client, err := url.Parse(o.listenClient)
	if err != nil {
		return nil, fmt.Errorf("--listen-client: %w", err)
	}
	peer, err := url.Parse(o.listenPeer)
	if err != nil {
		return nil, fmt.Errorf("--listen-peer: %w", err)
	}
	config := embed.NewConfig()
	config.Name = o.name
	config.Dir = o.dataDir
	config.ListenClientUrls, config.AdvertiseClientUrls = []url.URL{*client}, []url.URL{*client}
	config.ListenPeerUrls, config.AdvertisePeerUrls = []url.URL{*peer}, []url.URL{*peer}
	config.InitialCluster = o.name + "=" + peer.String()
	config.SocketOpts.ReusePort = o.reusePort
	config.UnsafeNoFsync = o.unsafeNoFsync
	config.BcryptCost = o.bcryptCost
	config.LogLevel = "warn"
	config.LogOutputs = []string{"stderr"}
	if o.certFile != "" {
		config.ClientTLSInfo.CertFile, config.ClientTLSInfo.KeyFile = o.certFile, o.keyFile
		config.PeerTLSInfo.CertFile, config.PeerTLSInfo.KeyFile = o.certFile, o.keyFile
	}
	if o.clientCAFile != "" {
		config.ClientTLSInfo.TrustedCAFile, config.ClientTLSInfo.ClientCertAuth = o.clientCAFile, true
		config.PeerTLSInfo.TrustedCAFile, config.PeerTLSInfo.ClientCertAuth = o.clientCAFile, true
	}
	return config, nil
}

func runEtcd(o etcdOptions) error {
	config, err := o.config()
	if err != nil {
		return err
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	server, err := embed.StartEtcd(config)
	if err != nil {
		return fmt.Errorf("starting etcd: %w", err)
	}
	defer server.Close()
	select {
	case <-server.Server.ReadyNotify():
	case <-signals:
		return nil
	case err := <-server.Err():
		return fmt.Errorf("starting etcd: %w", err)
	case <-time.After(etcdReadyTimeout):
		return errors.New("etcd elected no leader in time; its log says why")
	}
	if o.readyFile != "" {
		if err := writeReadyFile(o.readyFile, server); err != nil {
			return err
		}
	}
	select {
	case <-signals:
		return nil
	case err := <-server.Err():
		return fmt.Errorf("serving: %w", err)
	}
}

// writeReadyFile replaces the file in one step, so that a reader never sees half of it.
func writeReadyFile(path string, server *embed.Etcd) error {
	listening := server.Config().ListenClientUrls[0]
	listening.Host = server.Clients[0].Addr().String()
	content, err := json.Marshal(map[string]string{"client": listening.String()})
	if err != nil {
		return fmt.Errorf("encoding the ready file: %w", err)
	}
	partial := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".partial")
	if err := os.WriteFile(partial, content, 0o600); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	if err := os.Rename(partial, path); err != nil {
		return fmt.Errorf("writing the ready file: %w", err)
	}
	return nil
}
