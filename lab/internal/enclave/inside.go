// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package enclave

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/relay"
)

// Furnish makes the namespaces that this process is the first of the lab's: the network that build makes, and the lab's server of names as that
// of every process in there. It fails in a namespace that is not new.
func Furnish(build func() error) error {
	if err := build(); err != nil {
		return err
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making the mount namespace private: %w", err)
	}
	return resolve("/etc/resolv.conf", resolvConf())
}

// resolvConf names the cluster's server of names, with the search list of a pod in no namespace (dnsPolicy ClusterFirst, pkg/kubelet/network/dns).
func resolvConf() string {
	const domain = "cluster.local"
	return fmt.Sprintf("search svc.%s %s\nnameserver %s\noptions ndots:5\n", domain, domain, blueprint.NamesService)
}

// resolve puts a file of this content in the place of path, for the processes of this mount namespace alone. Where there is no such file nothing can be
// put in its place, and programs ask 127.0.0.1, where nobody answers.
func resolve(path, content string) error {
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("finding the list of servers of names: %w", err)
	}
	file, err := os.CreateTemp("", "resolv.conf")
	if err != nil {
		return fmt.Errorf("making a list of servers of names: %w", err)
	}
	// The mount keeps the file; its name is not needed.
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.WriteString(content)
	if err := errors.Join(err, file.Chmod(0o644), file.Close()); err != nil {
		return fmt.Errorf("writing a list of servers of names: %w", err)
	}
	if err := unix.Mount(file.Name(), path, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("mounting a list of servers of names on %s: %w", path, err)
	}
	return nil
}

// Relay carries what comes to the outside's ports to the same numbers inside, until the function that it returns is called.
func (p Ports) Relay(ctx context.Context) (stop func()) {
	var servers []*relay.Server
	for name, number := range p.Numbers() {
		servers = append(servers, relay.Serve(ctx, p[name], relay.DialTo(net.JoinHostPort("127.0.0.1", strconv.Itoa(number)))))
	}
	return func() {
		for _, s := range servers {
			s.Close()
		}
	}
}
