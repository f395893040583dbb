// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e_test

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/storage"
)

const (
	pluginContainer = "csi-do-plugin"
	nodeSocket      = "/var/lib/kubelet/plugins/dobs.csi.digitalocean.com/csi.sock"
)

// replaced puts workloads of csi-digitalocean's shape in the place of this project's, and back, while a counter writes to a volume: neither
// detaches it, and both serve new claims. The programs are this project's in both, as its image is what users swap first, and as
// csi-digitalocean is not a module of the proxy.
func (l *lab) replaced() {
	l.createSet("stays", ext4Class)
	pod := l.awaitPod("stays-0")
	l.awaitCount("stays-0", "")
	volume := l.volumeOf("data-stays-0").Spec.CSI.VolumeHandle
	since := l.mark()
	controller, err := l.api.AppsV1().StatefulSets(system).Get(l.Context(), "csi-do-controller", metav1.GetOptions{})
	l.must(err)
	node, err := l.api.AppsV1().DaemonSets(system).Get(l.Context(), "csi-do-node", metav1.GetOptions{})
	l.must(err)

	l.putWorkloads(upstreamController(controller.DeepCopy()), upstreamNode(node.DeepCopy()))
	l.life(ext4Class, "ext4")
	l.awaitCount("stays-0", "")
	l.putWorkloads(controller, node)
	l.life(ext4Class, "ext4")
	l.awaitCount("stays-0", "")

	for _, e := range l.volumeRequests(since) {
		if strings.Contains(e.URL, volume) && e.Method == "POST" {
			l.Errorf("the volume in use was acted on: %s %s", e.URL, e.Body)
		}
	}
	now := l.awaitPod("stays-0")
	if now.UID != pod.UID || now.Status.ContainerStatuses[0].RestartCount > 0 {
		l.Error("the pod did not stay")
	}
	l.checkNumbers(filepath.Join(l.mountOf(now, "data-stays-0"), fileName), "stays-0")
	l.deleteSet("stays")
}

// putWorkloads replaces the workloads of the driver and waits until the new ones are ready.
func (l *lab) putWorkloads(controller *appsv1.StatefulSet, node *appsv1.DaemonSet) {
	l.Helper()
	began := time.Now()
	l.await("the workloads to be replaced", func() error {
		sets, daemons := l.api.AppsV1().StatefulSets(system), l.api.AppsV1().DaemonSets(system)
		current, err := sets.Get(l.Context(), controller.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec = controller.Spec
		if _, err := sets.Update(l.Context(), current, metav1.UpdateOptions{}); err != nil {
			return err
		}
		daemon, err := daemons.Get(l.Context(), node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		daemon.Spec = node.Spec
		_, err = daemons.Update(l.Context(), daemon, metav1.UpdateOptions{})
		return err
	})
	l.awaitDriver()
	l.Logf("the driver was replaced in %v", time.Since(began).Round(time.Second))
}

// upstreamController makes of the controller's StatefulSet one as csi-digitalocean has it: one replica, the token in a variable, no ports.
func upstreamController(s *appsv1.StatefulSet) *appsv1.StatefulSet {
	one := int32(1)
	s.Spec.Replicas = &one
	for i := range s.Spec.Template.Spec.Containers {
		c := &s.Spec.Template.Spec.Containers[i]
		if c.Name != pluginContainer {
			continue
		}
		url := flagOf(c.Args, "--url=")
		c.Args = []string{"--endpoint=$(CSI_ENDPOINT)", "--token=$(DIGITALOCEAN_ACCESS_TOKEN)", "--url=$(DIGITALOCEAN_API_URL)"}
		c.Env = append(c.Env,
			corev1.EnvVar{Name: "CSI_ENDPOINT", Value: "unix:///var/lib/csi/sockets/pluginproxy/csi.sock"},
			corev1.EnvVar{Name: "DIGITALOCEAN_API_URL", Value: url},
			corev1.EnvVar{Name: "DIGITALOCEAN_ACCESS_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "digitalocean"}, Key: "access-token",
			}}},
		)
		c.StartupProbe, c.LivenessProbe, c.ReadinessProbe, c.Ports = nil, nil, nil, nil
	}
	return s
}

// upstreamNode makes of the node plugin's DaemonSet one as csi-digitalocean has it, with a registrar alongside the driver.
func upstreamNode(d *appsv1.DaemonSet) *appsv1.DaemonSet {
	pod := &d.Spec.Template.Spec
	for i := range pod.Containers {
		c := &pod.Containers[i]
		if c.Name != pluginContainer {
			continue
		}
		sysfs := flagOf(c.Args, "--device-sysfs=") // of the lab
		c.Args = []string{"--endpoint=$(CSI_ENDPOINT)", "--url=$(DIGITALOCEAN_API_URL)", "--device-sysfs=" + sysfs}
		c.Env = append(c.Env,
			corev1.EnvVar{Name: "CSI_ENDPOINT", Value: "unix:///csi/csi.sock"},
			corev1.EnvVar{Name: "DIGITALOCEAN_API_URL", Value: "https://api.digitalocean.com/"},
		)
		c.LivenessProbe = nil
	}
	pod.Containers = slices.Insert(pod.Containers, 0, corev1.Container{
		Name: "csi-node-driver-registrar", Image: storage.Image("registrar"), ImagePullPolicy: corev1.PullNever,
		Args: []string{"--v=5", "--csi-address=$(ADDRESS)", "--kubelet-registration-path=$(DRIVER_REG_SOCK_PATH)"},
		Env:  []corev1.EnvVar{{Name: "ADDRESS", Value: "/csi/csi.sock"}, {Name: "DRIVER_REG_SOCK_PATH", Value: nodeSocket}},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "plugin-dir", MountPath: "/csi/"}, {Name: "registration-dir", MountPath: "/registration/"},
		},
	})
	return d
}

// flagOf is the value of a flag among arguments.
func flagOf(args []string, flag string) string {
	for _, a := range args {
		if value, found := strings.CutPrefix(a, flag); found {
			return value
		}
	}
	return ""
}
