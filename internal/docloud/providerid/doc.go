// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package providerid reads and writes spec.providerID of Nodes that are DigitalOcean droplets: "digitalocean://" and the droplet's ID.
//
// It is pure. Kubernetes never lets a provider ID change once it is set, so the form is a contract with every cluster that exists.
package providerid
