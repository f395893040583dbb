// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package upstream

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestObjectsAreThoseOfTheFiles compares with the digests of the upstream projects' files: Digest of their objects.
// The files at hand as bytes were those of v0.1.68 and v4.16.0; the digests are of these with the tags of images of
// v0.1.71 and v4.18.0. The newer files were read, have the same length, and differed in nothing else that was seen.
func TestObjectsAreThoseOfTheFiles(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		objects []*unstructured.Unstructured
		count   int
		digest  string
	}{
		CloudImage:  {CloudControllerManager(), 4, "5caef3089f9c51c9c251263c995bae2c5e5d7453e5b44379bd179325c5ed2fb4"},
		VolumeImage: {VolumeDriver(), 20, "4183d0c05320a208d3f7ff1207eb33587764631574e6c3c32f394d93ccfb29c6"},
	} {
		digest, err := Digest(test.objects)
		if err != nil || digest != test.digest || len(test.objects) != test.count {
			t.Errorf("%s: %d objects with the digest %s (%v), upstream's file has %d with %s", name, len(test.objects), digest, err, test.count, test.digest)
		}
	}
}
