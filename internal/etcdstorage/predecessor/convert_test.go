// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/predecessor"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// old is an old object with this name and spec.
func old(t *testing.T, name, spec string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := yaml.Unmarshal([]byte("apiVersion: etcd.xmudrii.com/v1alpha1\nkind: EtcdStorage\nmetadata: {name: '"+name+"'}\nspec: "+spec+"\n"), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// convert converts and shows the spec as YAML, and the notes.
func convert(t *testing.T, object map[string]any) (spec string, refused, lost, hints string) {
	t.Helper()
	c := predecessor.Convert(object, predecessor.Settings{OperatorNamespace: "storage"})
	if (c.Object == nil) != (len(c.Refused) > 0) {
		t.Fatalf("object %v, refused %v", c.Object, c.Refused)
	}
	if c.Object != nil {
		data := must.Get(json.Marshal(c.Object["spec"])).Or(t)
		spec = string(data)
	}
	join := func(notes []predecessor.Note) string {
		var out []string
		for _, n := range notes {
			out = append(out, n.String())
		}
		return strings.Join(out, "\n")
	}
	return spec, join(c.Refused), join(c.Lost), join(c.Hints)
}

// Each rule once: what becomes of a spec, and in which words a person is told of what could not be carried over.
func TestSpecs(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ spec, want, lost string }{
		"nothing": {"{}", `{"adoptExistingData":true}`, ""},
		"no spec": {"null", `{"adoptExistingData":true}`, ""},
		"everything": {
			"{caCertConfigMap: [{name: ca, namespace: a}, {name: ca, namespace: b}], clientCertSecret: [{name: c.d, namespace: a}], " +
				"signingCertificateValidity: 26280h, servingCertificateValidity: 1h30m, clientCertificateValidity: 2160h}",
			`{"adoptExistingData":true,"caCertConfigMap":[{"name":"ca","namespace":"a"},{"name":"ca","namespace":"b"}],"clientCertSecret":[{"name":"c.d","namespace":"a"}],` +
				`"clientCertificateValidity":"2160h","servingCertificateValidity":"1h30m","signingCertificateValidity":"26280h"}`, "",
		},
		"a point in front": {"{servingCertificateValidity: .5h}", `{"adoptExistingData":true,"servingCertificateValidity":"30m"}`, ""},
		"the CRD let garbage pass": {
			"{servingCertificateValidity: 1hgarbage}", `{"adoptExistingData":true}`,
			`spec.servingCertificateValidity: "1hgarbage" is not a duration above zero; left out, so that the default 2160h applies`,
		},
		"and zero": {
			"{clientCertificateValidity: 0h}", `{"adoptExistingData":true}`,
			`spec.clientCertificateValidity: "0h" is not a duration above zero; left out, so that the default 2160h applies`,
		},
		"too short": {
			"{clientCertificateValidity: 9m59s}", `{"adoptExistingData":true,"clientCertificateValidity":"10m"}`,
			`spec.clientCertificateValidity: "9m59s" is too short; set to 10m, the minimum`,
		},
		"too long": {
			"{signingCertificateValidity: 300000h, clientCertificateValidity: 300000h}",
			`{"adoptExistingData":true,"clientCertificateValidity":"87600h","signingCertificateValidity":"262800h"}`,
			"spec.signingCertificateValidity: \"300000h\" is too long; set to 262800h, the maximum\n" +
				`spec.clientCertificateValidity: "300000h" is too long; set to 87600h, the maximum`,
		},
		"longer than the CA": {
			"{signingCertificateValidity: 8760h, servingCertificateValidity: 8760h1m}",
			`{"adoptExistingData":true,"servingCertificateValidity":"8760h","signingCertificateValidity":"8760h"}`,
			"spec.servingCertificateValidity: 525601m is longer than the CA's validity, which limits that of a certificate; set to 8760h",
		},
		"a number": {
			"{servingCertificateValidity: 730}", `{"adoptExistingData":true}`,
			`spec.servingCertificateValidity: it must be a text such as "730h"; left out, so that the default 2160h applies`,
		},
		"no list": {
			"{clientCertSecret: {name: a, namespace: b}}", `{"adoptExistingData":true}`,
			"spec.clientCertSecret: it must be a list of names and namespaces; left out, so that nothing is delivered",
		},
		"bad entries": {
			"{clientCertSecret: [x, {name: A, namespace: b}, {name: a, namespace: b.c}, {name: a, namespace: b, key: c}]}", `{"adoptExistingData":true}`,
			"spec.clientCertSecret[0]: it must have a name and a namespace; left out\n" +
				"spec.clientCertSecret[1]: its name \"A\" is not a name of a Kubernetes object; left out\n" +
				"spec.clientCertSecret[2]: its namespace \"b.c\" is not a name of a namespace; left out\n" +
				`spec.clientCertSecret[3]: its field "key" is not known; left out`,
		},
		"twice": {
			"{caCertConfigMap: [{name: a, namespace: b}, {name: a, namespace: b}]}", `{"adoptExistingData":true,"caCertConfigMap":[{"name":"a","namespace":"b"}]}`,
			"spec.caCertConfigMap[1]: b/a is listed twice; left out here",
		},
		"the operator's namespace": {
			"{caCertConfigMap: [{name: a, namespace: storage}]}", `{"adoptExistingData":true,"caCertConfigMap":[{"name":"a","namespace":"storage"}]}`,
			"spec.caCertConfigMap[0]: storage is the operator's own namespace, where it delivers nothing; name an object in the tenant's",
		},
		"other fields": {"{replicas: 3}", `{"adoptExistingData":true}`, "spec.replicas: it is not a field of the old kind; left out"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec, refused, lost, _ := convert(t, old(t, "team-a", tt.spec))
			if diff := cmp.Diff([]string{tt.want, "", tt.lost}, []string{spec, refused, lost}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestMoreThanSixteenDestinations(t *testing.T) {
	t.Parallel()
	var entries []string
	for i := range 18 {
		entries = append(entries, "{name: a, namespace: x-"+string(rune('a'+i))+"}")
	}
	spec, _, lost, _ := convert(t, old(t, "x", "{caCertConfigMap: ["+strings.Join(entries, ", ")+"]}"))
	want := "spec.caCertConfigMap[16]: x-q/a is more than the 16 that are allowed; left out\nspec.caCertConfigMap[17]: x-r/a is more than the 16 that are allowed; left out"
	if strings.Count(spec, "namespace") != 16 || lost != want {
		t.Errorf("%s\n%s", spec, lost)
	}
}

// What cannot be converted at all, with the cure.
func TestRefused(t *testing.T) {
	t.Parallel()
	for want, object := range map[string]map[string]any{
		"metadata.name: it is missing": old(t, "", "{}"),
		"metadata.name: only lower case letters, digits and '-' are allowed now; create one of another name by hand, with spec.prefix /a.b/ and spec.adoptExistingData true": old(t, "a.b", "{}"),
		`metadata.name: "A" is not a name of a Kubernetes object`: old(t, "A", "{}"),
		"metadata.name: it has 59 characters, 58 are allowed now; create one of another name by hand, with spec.prefix /" + strings.Repeat("a", 59) +
			"/ and spec.adoptExistingData true": old(t, strings.Repeat("a", 59), "{}"),
		"spec: it must be an object with fields": old(t, "a", "[]"),
		`apiVersion: it is "etcd.xmudrii.com/v1", only etcd.xmudrii.com/v1alpha1 is known`: {
			"apiVersion": "etcd.xmudrii.com/v1", "metadata": map[string]any{"name": "a"},
		},
		"metadata.deletionTimestamp: it is being deleted: wait until it is gone": {
			"apiVersion": "etcd.xmudrii.com/v1alpha1", "metadata": map[string]any{"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
		},
	} {
		if _, refused, _, _ := convert(t, object); refused != want {
			t.Errorf("%s\nwant\n%s", refused, want)
		}
	}
}

// A CA that lives shorter than a year is carried over, and a person is told what that means now.
func TestHints(t *testing.T) {
	t.Parallel()
	_, _, _, hints := convert(t, old(t, "a", "{signingCertificateValidity: 730h, servingCertificateValidity: 730h, clientCertificateValidity: 730h}"))
	if hints != "spec.signingCertificateValidity: CAs are replaced regularly now: each API server must restart once in every 730h, between 1/2 and 5/6 of the CA's life; the default is 26280h" {
		t.Error(hints)
	}
	if _, _, _, hints := convert(t, old(t, "a", "{}")); hints != "" {
		t.Error(hints)
	}
}

// Labels and annotations of people stay; what programs wrote about the old object does not.
func TestMetadata(t *testing.T) {
	t.Parallel()
	object := old(t, "a", "{}")
	object["metadata"] = map[string]any{
		"name": "a", "uid": "x", "resourceVersion": "7", "managedFields": []any{"x"}, "finalizers": []any{"x"}, "ownerReferences": []any{"x"},
		"labels": map[string]any{"team": "a", "odd": 7.0},
		"annotations": map[string]any{
			"owner": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}", "etcd.xmudrii.com/x": "y",
		},
	}
	c := predecessor.Convert(object, predecessor.Settings{})
	want := map[string]any{"name": "a", "labels": map[string]any{"team": "a"}, "annotations": map[string]any{"owner": "b"}}
	if diff := cmp.Diff(want, c.Object["metadata"]); diff != "" {
		t.Error(diff)
	}
	if len(c.Lost) != 3 {
		t.Errorf("%v", c.Lost)
	}
}

// FuzzConvert: whatever an old object holds, the new one is one that our kind takes, by its own types and rules, or there is none and a reason.
func FuzzConvert(f *testing.F) {
	f.Add([]byte(`{"metadata":{"name":"a"},"spec":{"caCertConfigMap":[{"name":"a","namespace":"b"}],"signingCertificateValidity":"730h"}}`))
	f.Add([]byte(`{"metadata":{"name":"a","labels":{"x":1}},"spec":{"servingCertificateValidity":".000001ms","clientCertificateValidity":"1h1us"}}`))
	f.Add([]byte(`{"metadata":[],"spec":7}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var object map[string]any
		if json.Unmarshal(data, &object) != nil || object == nil {
			return
		}
		object["apiVersion"] = "etcd.xmudrii.com/v1alpha1"
		c := predecessor.Convert(object, predecessor.Settings{})
		if c.Object == nil {
			if len(c.Refused) == 0 {
				t.Fatal("no object and no reason")
			}
			return
		}
		text := must.Get(yaml.Marshal(c.Object)).Or(t)
		var got v1alpha1.EtcdStorage
		if err := yaml.UnmarshalStrict(text, &got); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		v1alpha1.SetDefaults(&got)
		s := got.Spec
		signing, serving, client := s.SigningCertificateValidity.Duration, s.ServingCertificateValidity.Duration, s.ClientCertificateValidity.Duration
		if got.Name != c.Name || signing < max(serving, client) || min(serving, client) < 10*time.Minute || max(serving, client) > 87600*time.Hour || signing > 262800*time.Hour {
			t.Errorf("%s", text)
		}
	})
}
