// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blueprint

import "path/filepath"

// Layout knows where things are in the folder of a lab. Paths that users and tests rely on: Kubeconfig, LabFile, MachinesFile, Log.
type Layout struct{ Dir string }

// Kubeconfig is the administrator's kubeconfig.
func (l Layout) Kubeconfig() string { return filepath.Join(l.Dir, "kubeconfig") }

// LabFile describes the running lab to other programs.
func (l Layout) LabFile() string { return filepath.Join(l.Dir, "lab.json") }

// MachinesFile is the truth about the machines that exist.
func (l Layout) MachinesFile() string { return filepath.Join(l.Dir, "machines.json") }

// OptionsFile remembers what the lab in this folder was made with.
func (l Layout) OptionsFile() string { return filepath.Join(l.Dir, "options.json") }

// StateFile remembers which processes run, for a `down` after a crash of the supervisor.
func (l Layout) StateFile() string { return filepath.Join(l.Dir, "state.json") }

// LockFile is locked while a supervisor runs.
func (l Layout) LockFile() string { return filepath.Join(l.Dir, "lock") }

// Logs is the folder of log files; Log is that of one process.
func (l Layout) Logs() string { return filepath.Join(l.Dir, "logs") }

// Log is the log file of one process.
func (l Layout) Log(process string) string { return filepath.Join(l.Logs(), process+".log") }

// PKI is the folder of keys and certificates.
func (l Layout) PKI() string { return filepath.Join(l.Dir, "pki") }

// Certificate is a certificate of the PKI folder.
func (l Layout) Certificate(name string) string { return filepath.Join(l.PKI(), name+".crt") }

// Key is a private key of the PKI folder.
func (l Layout) Key(name string) string { return filepath.Join(l.PKI(), name+".key") }

// PublicKey is the public half of a bare key pair.
func (l Layout) PublicKey(name string) string { return filepath.Join(l.PKI(), name+".pub") }

// Data is the folder where one process keeps its data.
func (l Layout) Data(process string) string { return filepath.Join(l.Dir, "data", process) }

// ProcessKubeconfig is the kubeconfig with which one process talks to the API server.
func (l Layout) ProcessKubeconfig(process string) string {
	return filepath.Join(l.Dir, "etc", process+".kubeconfig")
}

// ReadyFile is written by a process that has no port on which it could be asked.
func (l Layout) ReadyFile(process string) string {
	return filepath.Join(l.Dir, "run", process+".ready")
}

// CloudToken is the token of the simulated DigitalOcean account.
func (l Layout) CloudToken() string { return filepath.Join(l.Dir, "etc", "digitalocean-token") }

// CloudState is what the simulated DigitalOcean remembers.
func (l Layout) CloudState() string { return filepath.Join(l.Dir, "data", "digitalocean.json") }

// BGPNetwork is the folder of the BGP network: its socket, and the files and logs of each machine's speaker.
func (l Layout) BGPNetwork() string { return filepath.Join(l.Dir, "bgp") }

// Home and Temp are what processes of the lab take for the user's, so that they write nothing outside.
func (l Layout) Home() string { return filepath.Join(l.Dir, "home") }

// Temp is for temporary files.
func (l Layout) Temp() string { return filepath.Join(l.Dir, "tmp") }

// Folders lists the folders that must exist before the first process starts, parents first.
func (l Layout) Folders() []string {
	return []string{
		l.Dir, l.PKI(), l.Logs(), l.Home(), l.Temp(),
		filepath.Join(l.Dir, "data"), filepath.Join(l.Dir, "etc"), filepath.Join(l.Dir, "run"),
	}
}
