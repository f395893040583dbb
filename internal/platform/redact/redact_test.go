// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package redact_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-dev/mooring/internal/platform/redact"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
)

// hex and word are secrets of the lengths that keys have; none of them stands in a text below but where it is planted.
const (
	hex  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	word = "hunter2-and-more"
)

// Each of these gives a secret away, and none does afterwards.
func TestPlantedSecretsAreTakenOut(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"a private key":             "x\n-----BEGIN EC PRIVATE KEY-----\n" + word + "\n-----END EC PRIVATE KEY-----\ny",
		"half of a private key":     "-----BEGIN PRIVATE KEY-----\n" + word,
		"a token of DigitalOcean":   "using dop_v1_" + hex,
		"an old token":              "using " + hex + " now",
		"a token of an account":     "token eyJhbGciOiJSUzI1NiIs." + word + ".sig",
		"a header":                  "Authorization: Bearer " + word,
		"an address":                "https://admin:" + word + "@etcd.example:2379/",
		"a variable":                "DO_ACCESS_TOKEN=" + word,
		"a flag":                    "--etcd-password=" + word,
		"a flag with a space":       "--etcd-password " + word,
		"a field of JSON":           `{"apiKey": "` + word + `"}`,
		"a field of YAML":           "passphrase: " + word,
		"a quoted field":            `password: '` + word + `'`,
		"a key in base64":           "key AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8= end",
		"a variable of YAML":        "- name: ETCD_PASSWORD\n  value: " + word,
		"a variable of JSON":        `{"name":"S3_SECRET_KEY","value":"` + word + `"}`,
		"a block of YAML":           "  password: |\n    " + word + "\n\n    more " + word + "\n  user: x",
		"a quote within":            `password="a \" ` + word + `"`,
		"a cookie":                  "Cookie: session=" + word + "; other=1",
		"a token of GitHub":         "using ghp_0123456789abcdef0123456789abcdef0123",
		"a secret in an annotation": `"example.com/client-secret":"` + word + `"`,
	} {
		got := redact.Text(text)
		for _, secret := range []string{hex, word, "ghp_", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="} {
			if strings.Contains(got, secret) {
				t.Errorf("%s: %q", name, got)
			}
		}
		if !strings.Contains(got, redact.Mark) {
			t.Errorf("%s: nothing says that something was taken out of %q", name, got)
		}
	}
}

// What a reader of a report needs stays.
func TestWhatIsNoSecretStays(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"image: example.com/calico-node-sync@sha256:" + hex,
		"node-1 is Ready since 2026-11-28T10:00:00Z",
		"uid: 6f7a1c2e-1111-4a5b-9c3d-0123456789ab",
		"resourceVersion: \"123456\"",
		"10.0.0.1 2001:db8::1 tcp/179",
	} {
		if got := redact.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if redact.IsName("DO_ACCESS_TOKEN_FILE") || !redact.IsName("DO_ACCESS_TOKEN") || redact.IsName("passwordRef") {
		t.Error("the place of a secret is taken for one, or the other way round")
	}
}

// Whatever a text looks like, what was taken out of it is not found in it a second time.
func TestAnyTextIsRedactedAtOnce(t *testing.T) {
	t.Parallel()
	cases.Check(t, func(t *rapid.T) {
		once := redact.Text(rapid.String().Draw(t, "before") + " password=" + word + "\n" + rapid.String().Draw(t, "after"))
		if strings.Contains(once, word) {
			t.Fatalf("%q", once)
		}
	})
}
