// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package providerid_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/providerid"
)

// Existing clusters hold these strings: a change here loses every Node of theirs.
func TestContract(t *testing.T) {
	t.Parallel()
	if got := providerid.Format(4242); got != "digitalocean://4242" {
		t.Errorf("Format(4242) = %q", got)
	}
	if providerid.Provider != "digitalocean" || providerid.Prefix != "digitalocean://" {
		t.Errorf("provider %q, prefix %q", providerid.Provider, providerid.Prefix)
	}
}

func TestParse(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		in   string
		want int
		err  error
		says string
	}{
		"a droplet":        {in: "digitalocean://4242", want: 4242},
		"not set yet":      {in: "", err: providerid.ErrEmpty, says: "the node has no provider ID yet"},
		"another provider": {in: "aws:///us-east-1a/i-123", err: providerid.ErrForeign, says: `the provider ID is not one of DigitalOcean: "aws:///us-east-1a/i-123" does not begin with digitalocean://`},
		"upper case":       {in: "DigitalOcean://1", err: providerid.ErrForeign, says: `the provider ID is not one of DigitalOcean: "DigitalOcean://1" does not begin with digitalocean://`},
		"no number":        {in: "digitalocean://", err: providerid.ErrMalformed, says: `the provider ID names no droplet: "digitalocean://" must be digitalocean:// and a positive number`},
		"a name":           {in: "digitalocean://web-1", err: providerid.ErrMalformed, says: `the provider ID names no droplet: "digitalocean://web-1" must be digitalocean:// and a positive number`},
		"zero":             {in: "digitalocean://0", err: providerid.ErrMalformed},
		"a sign":           {in: "digitalocean://+5", err: providerid.ErrMalformed},
		"negative":         {in: "digitalocean://-5", err: providerid.ErrMalformed},
		"leading zero":     {in: "digitalocean://05", err: providerid.ErrMalformed},
		"too large":        {in: "digitalocean://92233720368547758080", err: providerid.ErrMalformed},
		"a slash more":     {in: "digitalocean:///5", err: providerid.ErrMalformed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := providerid.Parse(tt.in)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("Parse(%q) = %d, %v; want %d, %v", tt.in, got, err, tt.want, tt.err)
			}
			if tt.says != "" && err.Error() != tt.says {
				t.Errorf("says\n%q, want\n%q", err, tt.says)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{"", "digitalocean://1", "digitalocean://01", "digitalocean://x", "aws://1", "digitalocean://9223372036854775807"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		droplet, err := providerid.Parse(in)
		switch {
		case err == nil && (droplet <= 0 || providerid.Format(droplet) != in):
			t.Errorf("Parse(%q) = %d, which is written %q", in, droplet, providerid.Format(droplet))
		case err != nil && droplet != 0:
			t.Errorf("Parse(%q) = %d alongside %v", in, droplet, err)
		case err != nil && strings.ContainsAny(err.Error(), "\n"):
			t.Errorf("not one sentence: %q", err)
		}
	})
}
