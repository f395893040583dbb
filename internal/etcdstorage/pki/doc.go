// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki decides about the certificates of a tenant and makes them: two CAs that last, one for the proxies' certificates and one for the clients',
// each replaced by overlap, and the leaf certificates that they sign.
//
//	life of a CA   0 ───────────── 2/3 ───────── 5/6 ───── 11/12 ──── 1
//	               signs            next one      next one  next one   gone from
//	                                is trusted    signs     must sign  the bundles
//
// Where an issuer gives the CAs, such as cert-manager, they are taken as they come, and all else is the same: when the next one signs is decided here.
//
// A CA is trusted everywhere before it signs, and for as long as it is valid, so that at every instant each issued pair validates against each published
// bundle, whichever write a process dies after. Clock and randomness are passed in; nothing is read or written here.
package pki
