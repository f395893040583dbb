// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"time"

	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/process"
)

// Lab is lab.json: the running lab as other programs see it. internal/testkit and users' scripts read it; fields are only ever added.
type Lab struct {
	Version         int                   `json:"version"`
	APIServer       *APIServer            `json:"apiServer,omitempty"`
	Etcd            *blueprint.EtcdAccess `json:"etcd,omitempty"`
	CalicoEtcd      *blueprint.EtcdAccess `json:"calicoEtcd,omitempty"`
	CalicoDatastore string                `json:"calicoDatastore"`
	// DigitalOcean is the simulator, nil in a lab without a cloud.
	DigitalOcean *blueprint.CloudAccess `json:"digitalOcean,omitempty"`
	Kubeconfig   string                 `json:"kubeconfig,omitempty"`
	Processes    []Process              `json:"processes"`
}

// LabVersion is the version of the format of lab.json.
const LabVersion = 1

// APIServer is how to reach the API server.
type APIServer struct {
	URL    string `json:"url"`
	CAFile string `json:"caFile"`
}

// Process is one process of a running lab.
type Process struct {
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	Restarts int    `json:"restarts"`
	Log      string `json:"log"`
	// State is one of the supervisor's states.
	State string `json:"state"`
	// Since is when the process started, or ended if it does not run.
	Since time.Time `json:"since"`
	// Addresses are where it listens.
	Addresses []string `json:"addresses,omitempty"`
	// LastExit is how it ended the last time, empty if it never did.
	LastExit string `json:"lastExit,omitempty"`
}

// State is state.json: who must be gone before the folder may be used again. It is there from the first moment of a start, unlike lab.json, and
// outlives a crash.
type State struct {
	Supervisor process.Identity            `json:"supervisor"`
	Identities map[string]process.Identity `json:"identities,omitempty"`
	Processes  []Process                   `json:"processes,omitempty"`
}
