// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package observe reads what kubectl mooring shows, as functions of a [Cluster]: Kubernetes by the person's kubeconfig, Calico's datastore and DigitalOcean by the
// environment, and files. It writes nothing and judges nothing. What one side refuses to say is part of what is returned, in a sentence.
package observe
