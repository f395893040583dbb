// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the private keys and certificates of one lab: a few certificate authorities that exist nowhere else, and the
// certificates they sign. All keys are P-256; all files have mode 0600 in a folder of mode 0700.
//
// What is wanted is a plain value (Plan); Ensure makes the folder match it and keeps what is still good, so that a lab which is
// started again keeps its authorities, and the users their kubeconfig.
package pki
