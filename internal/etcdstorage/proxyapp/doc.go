// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package proxyapp is the program etcd-storage-proxy: its flags, the TLS files on both sides and their reload, the identity of clients, the endpoints
// for probes and metrics, and the orderly end. What passes between tenant and core is decided and done in package proxy.
//
//	options ─► settings ─► reloaders (certreload) ─┬─► clientSide: TLS 1.3, certificate required, identity ─► proxy
//	 flags      parsed      last good set is kept  └─► coreSide: TLS 1.3, own certificate or password     ─► proxy
//	                                                    opsServer: /healthz /readyz /metrics
//
// Everything that is wrong at the start ends the program with one sentence per mistake. What goes wrong later never does: the last good files
// are used on, /readyz and the log say what is the matter, a metric counts it.
package proxyapp
