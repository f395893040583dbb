// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package app is the digitalocean-cloud-controller-manager binary: its flags and environment variables, and how its parts are put together
// around Kubernetes' own framework for cloud controller managers (k8s.io/cloud-provider/app). It decides nothing.
package app
