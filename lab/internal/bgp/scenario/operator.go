// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/ports"
)

// operatorName is the name of the operator's program, and by that of its fields in managedFields.
const operatorName = "calico-route-reflector-operator"

const (
	// leaseNamespace is where the operator's Lease is.
	leaseNamespace = "kube-system"
	// ending is how long the operator may take to end by itself.
	ending = 30 * time.Second
	// downtime is how long a killed operator is away.
	downtime = time.Second
)

// operator is a running operator, a child of this process: it ends with it, whatever ends it.
type operator struct {
	process     *os.Process
	log         string
	environment []string
	ended       chan struct{}
	err         error // why it ended, once ended is closed
}

// Operate starts the operator alongside whatever a caller does to the cluster, and returns once it is ready; its log is appended to a file.
// environment, which may be nothing, names a datastore of Calico's that is not the cluster's own. stop lets it end and waits for that.
func Operate(ctx context.Context, program, kubeconfig, log string, environment ...string) (stop func() error, err error) {
	o, err := startOperator(ctx, program, kubeconfig, log, environment...)
	if err != nil {
		return nil, err
	}
	return o.stop, nil
}

// startOperator starts the operator and waits until it is ready. Its log is appended to a file.
func startOperator(ctx context.Context, program, kubeconfig, log string, environment ...string) (*operator, error) {
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("%s is not there; build it with `make build` or name it with --operator", program)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	health := fmt.Sprintf("%s:%d", ports.Host, port)
	o := &operator{log: log, environment: append(os.Environ(), environment...), ended: make(chan struct{})}
	started := make(chan error, 1)
	go o.run(started, program, "--kubeconfig="+kubeconfig, "--leader-elect", "--leader-election-namespace="+leaseNamespace,
		"--metrics-bind-address=0", "--health-probe-bind-address="+health)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", program, err)
	}
	err = until(ctx, func() (bool, error) {
		if err := o.alive(); err != nil {
			return false, err
		}
		return answers(ctx, "http://"+health+"/readyz"), nil
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("waiting for %s: %w", operatorName, err), o.kill())
	}
	return o, nil
}

// freePort finds a port for the operator, which takes none that is held for it.
func freePort() (int, error) {
	var holder ports.Holder
	port, err := holder.Any()
	return port, errors.Join(err, holder.Close())
}

func answers(ctx context.Context, url string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return false
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return false
	}
	_ = response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// run starts the program and waits for its end, on one thread: the parent-death signal is sent when the thread that forked it ends.
func (o *operator) run(started chan<- error, program string, args ...string) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	log, err := os.OpenFile(o.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		started <- err
		return
	}
	defer func() { _ = log.Close() }()
	command := exec.Command(program, args...) //nolint:noctx // stop and kill end it
	command.Stdout, command.Stderr, command.Env = log, log, o.environment
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := command.Start(); err != nil {
		started <- err
		return
	}
	o.process = command.Process
	started <- nil
	o.err = command.Wait()
	close(o.ended)
}

// alive returns an error if the operator has ended.
func (o *operator) alive() error {
	select {
	case <-o.ended:
		return fmt.Errorf("%s ended by itself; its log is %s: %w", operatorName, o.log, cmp.Or(o.err, errors.New("it said that all is well")))
	default:
		return nil
	}
}

// kill ends it at once, so that it cannot so much as give its Lease back.
func (o *operator) kill() error { return o.end(syscall.SIGKILL) }

// stop lets it end.
func (o *operator) stop() error { return o.end(syscall.SIGTERM) }

func (o *operator) end(signal syscall.Signal) error {
	if err := o.process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("ending %s: %w", operatorName, err)
	}
	timer := time.NewTimer(ending)
	defer timer.Stop()
	select {
	case <-o.ended:
		return nil
	case <-timer.C:
	}
	_ = o.process.Kill()
	<-o.ended
	return fmt.Errorf("%s did not end within %v and was killed; its log is %s", operatorName, ending, o.log)
}
