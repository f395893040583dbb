// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package manifests tests what users install: every file of dist/, as make manifests rendered it from config/ (make verify keeps the two
// equal), is judged by the Pod Security Standard's own code, by rules about privileges, and by a real kube-apiserver.
package manifests
