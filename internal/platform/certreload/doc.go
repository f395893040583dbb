// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package certreload keeps TLS key pairs and CA bundles that are files (a mounted Secret, cert-manager,
// an operator's hand) current in running servers and clients, without a restart.
//
//	directory events (fsnotify) ─┐
//	                             ├─► read all files ─► parse, match key to certificate ─► swap, or keep the last good
//	periodic read ───────────────┘
//
// What is served is always one complete set: the three files are read twice and must agree, the private
// key must belong to the certificate, and every PEM block must be whole. Anything else is reported and
// changes nothing. The directory is watched, not the file, because Kubernetes replaces a mounted Secret
// by swapping a symlink; the periodic read is for file systems that send no events.
//
// The package does not issue or renew certificates, and by itself it does not refuse expired ones: the peer
// does, and the metric says so in advance. A caller that knows better has Options.Check.
package certreload
