// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package objects judges rendered Kubernetes objects, wherever they come from (test/manifests: kustomize, test/charts: Helm): by the Pod
// Security Standard's own code, by rules about privileges, and by a real kube-apiserver.
//
// It is for tests: what is wrong becomes an error of the test that is handed in.
package objects
