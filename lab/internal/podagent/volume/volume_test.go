// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/volume"
)

var errMissing = errors.New("it is not there")

type world struct{}

func (world) Secret(name string) (*corev1.Secret, error) {
	if name != "secret" {
		return nil, errMissing
	}
	return &corev1.Secret{Data: map[string][]byte{"tls.crt": []byte("crt"), "tls.key": []byte("key")}}, nil
}

func (world) ConfigMap(name string) (*corev1.ConfigMap, error) {
	if name != "config" {
		return nil, errMissing
	}
	return &corev1.ConfigMap{Data: map[string]string{"ca.crt": "ca"}, BinaryData: map[string][]byte{"bin": {0}}}, nil
}

func (world) Token(_ context.Context, p corev1.ServiceAccountTokenProjection) (string, time.Time, error) {
	return "token for " + p.Audience, time.Unix(1000, 0), nil
}

func (world) Field(path string) (string, error) { return "field " + path, nil }

func (world) Resource(s corev1.ResourceFieldSelector) (string, error) { return s.Resource, nil }

func (world) Missing(err error) bool { return errors.Is(err, errMissing) }

func TestContent(t *testing.T) {
	t.Parallel()
	mode, strict, yes := int32(0o640), int32(0o400), true
	file := func(text string, mode int32) volume.File { return volume.File{Data: []byte(text), Mode: mode} }
	config := func(name string) corev1.LocalObjectReference { return corev1.LocalObjectReference{Name: name} }
	for name, test := range map[string]struct {
		source  corev1.VolumeSource
		want    volume.Files
		renew   time.Time
		wantErr string
	}{
		"a Secret with its mode": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", DefaultMode: &mode}},
			want:   volume.Files{"tls.crt": file("crt", mode), "tls.key": file("key", mode)},
		},
		"some keys, by other names": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", Items: []corev1.KeyToPath{{Key: "tls.key", Path: "a/b", Mode: &strict}}}},
			want:   volume.Files{"a/b": file("key", strict)},
		},
		"a ConfigMap": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: config("config")}},
			want:   volume.Files{"ca.crt": file("ca", 0o644), "bin": file("\x00", 0o644)},
		},
		"one that may lack": {
			source: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: config("lost"), Optional: &yes}}, want: volume.Files{},
		},
		"as the API server mounts a service account": {
			source: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{DefaultMode: &mode, Sources: []corev1.VolumeProjection{
				{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", Audience: "x"}},
				{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: config("config"), Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
				{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
					{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
					{Path: "cpu", ResourceFieldRef: &corev1.ResourceFieldSelector{Resource: "limits.cpu"}},
				}}},
			}}},
			want: volume.Files{
				"token": file("token for x", mode), "ca.crt": file("ca", mode), "namespace": file("field metadata.namespace", mode), "cpu": file("limits.cpu", mode),
			},
			renew: time.Unix(1000, 0),
		},
		"a Secret that lacks": {
			source: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "lost"}}, wantErr: `volume "v": it is not there`,
		},
		"a key that lacks": {
			source:  corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "x"}}}},
			wantErr: `volume "v": Secret secret has no key "ca.crt"`,
		},
		"a way out": {
			source:  corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "secret", Items: []corev1.KeyToPath{{Key: "tls.key", Path: "../x"}}}},
			wantErr: `volume "v": path "../x" leads out of the volume`,
		},
		"a kind that is not there": {
			source:  corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}},
			wantErr: `volume "v": the lab has volumes of the kinds configMap, secret, emptyDir, projected and downwardAPI only`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, renew, ok, err := volume.Content(t.Context(), corev1.Volume{Name: "v", VolumeSource: test.source}, world{})
			if test.wantErr != "" {
				if err == nil || err.Error() != test.wantErr {
					t.Errorf("got %v", err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got); err != nil || !ok || diff != "" || !renew.Equal(test.renew) {
				t.Errorf("%v %v %v %s", err, ok, renew, diff)
			}
		})
	}
}

// TestWriteAsKubelet looks at the links that programs rely on, and at the two ways in which a volume must not change.
func TestWriteAsKubelet(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "v")
	one := volume.Files{"tls.crt": {Data: []byte("1"), Mode: 0o644}, "sub/key": {Data: []byte("k"), Mode: 0o400}, "old": {Mode: 0o644}}
	write := func(files volume.Files, want bool) string {
		t.Helper()
		if changed, err := volume.Write(dir, files, -1); err != nil || changed != want {
			t.Fatalf("changed %t, %v", changed, err)
		}
		data, err := os.Readlink(filepath.Join(dir, "..data"))
		if err != nil || !strings.HasPrefix(data, "..20") {
			t.Fatalf("..data leads to %q, %v", data, err)
		}
		return data
	}
	first := write(one, true)
	if again := write(one, false); again != first {
		t.Errorf("the same files again are in %s, before in %s", again, first)
	}
	if link, err := os.Readlink(filepath.Join(dir, "tls.crt")); err != nil || link != "..data/tls.crt" {
		t.Errorf("tls.crt leads to %q, %v", link, err)
	}
	two := volume.Files{"tls.crt": {Data: []byte("2"), Mode: 0o644}, "sub/key": {Data: []byte("k"), Mode: 0o400}}
	if second := write(two, true); second == first {
		t.Error("the files were changed where they are")
	}
	for path, want := range map[string]string{"tls.crt": "2", "sub/key": "k"} {
		if got, err := os.ReadFile(filepath.Join(dir, path)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v", path, got, err)
		}
	}
	if info, err := os.Stat(filepath.Join(dir, "sub/key")); err != nil || info.Mode().Perm() != 0o400 {
		t.Errorf("sub/key: %v, %v", info, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "old")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a key that is no more: %v", err)
	}
	if entries, err := filepath.Glob(filepath.Join(dir, "..20*")); err != nil || len(entries) != 1 {
		t.Errorf("old files are left: %v, %v", entries, err)
	}
	three := volume.Files{"tls.crt": {Data: []byte("2"), Mode: 0o600}, "sub/key": {Data: []byte("k"), Mode: 0o400}}
	write(three, true) // only a mode differs
	if err := os.Chmod(filepath.Join(dir, "sub/key"), 0o000); err != nil {
		t.Fatal(err)
	}
	write(three, true) // somebody has changed it
}

// TestReadersSeeAllOrNothing reads two files that always belong together while they change.
func TestReadersSeeAllOrNothing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "v")
	pair := func(text string) volume.Files {
		return volume.Files{"cert": {Data: []byte(text), Mode: 0o644}, "key": {Data: []byte(text), Mode: 0o644}}
	}
	if _, err := volume.Write(dir, pair("0"), -1); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		for i := range 50 {
			if _, err := volume.Write(dir, pair(strings.Repeat("x", i)), -1); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			return
		default:
		}
		data, err := filepath.EvalSymlinks(filepath.Join(dir, "..data"))
		if err != nil {
			continue // it was removed between two steps of finding it: a reader opens it anew
		}
		cert, certErr := os.ReadFile(filepath.Join(data, "cert"))
		key, keyErr := os.ReadFile(filepath.Join(data, "key"))
		if certErr == nil && keyErr == nil && string(cert) != string(key) {
			t.Fatalf("cert %q, key %q", cert, key)
		}
	}
}

func TestEmptyAndSubPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "v")
	if err := volume.Empty(dir, -1); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("%v, %v", info, err)
	}
	if got, err := volume.Resolve(dir, ""); err != nil || got != dir {
		t.Errorf("the whole: %s, %v", got, err)
	}
	if got, err := volume.Resolve(dir, "a/b"); err != nil || got != filepath.Join(dir, "a/b") {
		t.Errorf("a part: %s, %v", got, err)
	}
	if _, err := volume.Resolve(dir, "a/../../c"); err == nil || err.Error() != `subPath "a/../../c" leads out of the volume` {
		t.Errorf("a way out: %v", err)
	}
	if err := os.Symlink("/etc", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if _, err := volume.Resolve(dir, "link"); err == nil || err.Error() != `subPath "link" leads out of the volume` {
		t.Errorf("a link out: %v", err)
	}
}

func TestFieldOf(t *testing.T) {
	t.Parallel()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", UID: "u", Labels: map[string]string{"b": "2", "a": `1"`}, Annotations: map[string]string{"x/y": "z"}},
		Spec:       corev1.PodSpec{NodeName: "node", ServiceAccountName: "account"},
		Status: corev1.PodStatus{
			PodIP: "1.1.1.1", PodIPs: []corev1.PodIP{{IP: "1.1.1.1"}, {IP: "::1"}}, HostIP: "2.2.2.2", HostIPs: []corev1.HostIP{{IP: "2.2.2.2"}},
		},
	}
	for path, want := range map[string]string{
		"metadata.name": "p", "metadata.namespace": "n", "metadata.uid": "u", "metadata.labels": "a=\"1\\\"\"\nb=\"2\"", "metadata.labels['b']": "2",
		"metadata.annotations": `x/y="z"`, "metadata.annotations['x/y']": "z", "metadata.annotations['none']": "", "spec.nodeName": "node",
		"spec.serviceAccountName": "account", "status.podIP": "1.1.1.1", "status.podIPs": "1.1.1.1,::1", "status.hostIP": "2.2.2.2", "status.hostIPs": "2.2.2.2",
	} {
		if got, err := volume.FieldOf(pod, path); err != nil || got != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	if _, err := volume.FieldOf(pod, "status.qosClass"); err == nil || err.Error() != `field "status.qosClass" of a pod is unknown here` {
		t.Errorf("an unknown field: %v", err)
	}
}

func TestResourceOf(t *testing.T) {
	t.Parallel()
	list := func(cpu, memory string) corev1.ResourceList {
		out := corev1.ResourceList{}
		for name, text := range map[corev1.ResourceName]string{corev1.ResourceCPU: cpu, corev1.ResourceMemory: memory} {
			if text != "" {
				out[name] = resource.MustParse(text)
			}
		}
		return out
	}
	container := corev1.Container{Resources: corev1.ResourceRequirements{Limits: list("", "100Mi"), Requests: list("250m", "")}}
	for name, test := range map[string]struct{ resource, divisor, want string }{
		"whole units are rounded up":  {"requests.cpu", "", "1"},
		"in thousandths":              {"requests.cpu", "1m", "250"},
		"in bytes":                    {"limits.memory", "", "104857600"},
		"in mebibytes":                {"limits.memory", "1Mi", "100"},
		"a limit that is the node's":  {"limits.cpu", "1", "4"},
		"a request that is not there": {"requests.memory", "1", "0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			selector := corev1.ResourceFieldSelector{Resource: test.resource}
			if test.divisor != "" {
				selector.Divisor = resource.MustParse(test.divisor)
			}
			if got, err := volume.ResourceOf(container, selector, list("4", "8Gi")); err != nil || got != test.want {
				t.Errorf("%s, %v", got, err)
			}
		})
	}
}
