// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package outofservice

import (
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Where the record is kept. These MUST NOT change: the plugin and the next version look here.
const (
	// RecordNamespace and RecordName name the Lease in namespace kube-system that holds the record.
	RecordNamespace = metav1.NamespaceSystem
	RecordName      = "digitalocean-cloud-controller-manager-out-of-service"
	// RecordAnnotation on the Lease kube-system/digitalocean-cloud-controller-manager-out-of-service: the machines that are off, the state of each, and
	// what waits for a confirmation, as JSON.
	RecordAnnotation = "cloud.mooring.dev/out-of-service"
	// ConfirmAnnotation on the Lease kube-system/digitalocean-cloud-controller-manager-out-of-service: a person's confirmation that the listed
	// machines are off, as HASH/TIME; kubectl mooring confirm machines writes it.
	ConfirmAnnotation = "cloud.mooring.dev/confirm-out-of-service"
)

// Record is what outlives the process: for the next leader, and for people.
type Record struct {
	// SavedAt is when it was written.
	SavedAt time.Time `json:"savedAt"`
	// Enabled reports whether taints are set.
	Enabled bool `json:"enabled"`
	// Machines are those that are not simply in service, the first of them by name; More is how many more there are.
	Machines []Verdict `json:"machines,omitempty"`
	More     int       `json:"more,omitempty"`
	Awaiting Awaiting  `json:"awaiting,omitzero"`
	Memory   Memory    `json:"memory,omitzero"`
}

// Recorded reads the record of a Lease, and a person's confirmation.
func Recorded(lease *coordinationv1.Lease) (r Record, confirmation string, err error) {
	text, ok := lease.Annotations[RecordAnnotation]
	if !ok {
		return r, "", fmt.Errorf("Lease %s/%s has no annotation %s", lease.Namespace, lease.Name, RecordAnnotation)
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, "", fmt.Errorf("annotation %s of Lease %s/%s: %w; delete the Lease, it is written again", RecordAnnotation, lease.Namespace, lease.Name, err)
	}
	return r, lease.Annotations[ConfirmAnnotation], nil
}
