// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ErrUnsupported says that the lab has no volumes of this kind.
var ErrUnsupported = errors.New("the lab has volumes of the kinds configMap, secret, emptyDir, projected and downwardAPI only")

// File is one file of a volume.
type File struct {
	Data []byte
	// Mode is its permissions, such as 0o644.
	Mode int32
}

// Files are the files of a volume by their path in it.
type Files map[string]File

// Source gives what volumes are made of. Objects that do not exist are errors for which IsMissing of the caller decides.
type Source interface {
	// Secret and ConfigMap return an object of the pod's namespace, and an error that says which one is missing.
	Secret(name string) (*corev1.Secret, error)
	ConfigMap(name string) (*corev1.ConfigMap, error)
	// Token returns a token of the pod's service account, and when it should be asked for again.
	Token(ctx context.Context, projection corev1.ServiceAccountTokenProjection) (token string, renew time.Time, err error)
	// Field is the value of a field of the pod, and Resource that of a resource of one of its containers, as downward API volumes have them.
	Field(path string) (string, error)
	Resource(selector corev1.ResourceFieldSelector) (string, error)
	// Missing reports whether an error says that an object does not exist.
	Missing(err error) bool
}

// Content returns the files of a volume, and when they must be looked at again although nothing has changed; zero if never. The kind emptyDir has no
// files of its own: ok is false.
func Content(ctx context.Context, v corev1.Volume, source Source) (files Files, renew time.Time, ok bool, err error) {
	b := builder{source: source, files: Files{}}
	switch {
	case v.EmptyDir != nil:
		return nil, time.Time{}, false, nil
	case v.Secret != nil:
		err = b.secret(v.Secret.SecretName, v.Secret.Items, isTrue(v.Secret.Optional), modeOr(v.Secret.DefaultMode))
	case v.ConfigMap != nil:
		err = b.configMap(v.ConfigMap.Name, v.ConfigMap.Items, isTrue(v.ConfigMap.Optional), modeOr(v.ConfigMap.DefaultMode))
	case v.DownwardAPI != nil:
		err = b.downward(v.DownwardAPI.Items, modeOr(v.DownwardAPI.DefaultMode))
	case v.Projected != nil:
		err = b.projected(ctx, *v.Projected)
	default:
		err = ErrUnsupported
	}
	if err != nil {
		return nil, time.Time{}, false, fmt.Errorf("volume %q: %w", v.Name, err)
	}
	return b.files, b.renew, true, nil
}

type builder struct {
	source Source
	files  Files
	renew  time.Time
}

// projected merges its sources; a later one wins where two have the same path.
func (b *builder) projected(ctx context.Context, p corev1.ProjectedVolumeSource) error {
	mode := modeOr(p.DefaultMode)
	for _, s := range p.Sources {
		var err error
		switch {
		case s.Secret != nil:
			err = b.secret(s.Secret.Name, s.Secret.Items, isTrue(s.Secret.Optional), mode)
		case s.ConfigMap != nil:
			err = b.configMap(s.ConfigMap.Name, s.ConfigMap.Items, isTrue(s.ConfigMap.Optional), mode)
		case s.DownwardAPI != nil:
			err = b.downward(s.DownwardAPI.Items, mode)
		case s.ServiceAccountToken != nil:
			err = b.token(ctx, *s.ServiceAccountToken, mode)
		default:
			err = errors.New("the lab projects secrets, configMaps, the downwardAPI and serviceAccountTokens only")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) secret(name string, items []corev1.KeyToPath, optional bool, mode int32) error {
	secret, err := b.source.Secret(name)
	if err != nil {
		if optional && b.source.Missing(err) {
			return nil
		}
		return err
	}
	return b.keys("Secret "+name, secret.Data, items, optional, mode)
}

func (b *builder) configMap(name string, items []corev1.KeyToPath, optional bool, mode int32) error {
	config, err := b.source.ConfigMap(name)
	if err != nil {
		if optional && b.source.Missing(err) {
			return nil
		}
		return err
	}
	data := maps.Clone(config.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, text := range config.Data {
		data[key] = []byte(text)
	}
	return b.keys("ConfigMap "+name, data, items, optional, mode)
}

// keys adds all keys, or those that items name.
func (b *builder) keys(object string, data map[string][]byte, items []corev1.KeyToPath, optional bool, mode int32) error {
	if len(items) == 0 {
		for key, value := range data {
			b.files[key] = File{Data: value, Mode: mode}
		}
		return nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("%s has no key %q", object, item.Key)
		}
		if err := b.put(item.Path, value, item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) downward(items []corev1.DownwardAPIVolumeFile, mode int32) error {
	for _, item := range items {
		var value string
		var err error
		switch {
		case item.FieldRef != nil:
			value, err = b.source.Field(item.FieldRef.FieldPath)
		case item.ResourceFieldRef != nil:
			value, err = b.source.Resource(*item.ResourceFieldRef)
		}
		if err != nil {
			return err
		}
		if err := b.put(item.Path, []byte(value), item.Mode, mode); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) token(ctx context.Context, projection corev1.ServiceAccountTokenProjection, mode int32) error {
	token, renew, err := b.source.Token(ctx, projection)
	if err != nil {
		return err
	}
	if b.renew.IsZero() || renew.Before(b.renew) {
		b.renew = renew
	}
	return b.put(projection.Path, []byte(token), nil, mode)
}

// put adds a file. The API server allows only paths that stay within the volume; this is the second lock.
func (b *builder) put(name string, data []byte, own *int32, mode int32) error {
	clean := path.Clean(name)
	if clean != name || path.IsAbs(name) || strings.HasPrefix(name, "..") {
		return fmt.Errorf("path %q leads out of the volume", name)
	}
	if own != nil {
		mode = *own
	}
	b.files[name] = File{Data: data, Mode: mode}
	return nil
}

// modeOr is the mode of a volume's files; the API server sets it (0644) where a pod does not.
func modeOr(mode *int32) int32 {
	if mode == nil {
		return 0o644
	}
	return *mode
}

func isTrue(b *bool) bool { return b != nil && *b }

// FieldOf returns the value of a field of a pod, by the paths that the API allows in a fieldRef (k8s.io/api/core/v1, ObjectFieldSelector).
func FieldOf(pod *corev1.Pod, path string) (string, error) {
	if name, key, ok := subscript(path); ok {
		switch name {
		case "metadata.annotations":
			return pod.Annotations[key], nil
		case "metadata.labels":
			return pod.Labels[key], nil
		}
	}
	switch path {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return lines(pod.Labels), nil
	case "metadata.annotations":
		return lines(pod.Annotations), nil
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	}
	return addressOf(pod.Status, path)
}

// addressOf is FieldOf for the fields of the status.
func addressOf(status corev1.PodStatus, path string) (string, error) {
	var all []string
	switch path {
	case "status.hostIP":
		return status.HostIP, nil
	case "status.podIP":
		return status.PodIP, nil
	case "status.hostIPs":
		for _, ip := range status.HostIPs {
			all = append(all, ip.IP)
		}
	case "status.podIPs":
		for _, ip := range status.PodIPs {
			all = append(all, ip.IP)
		}
	default:
		return "", fmt.Errorf("field %q of a pod is unknown here", path)
	}
	return strings.Join(all, ","), nil
}

// subscript splits metadata.labels['key'].
func subscript(path string) (name, key string, ok bool) {
	name, rest, found := strings.Cut(path, "['")
	if !found || !strings.HasSuffix(rest, "']") {
		return "", "", false
	}
	return name, strings.TrimSuffix(rest, "']"), true
}

// lines is how labels and annotations look in a file: one NAME="VALUE" a line, sorted.
func lines(m map[string]string) string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(out, "\n")
}

// ResourceOf returns a request or limit of a container, rounded up to whole units of the divisor. A limit that is not set is what the Node has.
func ResourceOf(container corev1.Container, selector corev1.ResourceFieldSelector, node corev1.ResourceList) (string, error) {
	kind, name, _ := strings.Cut(selector.Resource, ".")
	list := container.Resources.Limits
	if kind == "requests" {
		list = container.Resources.Requests
	}
	if kind != "limits" && kind != "requests" {
		return "", fmt.Errorf("resource %q is unknown here; use limits.NAME or requests.NAME", selector.Resource)
	}
	quantity, ok := list[corev1.ResourceName(name)]
	if !ok && kind == "limits" {
		quantity = node[corev1.ResourceName(name)]
	}
	divisor := selector.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	unit, amount := divisor.MilliValue(), quantity.MilliValue()
	return strconv.FormatInt((amount+unit-1)/unit, 10), nil
}
