// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/volume"
)

// Folders of a pod.
const (
	volumesFolder    = "volumes"
	containersFolder = "containers"
)

// source gives what a pod's volumes and variables are made of.
type source struct {
	ctx context.Context //nolint:containedctx // it lives for one step of the worker
	*worker
	pod *corev1.Pod
}

// Secret implements volume.Source.
func (s source) Secret(name string) (*corev1.Secret, error) {
	return s.secret(s.ctx, s.namespace, name)
}

// ConfigMap implements volume.Source.
func (s source) ConfigMap(name string) (*corev1.ConfigMap, error) {
	return s.configMap(s.ctx, s.namespace, name)
}

// Missing implements volume.Source.
func (s source) Missing(err error) bool { return apierrors.IsNotFound(err) }

// Field implements volume.Source.
func (s source) Field(path string) (string, error) { return volume.FieldOf(s.pod, path) }

// Resource implements volume.Source.
func (s source) Resource(selector corev1.ResourceFieldSelector) (string, error) {
	for _, t := range s.tasks() {
		if t.spec.Name != selector.ContainerName {
			continue
		}
		node, err := s.API.CoreV1().Nodes().Get(s.ctx, s.pod.Spec.NodeName, metav1.GetOptions{})
		if err != nil {
			return "", fmt.Errorf("reading what the node has: %w", err)
		}
		return volume.ResourceOf(t.spec, selector, node.Status.Allocatable)
	}
	return "", fmt.Errorf("the pod has no container %q", selector.ContainerName)
}

// token is one of a service account.
type token struct {
	text           string
	renew, expires time.Time
}

// Token implements volume.Source. A token is renewed after four fifths of its life, as kubelet does (pkg/kubelet/token), and kept while a new one cannot
// be had.
func (s source) Token(ctx context.Context, p corev1.ServiceAccountTokenProjection) (string, time.Time, error) {
	key := p.Audience + "\n" + p.Path
	now := time.Now()
	known, ok := s.tokens[key]
	if ok && now.Before(known.renew) {
		return known.text, known.renew, nil
	}
	fresh, err := s.askToken(ctx, p, now)
	if err != nil {
		if ok && now.Before(known.expires) {
			return known.text, now.Add(retryPause), nil
		}
		return "", time.Time{}, err
	}
	s.tokens[key] = fresh
	return fresh.text, fresh.renew, nil
}

// askToken asks for a token that is good while the pod is there.
func (s source) askToken(ctx context.Context, p corev1.ServiceAccountTokenProjection, now time.Time) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: s.name, UID: s.uid},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	account := s.pod.Spec.ServiceAccountName
	answer, err := s.API.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return token{}, fmt.Errorf("asking for a token of service account %s: %w", account, err)
	}
	expires := answer.Status.ExpirationTimestamp.Time
	return token{text: answer.Status.Token, renew: now.Add(expires.Sub(now) * 4 / 5), expires: expires}, nil
}

// volumeDir is where a volume's files are.
func (w *worker) volumeDir(name string) string { return filepath.Join(w.dir, volumesFolder, name) }

// groupOf is the group of a pod's volumes, -1 if they have none of their own, or if this user namespace knows no such group.
func groupOf(pod *corev1.Pod) (int, error) {
	if pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.FSGroup == nil {
		return -1, nil
	}
	group := int(*pod.Spec.SecurityContext.FSGroup)
	known, err := container.KnowsID(group)
	if err != nil || !known {
		return -1, err
	}
	return group, nil
}

// syncVolumes makes the volumes, or makes them follow their objects, and returns when they must be looked at again anyhow.
func (w *worker) syncVolumes(ctx context.Context, pod *corev1.Pod) (renew time.Time, err error) {
	group, err := groupOf(pod)
	if err != nil {
		return time.Time{}, err
	}
	from := source{ctx: ctx, worker: w, pod: pod}
	for _, v := range pod.Spec.Volumes {
		files, again, ok, err := volume.Content(ctx, v, from)
		switch {
		case err != nil:
			return renew, err
		case !ok:
			err = volume.Empty(w.volumeDir(v.Name), group)
		default:
			renew = earlier(renew, again)
			_, err = volume.Write(w.volumeDir(v.Name), files, group)
		}
		if err != nil {
			return renew, fmt.Errorf("volume %q: %w", v.Name, err)
		}
	}
	w.mounted = true
	return renew, nil
}

// mounts returns what a container sees of the pod's volumes, outer folders first.
func (w *worker) mounts(c corev1.Container, expand func(string) string) ([]container.Mount, error) {
	var out []container.Mount
	for _, m := range c.VolumeMounts {
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr)
		}
		path, err := volume.Resolve(w.volumeDir(m.Name), sub)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", m.Name, err)
		}
		out = append(out, container.Mount{Source: path, Target: filepath.Clean("/" + m.MountPath), ReadOnly: m.ReadOnly})
	}
	sortByDepth(out)
	return out, nil
}

// hosts is the /etc/hosts of a pod.
func hosts(pod *corev1.Pod, hostname string) string {
	var out strings.Builder
	out.WriteString("127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n")
	if pod.Status.PodIP != "" {
		name := hostname
		if pod.Spec.Subdomain != "" {
			name = fmt.Sprintf("%s.%s.%s.svc.cluster.local\t%s", hostname, pod.Spec.Subdomain, pod.Namespace, hostname)
		}
		fmt.Fprintf(&out, "%s\t%s\n", pod.Status.PodIP, name)
	}
	for _, alias := range pod.Spec.HostAliases {
		fmt.Fprintf(&out, "%s\t%s\n", alias.IP, strings.Join(alias.Hostnames, "\t"))
	}
	return out.String()
}

// resolvConf is the /etc/resolv.conf of a pod.
func (w *worker) resolvConf(pod *corev1.Pod) string {
	text := w.ResolvConf(pod.Namespace)
	if pod.Spec.DNSPolicy == corev1.DNSNone {
		text = ""
	}
	config := pod.Spec.DNSConfig
	if config == nil {
		return text
	}
	for _, server := range config.Nameservers {
		text += "nameserver " + server + "\n"
	}
	if searches := strings.Join(config.Searches, " "); searches != "" {
		// Only one such line counts (resolv.conf(5)).
		if before, after, ok := strings.Cut(text, "search "); ok {
			own, rest, _ := strings.Cut(after, "\n")
			text = before + "search " + own + " " + searches + "\n" + rest
		} else {
			text += "search " + searches + "\n"
		}
	}
	for _, option := range config.Options {
		text += "options " + option.Name
		if option.Value != nil {
			text += ":" + *option.Value
		}
		text += "\n"
	}
	return text
}

// fileExists reports whether there is such a file, for one that the machine may lack.
func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
