// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the group and the version of the kinds of this package.
var GroupVersion = schema.GroupVersion{Group: "etcd.mooring.dev", Version: "v1alpha1"}

// AddToScheme makes the kinds of this package known to a scheme. It never fails.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &EtcdStorage{}, &EtcdStorageList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
