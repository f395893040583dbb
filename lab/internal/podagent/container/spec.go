// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

// Spec is all that the launcher needs to know. It travels as JSON.
type Spec struct {
	// Root is an empty folder on which the root file system is mounted, for the container alone.
	Root string `json:"root"`
	// Program is the path of a static binary outside. It stands at the first of Paths inside; the others are links to that.
	Program string   `json:"program"`
	Paths   []string `json:"paths"`
	// Argv is what the program is called with, Argv[0] included; it need not be a path. The file is Exec, a path inside.
	Exec string   `json:"exec"`
	Argv []string `json:"argv"`
	// Env is the whole environment, NAME=value.
	Env []string `json:"env"`
	// Dir is the working folder inside; it is made if it is not there. Empty means the root.
	Dir string `json:"dir,omitempty"`
	// Hostname is the name of the machine as the container sees it.
	Hostname string `json:"hostname,omitempty"`
	// Files are small files by their path inside, readable by all.
	Files map[string]string `json:"files,omitempty"`
	// Mounts are made in this order.
	Mounts []Mount `json:"mounts,omitempty"`
	// User, Group and Groups are those of the program. Where the user namespace knows no such user (see user_namespaces(7)), the program keeps the
	// agent's, and has no capability.
	User   int   `json:"user"`
	Group  int   `json:"group"`
	Groups []int `json:"groups,omitempty"`
	// ReadOnly makes the root file system read-only, apart from mounts.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Privileged leaves all capabilities to the program; else Capabilities, as in "NET_RAW", are the only ones that it can have.
	Privileged   bool     `json:"privileged,omitempty"`
	Capabilities []string `json:"capabilities,omitempty"`
	// MayGainPrivileges allows set-user-ID programs to have an effect.
	MayGainPrivileges bool `json:"mayGainPrivileges,omitempty"`
}

// Mount shows a file or folder from outside inside.
type Mount struct {
	Source   string `json:"source"`
	Target   string `json:"target"`
	ReadOnly bool   `json:"readOnly,omitempty"`
}
