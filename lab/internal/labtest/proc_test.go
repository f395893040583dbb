// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package labtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// listeners returns the local addresses, as the kernel prints them, of the sockets of a process that listen (TCP) or take what comes (UDP).
func listeners(t *testing.T, pid int, table string) []string {
	t.Helper()
	inodes := map[string]bool{}
	descriptors := must.Get(filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))).Or(t)
	for _, descriptor := range descriptors {
		if target, err := os.Readlink(descriptor); err == nil && strings.HasPrefix(target, "socket:[") {
			inodes[strings.Trim(strings.TrimPrefix(target, "socket:"), "[]")] = true
		}
	}
	content, err := os.ReadFile("/proc/net/" + table)
	if err != nil {
		return nil // no IPv6 on this machine
	}
	var addresses []string
	for _, line := range strings.Split(string(content), "\n")[1:] {
		fields := strings.Fields(line)
		const local, state, inode = 1, 3, 9
		if len(fields) <= inode || !inodes[fields[inode]] {
			continue
		}
		// 0A is LISTEN; 07 is a UDP socket that is not connected.
		if fields[state] == "0A" || fields[state] == "07" {
			addresses = append(addresses, fields[local])
		}
	}
	return addresses
}

// clientFrom is a client with another kubeconfig of the lab.
func (l *lab) clientFrom(kubeconfig string) kubernetes.Interface {
	l.t.Helper()
	config := must.Get(clientcmd.BuildConfigFromFlags("", kubeconfig)).Or(l.t)
	config.QPS = -1
	client := must.Get(kubernetes.NewForConfig(config)).Or(l.t)
	return client
}

// metadata asks for the metadata of one of Calico's resources.
func (l *lab) metadata(resource string) *rest.Request {
	l.t.Helper()
	return l.client().CoreV1().RESTClient().Get().AbsPath("/apis/crd.projectcalico.org/v1", resource).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
}
