// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/x509"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// parseRevoked reads a list of revoked identities: one in each line, written as in --allowed-identity. Empty lines and those that begin with
// '#' are skipped.
func parseRevoked(text string) ([]identity, error) {
	var out []identity
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, err := parseIdentity("the revoked identity", line)
		if err != nil {
			return nil, err
		}
		out = append(out, id)
	}
	return out, nil
}

// revocation returns which client certificates are revoked, by the list that is current among files.
type revocation struct {
	files *certreload.Reloader
	last  atomic.Pointer[revokedIn]
}

// revokedIn are the revoked identities of a snapshot.
type revokedIn struct {
	snapshot   *certreload.Snapshot
	identities []identity
}

// revoked reports whether one of a certificate's names is revoked.
func (r *revocation) revoked(cert *x509.Certificate) bool {
	list := r.current()
	return len(list) > 0 && slices.ContainsFunc(identitiesOf(cert), func(name identity) bool { return slices.Contains(list, name) })
}

func (r *revocation) current() []identity {
	now := r.files.Current()
	if last := r.last.Load(); last != nil && last.snapshot == now {
		return last.identities
	}
	list, _ := parseRevoked(string(now.Extra)) // what does not parse was not taken over
	r.last.Store(&revokedIn{now, list})
	return list
}
