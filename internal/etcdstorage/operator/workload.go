// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// Ports of a proxy, by name.
const (
	portEtcd, portMetrics, portHealth = "etcd", "metrics", "health"

	numberEtcd, numberMetrics, numberHealth = 2379, 8080, 8081
)

// Folders in a proxy's container.
const (
	folderServing  = "/etc/etcd-storage/serving"
	folderClientCA = "/etc/etcd-storage/client-ca"
	folderCore     = "/etc/etcd-storage/core-client"
	folderCoreCA   = "/etc/etcd-storage/core-ca"
	folderUser     = "/etc/etcd-storage/core-user"
)

// nobody is the user and group of the images.
const nobody = int64(65532)

// labels are those of the operator's objects.
func (w World) labels() map[string]string {
	return map[string]string{
		"app.kubernetes.io/name": "etcd-storage-proxy", "app.kubernetes.io/instance": cutLabel(w.Storage.Name), "app.kubernetes.io/part-of": "mooring",
		"app.kubernetes.io/managed-by": "etcd-storage-operator", v1alpha1.StorageLabel: w.Storage.Name,
	}
}

// cutLabel keeps a name within what a label may hold. Names of EtcdStorages fit; the API server sees to that.
func cutLabel(name string) string { return name[:min(len(name), 63)] }

// selector selects the proxies' pods. The label apiserver is that of etcdproxy-controller. A Deployment's selector cannot be changed: MUST
// NOT change.
func (w World) selector() map[string]string {
	return map[string]string{v1alpha1.PodLabel: w.Storage.Name, "app.kubernetes.io/name": "etcd-storage-proxy"}
}

func (w World) podLabels() map[string]string {
	out := w.labels()
	out[v1alpha1.PodLabel] = w.Storage.Name
	return out
}

func (w World) meta(name string) metav1.ObjectMeta {
	yes := true
	return metav1.ObjectMeta{
		Name: name, Namespace: w.Settings.Namespace, Labels: w.labels(),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: "EtcdStorage", Name: w.Storage.Name, UID: w.Storage.UID, Controller: &yes,
		}},
	}
}

func (w World) secret(name, kind string, data map[string][]byte) any {
	return &corev1.Secret{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: KindSecret}, ObjectMeta: w.meta(name), Type: corev1.SecretType(kind), Data: data,
	}
}

func (w World) clientCA(bundle []byte) any {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: KindConfigMap}, ObjectMeta: w.meta(ClientCAName(w.Storage.Name)),
		Data: map[string]string{v1alpha1.ClientCAKey: string(bundle), v1alpha1.RevokedClientsKey: w.revokedList()},
	}
}

// workload are the objects that serve the tenant, the Deployment last, so that the first pod finds all that it needs.
func (w World) workload(owner Owner) []any {
	out := []any{w.service(), w.budget()}
	if enabled := w.Storage.Spec.NetworkPolicy.Enabled; enabled == nil || *enabled {
		out = append(out, w.networkPolicy())
	}
	return append(out, w.deployment(owner))
}

func (w World) service() any {
	return &corev1.Service{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: KindService}, ObjectMeta: w.meta(ProxyName(w.Storage.Name)),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: w.selector(),
			Ports: []corev1.ServicePort{{Name: portEtcd, Protocol: corev1.ProtocolTCP, Port: numberEtcd, TargetPort: intstr.FromString(portEtcd)}},
		},
	}
}

func (w World) budget() any {
	one, always := intstr.FromInt32(1), policyv1.AlwaysAllow
	return &policyv1.PodDisruptionBudget{
		TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: KindBudget}, ObjectMeta: w.meta(ProxyName(w.Storage.Name)),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, UnhealthyPodEvictionPolicy: &always, Selector: &metav1.LabelSelector{MatchLabels: w.selector()},
		},
	}
}

// networkPolicy lets clients and metrics in, and names and the core's ports out. The core's addresses are not known to it, only its ports.
func (w World) networkPolicy() any {
	spec := w.Storage.Spec.NetworkPolicy
	clients := slices.Clone(spec.ClientNamespaces)
	for _, d := range slices.Concat(w.Storage.Spec.CACertConfigMaps, w.Storage.Spec.ClientCertSecrets) {
		clients = append(clients, d.Namespace)
	}
	from := namespacePeers(clients)
	for _, cidr := range spec.ClientCIDRs {
		from = append(from, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr}})
	}
	tcp, udp := corev1.ProtocolTCP, corev1.ProtocolUDP
	etcd, metrics, dns := intstr.FromString(portEtcd), intstr.FromString(portMetrics), intstr.FromInt32(53)
	ingress := []networkingv1.NetworkPolicyIngressRule{{From: from, Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &etcd}}}}
	if len(spec.MetricsNamespaces) > 0 {
		ingress = append(ingress, networkingv1.NetworkPolicyIngressRule{
			From: namespacePeers(spec.MetricsNamespaces), Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &metrics}},
		})
	}
	out := []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &dns}, {Protocol: &udp, Port: &dns}}
	for _, port := range CorePorts(w.Settings.CoreURLs) {
		number := intstr.FromInt32(port)
		out = append(out, networkingv1.NetworkPolicyPort{Protocol: &tcp, Port: &number})
	}
	return &networkingv1.NetworkPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: KindNetworkPolicy}, ObjectMeta: w.meta(ProxyName(w.Storage.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: w.selector()},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			Ingress:     ingress, Egress: []networkingv1.NetworkPolicyEgressRule{{Ports: out}},
		},
	}
}

// namespacePeers are namespaces by name, each once.
func namespacePeers(names []string) []networkingv1.NetworkPolicyPeer {
	names = slices.Clone(names)
	slices.Sort(names)
	var out []networkingv1.NetworkPolicyPeer
	for _, name := range slices.Compact(names) {
		out = append(out, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: name}}})
	}
	return out
}

func (w World) deployment(owner Owner) any {
	spec, labels := w.Storage.Spec, w.podLabels()
	none, one, history, grace := intstr.FromInt32(0), intstr.FromInt32(1), int32(5), int64(35)
	no, yes, id := false, true, nobody
	var spread []corev1.TopologySpreadConstraint
	for _, key := range spec.TopologySpread.Keys {
		spread = append(spread, corev1.TopologySpreadConstraint{
			MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: spec.TopologySpread.WhenUnsatisfiable, LabelSelector: &metav1.LabelSelector{MatchLabels: w.selector()},
			// Each template by itself: otherwise those that are about to go would decide where the new ones may be.
			MatchLabelKeys: []string{appsv1.DefaultDeploymentUniqueLabelKey},
		})
	}
	var pull []corev1.LocalObjectReference
	for _, name := range w.Settings.PullSecrets {
		pull = append(pull, corev1.LocalObjectReference{Name: name})
	}
	volumes, mounts := w.volumes()
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: KindDeployment}, ObjectMeta: w.meta(ProxyName(w.Storage.Name)),
		Spec: appsv1.DeploymentSpec{
			Replicas: &spec.Replicas, RevisionHistoryLimit: &history, Selector: &metav1.LabelSelector{MatchLabels: w.selector()},
			// A new proxy is ready before an old one goes.
			Strategy: appsv1.DeploymentStrategy{
				Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					// The proxy never talks to the Kubernetes API.
					AutomountServiceAccountToken: &no, EnableServiceLinks: &no,
					// Longer than the proxy's drain delay and timeout together.
					TerminationGracePeriodSeconds: &grace,
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot: &yes, RunAsUser: &id, RunAsGroup: &id, FSGroup: &id,
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					ImagePullSecrets: pull, TopologySpreadConstraints: spread, Volumes: volumes, Containers: []corev1.Container{w.container(owner, mounts)},
				},
			},
		},
	}
}

// container has the name that etcdproxy-controller gave it.
func (w World) container(owner Owner, mounts []corev1.VolumeMount) corev1.Container {
	no, yes := false, true
	get := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(portHealth)}}
	}
	return corev1.Container{
		Name: "etcdproxy", Image: w.Settings.ProxyImage, ImagePullPolicy: corev1.PullIfNotPresent, Args: w.Args(owner), VolumeMounts: mounts,
		Ports: []corev1.ContainerPort{
			{Name: portEtcd, ContainerPort: numberEtcd}, {Name: portMetrics, ContainerPort: numberMetrics}, {Name: portHealth, ContainerPort: numberHealth},
		},
		// A proxy whose core is away must not be restarted: that would only end its streams.
		LivenessProbe:  &corev1.Probe{ProbeHandler: get("/healthz"), PeriodSeconds: 20},
		ReadinessProbe: &corev1.Probe{ProbeHandler: get("/readyz"), PeriodSeconds: 5, TimeoutSeconds: 5},
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("50m"), corev1.ResourceMemory: quantity(w.Storage.Spec.Memory.Request, "64Mi")},
			// No limit on CPU: a throttled proxy makes every request of the API server slow.
			Limits: corev1.ResourceList{corev1.ResourceMemory: w.memoryLimit()},
		},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes, Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// quantity is what is asked for, or a default.
func quantity(asked *resource.Quantity, otherwise string) resource.Quantity {
	if asked == nil {
		return resource.MustParse(otherwise)
	}
	return *asked
}

// Args are the flags of the proxy.
func (w World) Args(owner Owner) []string {
	out := []string{
		"--tenant=" + w.Storage.Name, "--prefix=" + owner.Prefix, "--lease-space=" + owner.LeaseSpace,
		"--core-endpoints=" + strings.Join(w.Settings.CoreURLs, ","), "--core-ca-file=" + folderCoreCA + "/" + w.Files.CA,
		"--core-cert-file=" + folderCore + "/" + w.Files.Cert, "--core-key-file=" + folderCore + "/" + w.Files.Key,
		"--listen-address=:2379", "--advertise-client-url=" + w.Endpoint(),
		"--tls-cert-file=" + folderServing + "/" + keyCert, "--tls-private-key-file=" + folderServing + "/" + keyKey,
		"--client-ca-file=" + folderClientCA + "/" + v1alpha1.ClientCAKey, "--revoked-clients-file=" + folderClientCA + "/" + v1alpha1.RevokedClientsKey, "--health-address=:8081", "--metrics-address=:8080",
		// Time for the Service to notice that the pod is going.
		"--drain-delay=5s", "--drain-timeout=20s",
	}
	if w.usersWanted() {
		out = append(out, "--core-username="+UserName(w.Storage.Name, w.current()), "--core-password-file="+folderUser+"/"+PasswordKey(w.current()))
	}
	if w.Storage.Spec.Compaction.Mode == v1alpha1.CompactionPerReplica {
		// They have no records by which they know each other.
		out = append(out, "--system-prefix=", fmt.Sprintf("--replicas=%d", w.Storage.Spec.Replicas))
	}
	return append(out, w.bounds()...)
}

// bounds are the flags that bound the tenant. A bound that the spec leaves out is not a flag, so that proxies of tenants without one are not
// rolled when the operator learns of another.
func (w World) bounds() []string {
	q := w.Storage.Spec.Quota
	var out []string
	out = bytesBound(out, "--quota-bytes", q.Bytes)
	out = bound(out, "--quota-keys", q.Keys)
	out = bytesBound(out, "--quota-history-bytes", q.HistoryBytes)
	out = bound(out, "--quota-leases", q.Leases)
	out = bound(out, "--quota-watches", q.Watches)
	out = bound(out, "--max-units-per-second", q.UnitsPerSecond)
	out = bound(out, "--max-lists-in-flight", q.ListsInFlight)
	out = bound(out, "--max-keep-alives-per-second", q.KeepAlivesPerSecond)
	out = bound(out, "--max-watch-messages-per-second", q.WatchMessagesPerSecond)
	out = bound(out, "--max-streams", q.Streams)
	out = bound(out, "--max-streams-per-connection", q.StreamsPerConnection)
	out = bound(out, "--max-connections-per-identity", q.ConnectionsPerIdentity)
	return append(out, fmt.Sprintf("--max-in-flight=%d", Seats(w.Storage.Spec.Priority)), fmt.Sprintf("--max-answer-bytes=%d", w.answerBytes()))
}

// memoryLimit is the most memory that a proxy may take.
func (w World) memoryLimit() resource.Quantity { return quantity(w.Storage.Spec.Memory.Limit, "256Mi") }

// answerPart is the part of a proxy's memory that answers may take.
const answerPart = 2

// answerBytes follow from the memory that the proxy may take, so that answers never end it.
func (w World) answerBytes() int64 {
	limit := w.memoryLimit()
	return limit.Value() / answerPart
}

func bytesBound(flags []string, flag string, most *resource.Quantity) []string {
	if most == nil {
		return flags
	}
	return append(flags, fmt.Sprintf("%s=%d", flag, most.Value()))
}

func bound[N int32 | int64](flags []string, flag string, most *N) []string {
	if most == nil {
		return flags
	}
	return append(flags, fmt.Sprintf("%s=%d", flag, *most))
}

// seatsAtDefault is how many requests all proxies of a tenant with the default priority, 50, may have with the core at one time. A tenant
// that asks for less never notices; one that asks for more waits for its own requests, and the core is never busy with more than this for it.
const seatsAtDefault = 16

// Seats are the requests that all proxies of a tenant together may have with the core at one time: in proportion to its priority, and at least one.
func Seats(priority int32) int32 { return max((priority*seatsAtDefault+49)/50, 1) }

// volumes have no subPath: files mounted so are never replaced, and a rotation would go unnoticed. Of the core's credentials a proxy sees the pair
// alone, whatever else the Secret has.
func (w World) volumes() (volumes []corev1.Volume, mounts []corev1.VolumeMount) {
	mode := int32(0o440) // readable through fsGroup by a user who does not own the files
	secret := func(name, folder, secretName string, keys ...string) {
		source := &corev1.SecretVolumeSource{SecretName: secretName, DefaultMode: &mode}
		for _, key := range keys {
			source.Items = append(source.Items, corev1.KeyToPath{Key: key, Path: key})
		}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{Secret: source}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: folder, ReadOnly: true})
	}
	config := func(name, folder, configMap string) {
		source := &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}
		volumes = append(volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: source}})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: folder, ReadOnly: true})
	}
	secret("serving", folderServing, ServingName(w.Storage.Name))
	config("client-ca", folderClientCA, ClientCAName(w.Storage.Name))
	secret("core-client", folderCore, w.Settings.CertsSecret, w.Files.Cert, w.Files.Key)
	config("core-ca", folderCoreCA, w.Settings.CAConfigMap)
	if w.usersWanted() {
		secret("core-user", folderUser, UserSecretName(w.Storage.Name))
	}
	return volumes, mounts
}
