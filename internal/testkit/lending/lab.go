// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package lending

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
)

// Arguments are those of the program lab by which it runs etcd and kube-apiserver alone in a folder, until its standard input ends.
func Arguments(dir, apiServer string) []string {
	args := []string{
		"up", "--foreground", "--stop-with-stdin", "--dir", dir, "--nodes", "0", "--calico-datastore", "none", "--components", "etcd,kube-apiserver",
	}
	if apiServer != "" {
		args = append(args, "--kube-apiserver", apiServer)
	}
	return args
}

// Ready is the line that the program prints when both serve.
const Ready = "lab ready"

// labPlane is a lab of etcd and kube-apiserver.
type labPlane struct {
	folder string
	cmd    *exec.Cmd
	stdin  io.Closer
	done   chan struct{} // closed when it has ended
	first  state
}

// startLab starts a lab in a new folder and returns when its API server is ready.
func startLab(ctx context.Context, program, apiServer, folder string) (plane, error) {
	if err := os.Mkdir(folder, 0o700); err != nil {
		return nil, err
	}
	p := &labPlane{folder: folder, done: make(chan struct{})}
	p.cmd = exec.Command(program, Arguments(p.dir(), apiServer)...) //nolint:noctx // stop ends it, or the end of its standard input
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}         // Ctrl-C reaches the pool alone, which stops it in order
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return nil, err
	}
	defer func() { _ = log.Close() }()
	p.cmd.Stderr = log
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a control plane: %w", err)
	}
	ready := make(chan struct{})
	go func() {
		defer close(p.done)
		lines := bufio.NewScanner(stdout)
		for lines.Scan() && lines.Text() != Ready {
			continue
		}
		if lines.Text() == Ready {
			close(ready)
		}
		_, _ = io.Copy(io.Discard, stdout)
		_ = p.cmd.Wait()
	}()
	select {
	case <-ready:
	case <-p.done:
		text, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("the lab ended before it was ready: %s", text)
	case <-ctx.Done():
		p.stop()
		return nil, ctx.Err()
	}
	if p.first, err = p.settled(ctx); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *labPlane) dir() string { return filepath.Join(p.folder, "lab") }

// stop asks it to end, and kills it when it does not within 20 seconds.
func (p *labPlane) stop() time.Duration {
	p.thaw()
	_ = p.stdin.Close()
	select {
	case <-p.done:
	case <-time.After(20 * time.Second):
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
		<-p.done
	}
	if p.cmd.ProcessState == nil {
		return 0
	}
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// used adds up the CPU time of the lab and of the processes below it.
func (p *labPlane) used() time.Duration { return familyOf(p.cmd.Process.Pid).used() }

// freeze stops etcd and kube-apiserver, which otherwise use a twentieth of a processor while nobody asks them. The lab that
// watches them goes on: it ends when its standard input does, also if the pool is killed, and kills them with it.
func (p *labPlane) freeze() { p.signal(syscall.SIGSTOP) }

// thaw lets them go on. What expired meanwhile, such as the record that kube-apiserver lives, they make again.
func (p *labPlane) thaw() { p.signal(syscall.SIGCONT) }

// signal sends a signal to all processes below the lab. One that has ended needs none.
func (p *labPlane) signal(s syscall.Signal) {
	lab := p.cmd.Process.Pid
	for pid := range familyOf(lab) {
		if pid != lab {
			_ = syscall.Kill(pid, s)
		}
	}
}

// etcd returns a client of its etcd with the API server's own certificate.
func (p *labPlane) etcd() (*clientv3.Client, error) {
	text, err := os.ReadFile(filepath.Join(p.dir(), "lab.json"))
	if err != nil {
		return nil, err
	}
	var lab struct {
		Etcd struct {
			Endpoints                 []string
			CAFile, CertFile, KeyFile string
		}
	}
	if err := json.Unmarshal(text, &lab); err != nil {
		return nil, fmt.Errorf("reading lab.json: %w", err)
	}
	tls, err := transport.TLSInfo{CertFile: lab.Etcd.CertFile, KeyFile: lab.Etcd.KeyFile, TrustedCAFile: lab.Etcd.CAFile}.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reading the certificates of etcd: %w", err)
	}
	return clientv3.New(clientv3.Config{Endpoints: lab.Etcd.Endpoints, TLS: tls, DialTimeout: 10 * time.Second, Logger: zap.NewNop()})
}

// discovered returns the resources that the API server says it serves, as GROUP/VERSION RESOURCE.
func (p *labPlane) discovered() (map[string]bool, error) {
	config, err := clientcmd.BuildConfigFromFlags("", filepath.Join(p.dir(), "kubeconfig"))
	if err != nil {
		return nil, err
	}
	config.Timeout = 10 * time.Second
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	if _, err := client.RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background()); err != nil {
		return nil, fmt.Errorf("asking whether the API server is ready: %w", err)
	}
	_, lists, err := client.ServerGroupsAndResources()
	if err != nil {
		return nil, fmt.Errorf("discovering what the API server serves: %w", err)
	}
	out := map[string]bool{}
	for _, list := range lists {
		for _, resource := range list.APIResources {
			out[list.GroupVersion+" "+resource.Name] = true
		}
	}
	if len(out) == 0 {
		return nil, errors.New("the API server serves nothing")
	}
	return out, nil
}
