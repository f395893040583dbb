// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"
)

// typed returns an object of the Go type of a built-in kind, or nil for kinds that client-go has no type of.
func (k *kind) typed() runtime.Object {
	gvk := k.GroupVersionKind
	if k.stored != "" {
		gvk = corev1.SchemeGroupVersion.WithKind(k.Kind)
	}
	out, err := scheme.Scheme.New(gvk)
	if k.custom || err != nil {
		return nil
	}
	return out
}

// shapeBuiltIn reads an object as its Go type and writes it back, as a real server does: fields that the type lacks
// vanish, and those that it always has appear. It adds the defaults that programs of this repository can see, and
// refuses the changes that they may try. old is nil for a new object.
func (w write) shapeBuiltIn(old, object *unstructured.Unstructured) error {
	is := w.k.typed()
	if is == nil {
		return nil
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, is); err != nil {
		if w.unconditional {
			return unreadable(err)
		}
		return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled: %v", w.k.Kind, w.k.Version, err))
	}
	if errs := foreignFinalizers(object); len(errs) > 0 {
		return w.invalid(errs...)
	}
	setDefaults(is)
	if old == nil {
		prepare(is)
	} else {
		was := w.k.typed()
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(old.Object, was); err != nil {
			return fmt.Errorf("reading what is stored: %w", err)
		}
		carryOver(is, was)
		if errs := refusals(is, was); len(errs) > 0 {
			return w.invalid(errs...)
		}
	}
	kind := object.GroupVersionKind()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(is)
	if err != nil {
		return fmt.Errorf("encoding an object: %w", err)
	}
	object.Object = content
	object.SetGroupVersionKind(kind)
	return nil
}

// setDefaults fills in what a real server fills in whenever it reads an object.
func setDefaults(object runtime.Object) { //nolint:gocyclo // one case for each kind
	switch o := object.(type) {
	case *corev1.Secret:
		for key, value := range o.StringData {
			if o.Data == nil {
				o.Data = map[string][]byte{}
			}
			o.Data[key] = []byte(value)
		}
		o.StringData = nil
		o.Type = orDefault(o.Type, corev1.SecretTypeOpaque)
	case *corev1.Namespace:
		if o.Labels == nil {
			o.Labels = map[string]string{}
		}
		o.Labels[corev1.LabelMetadataName] = o.Name
	case *corev1.Service:
		setServiceDefaults(&o.Spec)
		for i := range o.Status.LoadBalancer.Ingress {
			if in := &o.Status.LoadBalancer.Ingress[i]; in.IP != "" {
				in.IPMode = orDefault(in.IPMode, ptr.To(corev1.LoadBalancerIPModeVIP))
			}
		}
	case *corev1.PersistentVolume:
		policy := &o.Spec.PersistentVolumeReclaimPolicy
		*policy = orDefault(*policy, corev1.PersistentVolumeReclaimRetain)
		o.Spec.VolumeMode = orDefault(o.Spec.VolumeMode, ptr.To(corev1.PersistentVolumeFilesystem))
		o.Status.Phase = orDefault(o.Status.Phase, corev1.VolumePending)
	case *storagev1.StorageClass:
		o.ReclaimPolicy = orDefault(o.ReclaimPolicy, ptr.To(corev1.PersistentVolumeReclaimDelete))
		o.VolumeBindingMode = orDefault(o.VolumeBindingMode, ptr.To(storagev1.VolumeBindingImmediate))
	case *rbacv1.RoleBinding:
		setBindingDefaults(&o.RoleRef, o.Subjects)
	case *rbacv1.ClusterRoleBinding:
		setBindingDefaults(&o.RoleRef, o.Subjects)
	case *networkingv1.NetworkPolicy:
		if len(o.Spec.PolicyTypes) == 0 {
			o.Spec.PolicyTypes = []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}
			if len(o.Spec.Egress) > 0 {
				o.Spec.PolicyTypes = append(o.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
			}
		}
	case *corev1.PersistentVolumeClaim:
		o.Spec.VolumeMode = orDefault(o.Spec.VolumeMode, ptr.To(corev1.PersistentVolumeFilesystem))
		o.Status.Phase = orDefault(o.Status.Phase, corev1.ClaimPending)
	}
}

func setBindingDefaults(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	role.APIGroup = orDefault(role.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		if s := &subjects[i]; s.Kind != rbacv1.ServiceAccountKind {
			s.APIGroup = orDefault(s.APIGroup, rbacv1.GroupName)
		}
	}
}

func setServiceDefaults(s *corev1.ServiceSpec) {
	s.Type = orDefault(s.Type, corev1.ServiceTypeClusterIP)
	s.SessionAffinity = orDefault(s.SessionAffinity, corev1.ServiceAffinityNone)
	if s.SessionAffinity == corev1.ServiceAffinityClientIP && s.SessionAffinityConfig == nil {
		s.SessionAffinityConfig = &corev1.SessionAffinityConfig{
			ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)},
		}
	}
	for i := range s.Ports {
		p := &s.Ports[i]
		p.Protocol = orDefault(p.Protocol, corev1.ProtocolTCP)
		p.TargetPort = orDefault(p.TargetPort, intstr.FromInt32(p.Port))
	}
	balanced := s.Type == corev1.ServiceTypeLoadBalancer
	if balanced {
		s.AllocateLoadBalancerNodePorts = orDefault(s.AllocateLoadBalancerNodePorts, new(true))
	}
	if balanced || s.Type == corev1.ServiceTypeNodePort {
		s.ExternalTrafficPolicy = orDefault(s.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	} else {
		s.ExternalTrafficPolicy, s.AllocateLoadBalancerNodePorts = "", nil
	}
	if s.Type != corev1.ServiceTypeExternalName {
		s.InternalTrafficPolicy = orDefault(s.InternalTrafficPolicy, ptr.To(corev1.ServiceInternalTrafficPolicyCluster))
		s.IPFamilyPolicy = orDefault(s.IPFamilyPolicy, ptr.To(corev1.IPFamilyPolicySingleStack))
		if len(s.IPFamilies) == 0 {
			s.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
		}
	}
}

func orDefault[T comparable](value, otherwise T) T {
	var zero T
	if value == zero {
		return otherwise
	}
	return value
}

// prepare gives a new object what only a new one gets.
func prepare(object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Namespace:
		o.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
		o.Status.Phase = corev1.NamespaceActive
	case *corev1.Pod:
		o.Status.Phase, o.Status.QOSClass = corev1.PodPending, corev1.PodQOSBestEffort
	case *corev1.PersistentVolume: // the work of the admission plugin StorageObjectInUseProtection, as for claims
		o.Finalizers = protected(o.Finalizers, "kubernetes.io/pv-protection")
	case *corev1.PersistentVolumeClaim:
		o.Finalizers = protected(o.Finalizers, "kubernetes.io/pvc-protection")
	case *corev1.Node: // the work of the admission plugin TaintNodesByCondition
		taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
		if !slices.Contains(o.Spec.Taints, taint) {
			o.Spec.Taints = append(o.Spec.Taints, taint)
		}
	}
}

func protected(finalizers []string, by string) []string {
	if slices.Contains(finalizers, by) {
		return finalizers
	}
	return append(finalizers, by)
}

// carryOver restores what an update of a kind does not change, without saying so.
func carryOver(is, was runtime.Object) {
	switch is := is.(type) {
	case *corev1.Namespace:
		was, _ := was.(*corev1.Namespace)
		is.Spec.Finalizers = was.Spec.Finalizers
	case *corev1.Service:
		was, _ := was.(*corev1.Service)
		if was.Spec.Type == corev1.ServiceTypeLoadBalancer && is.Spec.Type != was.Spec.Type {
			is.Status.LoadBalancer = corev1.LoadBalancerStatus{}
		}
	}
}

// foreignFinalizers refuses names without a domain that are not Kubernetes' own.
func foreignFinalizers(object *unstructured.Unstructured) (errs field.ErrorList) {
	own := []string{string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}
	for i, name := range object.GetFinalizers() {
		if !strings.Contains(name, "/") && !slices.Contains(own, name) {
			errs = append(errs, field.Invalid(field.NewPath("metadata", "finalizers").Index(i), name,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// refusals are the changes of a spec that a real server refuses and that programs of this repository may try.
func refusals(is, was runtime.Object) (errs field.ErrorList) { //nolint:gocyclo // one case for each kind
	spec := field.NewPath("spec")
	switch is := is.(type) {
	case *corev1.Node:
		was, _ := was.(*corev1.Node)
		if was.Spec.ProviderID != "" && was.Spec.ProviderID != is.Spec.ProviderID {
			errs = append(errs, field.Invalid(spec.Child("providerID"), nil, "field cannot be modified once set"))
		}
		if len(was.Spec.PodCIDRs) > 0 && !slices.Equal(was.Spec.PodCIDRs, is.Spec.PodCIDRs) {
			errs = append(errs, field.Forbidden(spec.Child("podCIDRs"),
				"node updates may not change podCIDR except from \"\" to valid"))
		}
	case *corev1.Pod:
		was, _ := was.(*corev1.Pod)
		if was.Spec.NodeName != "" && was.Spec.NodeName != is.Spec.NodeName {
			errs = append(errs, field.Forbidden(spec, "pod updates may not change fields other than some"))
		}
	case *corev1.Service:
		was, _ := was.(*corev1.Service)
		balanced := is.Spec.Type == corev1.ServiceTypeLoadBalancer
		class := is.Spec.LoadBalancerClass
		if balanced && was.Spec.Type == is.Spec.Type && !ptr.Equal(was.Spec.LoadBalancerClass, class) {
			errs = append(errs, field.Invalid(spec.Child("loadBalancerClass"), class, "may not change once set"))
		}
		if !balanced && len(is.Status.LoadBalancer.Ingress) > 0 {
			errs = append(errs, field.Forbidden(field.NewPath("status", "loadBalancer", "ingress"),
				"may only be used when `spec.type` is 'LoadBalancer'"))
		}
	case *corev1.ConfigMap:
		was, _ := was.(*corev1.ConfigMap)
		errs = immutable(was.Immutable, is.Immutable, was.Data, is.Data)
	case *corev1.Secret:
		was, _ := was.(*corev1.Secret)
		errs = append(validation.ValidateImmutableField(is.Type, was.Type, field.NewPath("type")),
			immutable(was.Immutable, is.Immutable, was.Data, is.Data)...)
	}
	return errs
}

func immutable(was, is *bool, before, after any) (errs field.ErrorList) {
	const detail = "field is immutable when `immutable` is set"
	if !ptr.Deref(was, false) {
		return nil
	}
	if !ptr.Deref(is, false) {
		errs = append(errs, field.Forbidden(field.NewPath("immutable"), detail))
	}
	if !equality.Semantic.DeepEqual(before, after) {
		errs = append(errs, field.Forbidden(field.NewPath("data"), detail))
	}
	return errs
}

// nameRule is what names of the kind must be.
func (k *kind) nameRule() validation.ValidateNameFunc {
	switch {
	case k.Group == "rbac.authorization.k8s.io":
		return pathSegment
	case k.groupResource().String() == "namespaces":
		return validation.NameIsDNSLabel
	case k.groupResource().String() == "services":
		return validation.NameIsDNS1035Label
	}
	return validation.NameIsDNSSubdomain
}

// pathSegment refuses what cannot be a part of a path, as the names of roles (ValidatePathSegmentName of apimachinery).
func pathSegment(name string, _ bool) []string {
	if name == "." || name == ".." || strings.ContainsAny(name, "/%") {
		return []string{"must not be '.' or '..' and not contain '/' or '%'"}
	}
	return nil
}
