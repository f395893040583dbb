// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package environ makes a container's environment and arguments from its spec, as kubelet does. It is pure.
package environ

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Source gives what variables are taken from; package volume's has the same methods.
type Source interface {
	Secret(name string) (*corev1.Secret, error)
	ConfigMap(name string) (*corev1.ConfigMap, error)
	Field(path string) (string, error)
	Resource(selector corev1.ResourceFieldSelector) (string, error)
	Missing(err error) bool
}

// Make returns the variables of a container. first are those that every container of the pod has; the container's own replace them: envFrom in order,
// then env in order, each of which sees those before it as $(NAME). A key of a Secret or ConfigMap that can be no name of a variable is left out.
func Make(container corev1.Container, first map[string]string, source Source) (map[string]string, error) {
	out := maps.Clone(first)
	if out == nil {
		out = map[string]string{}
	}
	for _, from := range container.EnvFrom {
		data, err := allKeys(from, source)
		if err != nil {
			return nil, err
		}
		for key, value := range data {
			name := from.Prefix + key
			if len(validation.IsRelaxedEnvVarName(name)) == 0 {
				out[name] = value
			}
		}
	}
	for _, v := range container.Env {
		value, set, err := valueOf(container, v, out, source)
		if err != nil {
			return nil, fmt.Errorf("variable %s: %w", v.Name, err)
		}
		if set {
			out[v.Name] = value
		}
	}
	return out, nil
}

// List is the environment as a process has it, sorted.
func List(variables map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		out = append(out, name+"="+variables[name])
	}
	return out
}

// allKeys are the keys of an object that a container takes all of.
func allKeys(from corev1.EnvFromSource, source Source) (map[string]string, error) {
	out := map[string]string{}
	switch {
	case from.ConfigMapRef != nil:
		config, err := source.ConfigMap(from.ConfigMapRef.Name)
		if err != nil {
			return out, forgive(err, from.ConfigMapRef.Optional, source)
		}
		maps.Copy(out, config.Data)
	case from.SecretRef != nil:
		secret, err := source.Secret(from.SecretRef.Name)
		if err != nil {
			return out, forgive(err, from.SecretRef.Optional, source)
		}
		for key, value := range secret.Data {
			out[key] = string(value)
		}
	}
	return out, nil
}

// forgive is nil for an optional object that is not there.
func forgive(err error, optional *bool, source Source) error {
	if optional != nil && *optional && source.Missing(err) {
		return nil
	}
	return err
}

// valueOf returns the value of one variable; set is false for an optional one that is not there.
func valueOf(container corev1.Container, v corev1.EnvVar, known map[string]string, source Source) (value string, set bool, err error) {
	if v.ValueFrom == nil {
		return Expand(v.Value, known), true, nil
	}
	from := v.ValueFrom
	switch {
	case from.FieldRef != nil:
		value, err = source.Field(from.FieldRef.FieldPath)
		return value, err == nil, err
	case from.ResourceFieldRef != nil:
		selector := *from.ResourceFieldRef
		if selector.ContainerName == "" {
			selector.ContainerName = container.Name
		}
		value, err = source.Resource(selector)
		return value, err == nil, err
	case from.SecretKeyRef != nil:
		secret, err := source.Secret(from.SecretKeyRef.Name)
		if err != nil {
			return "", false, forgive(err, from.SecretKeyRef.Optional, source)
		}
		data, ok := secret.Data[from.SecretKeyRef.Key]
		return keyOf("Secret", from.SecretKeyRef.Name, from.SecretKeyRef.Key, string(data), ok, from.SecretKeyRef.Optional)
	case from.ConfigMapKeyRef != nil:
		config, err := source.ConfigMap(from.ConfigMapKeyRef.Name)
		if err != nil {
			return "", false, forgive(err, from.ConfigMapKeyRef.Optional, source)
		}
		data, ok := config.Data[from.ConfigMapKeyRef.Key]
		return keyOf("ConfigMap", from.ConfigMapKeyRef.Name, from.ConfigMapKeyRef.Key, data, ok, from.ConfigMapKeyRef.Optional)
	}
	return "", false, fmt.Errorf("its source is of a kind that the lab does not have")
}

func keyOf(kind, name, key, value string, ok bool, optional *bool) (string, bool, error) {
	if !ok && (optional == nil || !*optional) {
		return "", false, fmt.Errorf("%s %s has no key %q", kind, name, key)
	}
	return value, ok, nil
}

// Expand replaces $(NAME) by the variable's value, where there is one, and $$ by $, so that $$(NAME) stays as $(NAME)
// (k8s.io/api/core/v1, EnvVar.Value).
func Expand(text string, variables map[string]string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '$' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		switch text[i+1] {
		case '$':
			out.WriteByte('$')
			i++
		case '(':
			end := strings.IndexByte(text[i:], ')')
			if end < 0 {
				out.WriteByte('$') // never closed: it is only text
				continue
			}
			reference := text[i : i+end+1]
			if value, ok := variables[reference[2:end]]; ok {
				out.WriteString(value)
			} else {
				out.WriteString(reference)
			}
			i += end
		default:
			out.WriteByte('$')
		}
	}
	return out.String()
}
