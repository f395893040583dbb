// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodesPath is where Nodes are in Kubernetes' API, behind the path of a proxy if there is one.
const nodesPath = "/api/v1/nodes/"

// Deletions returns a transport for the clients of Kubernetes' framework, which deletes Nodes by name alone (k8s.io/cloud-provider,
// controllers/nodelifecycle). Through it a deletion names the UID and the resourceVersion of the Node that InstanceExists has
// given up, so that the API server refuses it (409) once the Node has changed or is another machine's. A deletion of any other
// Node is an error and is not sent.
func (m *Instances) Deletions(next http.RoundTripper) http.RoundTripper { return deletions{m, next} }

type deletions struct {
	machines *Instances
	next     http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (d deletions) RoundTrip(r *http.Request) (*http.Response, error) {
	_, name, is := strings.Cut(r.URL.Path, nodesPath)
	if r.Method != http.MethodDelete || !is {
		return d.next.RoundTrip(r)
	}
	if r.Body != nil {
		_ = r.Body.Close()
	}
	only, known := d.machines.isGivenUp(name)
	if !known {
		return nil, fmt.Errorf("node %s is not deleted: its machine was not found to be gone", name)
	}
	body, err := json.Marshal(metav1.DeleteOptions{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}, Preconditions: &only,
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the options of the deletion of node %s: %w", name, err)
	}
	bound := r.Clone(r.Context())
	bound.Header.Set("Content-Type", "application/json")
	bound.Body, bound.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	bound.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	response, err := d.next.RoundTrip(bound)
	if err != nil || response.StatusCode == http.StatusTooManyRequests || response.StatusCode >= http.StatusInternalServerError {
		return response, err // it is sent again
	}
	d.machines.forgetGivenUp(name)
	return response, nil
}

// giveUp notes the Node that is deleted next, as it is.
func (m *Instances) giveUp(node *corev1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.givenUp[node.Name] = metav1.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}
}

// isGivenUp returns which Node of that name is given up.
func (m *Instances) isGivenUp(name string) (only metav1.Preconditions, is bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	only, is = m.givenUp[name]
	return only, is
}

func (m *Instances) forgetGivenUp(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.givenUp, name)
}
