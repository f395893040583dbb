// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"regexp"
	"strings"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Range is the size that a request allows, in bytes; 0 means no limit.
type Range struct{ Required, Limit int64 }

var names = regexp.MustCompile(assumed.VolumeNamePattern)

// possible reports whether DigitalOcean accepts a volume's name.
func possible(name string) bool {
	return len(name) <= assumed.VolumeNameLength && names.MatchString(name)
}

// Name returns the volume's name at DigitalOcean for the name of a request: the same if DigitalOcean takes it, as it does those of
// csi-provisioner ("pvc-" and a UID), else what of it fits with a digest that keeps names apart. The same name always has the same one.
func Name(name string) string {
	if possible(name) {
		return name
	}
	const longest = 40
	fits := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
	digest := sha256.Sum256([]byte(name))
	return "v-" + strings.Trim(fits[:min(len(fits), longest)], "-") + "-" + hex.EncodeToString(digest[:8])
}

// Pick returns the size in GiB for a range: the smallest whole number of GiB that has the required bytes. There is no largest size: only DigitalOcean
// decides that. An error is one sentence.
func (r Range) Pick() (int, error) {
	switch {
	case r.Required < 0 || r.Limit < 0:
		return 0, fmt.Errorf("the size must not be negative: %d bytes are required and the limit is %d", r.Required, r.Limit)
	case r.Required > math.MaxInt64-GiB:
		return 0, fmt.Errorf("%d bytes are required, which no number of GiB can hold", r.Required)
	case r.Limit > 0 && r.Required > r.Limit:
		return 0, fmt.Errorf("%d bytes are required, which is more than the limit of %d", r.Required, r.Limit)
	case r.Limit > 0 && r.Limit < int64(assumed.VolumeSizeLeast)*GiB:
		return 0, fmt.Errorf("the limit is %d bytes, and DigitalOcean's volumes have at least %d GiB", r.Limit, assumed.VolumeSizeLeast)
	}
	size := int64(Default)
	switch {
	case r.Required > 0:
		size = max(assumed.VolumeSizeLeast, roundUp(r.Required))
	case r.Limit > 0:
		size = min(size, r.Limit/GiB)
	}
	if r.Limit > 0 && size*GiB > r.Limit {
		return 0, fmt.Errorf("DigitalOcean's volumes have whole GiB, and there is none between the required %d bytes and the limit of %d", r.Required, r.Limit)
	}
	return int(size), nil
}

// Holds reports whether a size in GiB is within the range.
func (r Range) Holds(size int) bool {
	return int64(size)*GiB >= r.Required && (r.Limit == 0 || int64(size)*GiB <= r.Limit)
}

func roundUp(bytes int64) int64 { return (bytes-1)/GiB + 1 }
