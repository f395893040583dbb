// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package v1alpha1 holds the kinds of the group etcd.mooring.dev: EtcdStorage.
//
// +kubebuilder:object:generate=true
// +groupName=etcd.mooring.dev
package v1alpha1
