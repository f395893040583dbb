// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package environ_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/environ"
)

var errMissing = errors.New("it is not there")

// world has one Secret, secret, and one ConfigMap, config.
type world struct{}

func (world) Secret(name string) (*corev1.Secret, error) {
	if name != "secret" {
		return nil, errMissing
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"key": []byte("hidden"), "not=a=name": []byte("x")}}, nil
}

func (world) ConfigMap(name string) (*corev1.ConfigMap, error) {
	if name != "config" {
		return nil, errMissing
	}
	return &corev1.ConfigMap{Data: map[string]string{"COLOR": "blue", "SIZE": "4"}}, nil
}

func (world) Field(path string) (string, error) { return "field " + path, nil }

func (world) Resource(s corev1.ResourceFieldSelector) (string, error) {
	return s.ContainerName + " " + s.Resource, nil
}

func (world) Missing(err error) bool { return errors.Is(err, errMissing) }

func TestMake(t *testing.T) {
	t.Parallel()
	yes := true
	from := func(s corev1.EnvVarSource) *corev1.EnvVarSource { return &s }
	secretKey := func(name, key string, optional *bool) *corev1.EnvVarSource {
		return from(corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key, Optional: optional}})
	}
	configKey := func(name, key string) *corev1.EnvVarSource {
		return from(corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: name}, Key: key}})
	}
	for name, test := range map[string]struct {
		container corev1.Container
		want      map[string]string
		wantErr   string
	}{
		"a later one sees an earlier one": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "$(A)$(A)$(C)"}, {Name: "C", Value: "3"}}},
			want:      map[string]string{"FIRST": "0", "A": "1", "B": "11$(C)", "C": "3"},
		},
		"the container's own wins": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "FIRST", Value: "$(FIRST)1"}}},
			want:      map[string]string{"FIRST": "01"},
		},
		"all keys, with a prefix; what is no name is left out": {
			container: corev1.Container{EnvFrom: []corev1.EnvFromSource{
				{Prefix: "C_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
				{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
			}},
			want: map[string]string{"FIRST": "0", "C_COLOR": "blue", "C_SIZE": "4", "key": "hidden"},
		},
		"one key, a field, a resource": {
			container: corev1.Container{Name: "main", Env: []corev1.EnvVar{
				{Name: "KEY", ValueFrom: secretKey("secret", "key", nil)},
				{Name: "COLOR", ValueFrom: configKey("config", "COLOR")},
				{Name: "FIELD", ValueFrom: from(corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}})},
				{Name: "RESOURCE", ValueFrom: from(corev1.EnvVarSource{ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}})},
			}},
			want: map[string]string{"FIRST": "0", "KEY": "hidden", "COLOR": "blue", "FIELD": "field metadata.name", "RESOURCE": "main limits.cpu"},
		},
		"what is optional may lack": {
			container: corev1.Container{
				EnvFrom: []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "lost"}, Optional: &yes}}},
				Env:     []corev1.EnvVar{{Name: "A", ValueFrom: secretKey("lost", "key", &yes)}, {Name: "B", ValueFrom: secretKey("secret", "other", &yes)}},
			},
			want: map[string]string{"FIRST": "0"},
		},
		"a Secret that lacks": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "A", ValueFrom: secretKey("lost", "key", nil)}}}, wantErr: "variable A: it is not there",
		},
		"a key that lacks": {
			container: corev1.Container{Env: []corev1.EnvVar{{Name: "A", ValueFrom: configKey("config", "WEIGHT")}}},
			wantErr:   `variable A: ConfigMap config has no key "WEIGHT"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := environ.Make(test.container, map[string]string{"FIRST": "0"}, world{})
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Errorf("got %v, want %s", err, test.wantErr)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
		})
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	if got := environ.List(map[string]string{"B": "2", "A": "1=1"}); !cmp.Equal(got, []string{"A=1=1", "B=2"}) {
		t.Errorf("got %q", got)
	}
}

func TestExpand(t *testing.T) {
	t.Parallel()
	variables := map[string]string{"A": "1", "B": "$(A)"}
	for text, want := range map[string]string{
		"": "", "$": "$", "$(A)": "1", "x$(A)y": "x1y", "$(NONE)": "$(NONE)", "$$(A)": "$(A)", "$$$(A)": "$1", "$(A": "$(A", "$A": "$A", "$(B)": "$(A)", "$()": "$()",
		"a$": "a$", "$$": "$",
	} {
		if got := environ.Expand(text, variables); got != want {
			t.Errorf("%q becomes %q, not %q", text, got, want)
		}
	}
}

// FuzzExpand sees that text without a dollar sign stays, and that nothing is looked up in what was looked up.
func FuzzExpand(f *testing.F) {
	for _, text := range []string{"$(A)", "$$(A)", "$(", "a$(B)c", "$)("} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got := environ.Expand(text, map[string]string{"A": "$(B)", "B": "2"})
		if !strings.Contains(text, "$") && got != text {
			t.Errorf("%q becomes %q", text, got)
		}
		if want := strings.Count(text, "$(A)"); !strings.Contains(text, "$$") && strings.Count(got, "$(B)") != want {
			t.Errorf("%q becomes %q", text, got)
		}
	})
}
