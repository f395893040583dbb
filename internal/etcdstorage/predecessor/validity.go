// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package predecessor

import (
	"fmt"
	"time"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

const (
	fieldSigning = "signingCertificateValidity"
	fieldServing = "servingCertificateValidity"
	fieldClient  = "clientCertificateValidity"
)

// What our kind allows (its CEL rules; a test compares the two).
const (
	leastValidity = 10 * time.Minute
	mostSigning   = 262800 * time.Hour
	mostLeaf      = 87600 * time.Hour
)

// shortSigning is the validity of a CA below which a person should think twice: API servers must restart once in the sixth of it in which two
// CAs are trusted.
const shortSigning = 8760 * time.Hour

// validities carries over the three validities. The old kind took any text that began like a duration, so that each of them may be no duration at
// all, too short, or longer than that of the CA.
func (c *Conversion) validities(out, spec map[string]any) {
	var defaults v1alpha1.EtcdStorage
	v1alpha1.SetDefaults(&defaults)
	signing := c.validity(out, spec, fieldSigning, mostSigning, defaults.Spec.SigningCertificateValidity.Duration)
	c.leaf(out, spec, fieldServing, signing, defaults.Spec.ServingCertificateValidity.Duration)
	c.leaf(out, spec, fieldClient, signing, defaults.Spec.ClientCertificateValidity.Duration)
	if signing < shortSigning {
		c.hint("spec."+fieldSigning, "CAs are replaced regularly now: each API server must restart once in every %s, between 1/2 and 5/6 of the CA's life; "+
			"the default is %s", write(signing), write(defaults.Spec.SigningCertificateValidity.Duration))
	}
}

// leaf carries over the validity of certificates, which end with their CA.
func (c *Conversion) leaf(out, spec map[string]any, field string, signing, fallback time.Duration) {
	if got := c.validity(out, spec, field, mostLeaf, fallback); got > signing {
		c.lose("spec."+field, "%s is longer than the CA's validity, which limits that of a certificate; set to %s", write(got), write(signing))
		out[field] = write(signing)
	}
}

// validity carries over one of them and returns what applies.
func (c *Conversion) validity(out, spec map[string]any, field string, most, fallback time.Duration) time.Duration {
	path := "spec." + field
	if spec[field] == nil {
		return fallback
	}
	text, ok := spec[field].(string)
	if !ok {
		c.lose(path, "it must be a text such as \"730h\"; left out, so that the default %s applies", write(fallback))
		return fallback
	}
	d, err := time.ParseDuration(text)
	switch {
	case err != nil || d <= 0:
		c.lose(path, "%q is not a duration above zero; left out, so that the default %s applies", text, write(fallback))
		return fallback
	case d < leastValidity:
		c.lose(path, "%q is too short; set to %s, the minimum", text, write(leastValidity))
		d, text = leastValidity, write(leastValidity)
	case d > most:
		c.lose(path, "%q is too long; set to %s, the maximum", text, write(most))
		d, text = most, write(most)
	case !matches(`^([0-9]+([.][0-9]+)?(ns|us|ms|s|m|h))+$`, text):
		text = write(d) // the same in other words: Go reads ".5h", the API server does not
	}
	out[field] = text
	return d
}

// write writes a duration as people do: 730h rather than 730h0m0s.
func write(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return d.String()
}
