// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package cni

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/internal/sim/caliconode"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// plugin is Calico's CNI plugin as it is installed on machines. Its configuration is that of Calico's manifests for the datastore.
type plugin struct {
	folder string // has the programs calico and calico-ipam, which are one
	config map[string]any
}

// newPlugin installs the plugin in a folder. The log of failed calls is in what they return.
func newPlugin(t *testing.T, kubeconfig string, datastore map[string]any) *plugin {
	t.Helper()
	p := &plugin{folder: t.TempDir()}
	for _, name := range []string{"calico", "calico-ipam"} {
		if err := os.Symlink(testkit.Binary(t, "calico-cni"), filepath.Join(p.folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	p.config = map[string]any{
		"cniVersion": "0.3.1", "name": "k8s-pod-network", "type": "calico", "log_level": "info", "log_file_path": filepath.Join(p.folder, "log"),
		"mtu": 1440, "nodename_file_optional": true, "ipam_lock_file": filepath.Join(p.folder, "lock"),
		"policy": map[string]any{"type": "k8s"}, "kubernetes": map[string]any{"kubeconfig": kubeconfig},
	}
	maps.Copy(p.config, datastore)
	return p
}

// call runs the plugin for a pod on a host, as a container runtime does: the sandbox is a network namespace at a path, "" if it is gone.
func (p *plugin) call(ctx context.Context, command string, host caliconode.Host, ipam map[string]any, pod *corev1.Pod, namespace string) error {
	config := map[string]any{"nodename": host.Name, "ipam": ipam}
	maps.Copy(config, p.config)
	stdin, err := json.Marshal(config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	program := exec.CommandContext(ctx, filepath.Join(p.folder, "calico"))
	program.Env = []string{
		"PATH=" + os.Getenv("PATH"), "CNI_COMMAND=" + command, "CNI_CONTAINERID=" + caliconode.ContainerID(pod), "CNI_NETNS=" + namespace,
		"CNI_IFNAME=eth0", "CNI_PATH=" + p.folder,
		"CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=" + pod.Namespace + ";K8S_POD_NAME=" + pod.Name +
			";K8S_POD_INFRA_CONTAINER_ID=" + caliconode.ContainerID(pod),
	}
	var stdout, stderr bytes.Buffer
	program.Stdin, program.Stdout, program.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	if err := program.Run(); err != nil {
		return fmt.Errorf("%s of pod %s on %s: %w: %s %s", command, pod.Name, host.Name, err, stdout.String(), stderr.String())
	}
	return nil
}

// sandbox is where the network namespace of a pod's sandbox is found.
func sandbox(pod *corev1.Pod) string {
	return filepath.Join("/run/sandboxes", caliconode.ContainerID(pod))
}

// openSandbox makes the network namespace of a pod's sandbox, unless it exists. The namespace ends with the test at the latest.
func openSandbox(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	path := sandbox(pod)
	if _, err := os.Stat(path); err == nil {
		return
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // on a file system of the test's own
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSandbox(t, pod) })
	if out, err := exec.CommandContext(t.Context(), "unshare", "--net="+path, "true").CombinedOutput(); err != nil {
		t.Fatalf("making a network namespace: %v: %s", err, out)
	}
}

// closeSandbox ends the network namespace of a pod's sandbox, and with it both ends of its interface. It may be gone already.
func closeSandbox(t *testing.T, pod *corev1.Pod) {
	t.Helper()
	path := sandbox(pod)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err := errors.Join(unix.Unmount(path, unix.MNT_DETACH), os.Remove(path)); err != nil {
		t.Errorf("ending the sandbox of pod %s: %v", pod.Name, err)
	}
}
