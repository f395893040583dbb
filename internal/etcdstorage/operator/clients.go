// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
)

// A client is a Secret of the tenant for which certificates are or were issued. Anyone who reads such a Secret keeps a certificate for as
// long as it lasts; so proxies refuse clients whose Secret the spec names no more, until no CA is left that may have signed for them. Which
// ones there were is kept alongside the CAs: who loses the one loses the other, and with it the certificates.
type issuedClient struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Number tells clients of one Secret apart, so that one that is named again does not let old certificates in again.
	Number int `json:"number"`
	// RevokedAt is the generation of the newest client CA when the Secret was named no more; 0 while it is named.
	RevokedAt int `json:"revokedAt,omitempty"`
}

// clientsKey is the record of clients in the Secret with the CAs. MUST NOT change.
const clientsKey = "clients"

// String is the Secret.
func (c issuedClient) String() string { return KindSecret + " " + c.Namespace + "/" + c.Name }

func (c issuedClient) leaf(tenant string) pki.Leaf {
	return pki.ClientLeaf(tenant, c.Namespace, c.Name, c.Number)
}

// recordedClients are the clients as they were recorded last. A record that cannot be read is as none.
func (w World) recordedClients() (out []issuedClient) {
	if o, ours := w.own(KindSecret, SignersName(w.Storage.Name)); ours {
		_ = json.Unmarshal(o.secretData()[clientsKey], &out)
	}
	return out
}

// clients are the clients as they should be recorded.
func (w World) clients() []issuedClient {
	signers := w.signers()[pki.Client]
	newest := 0
	if len(signers) > 0 {
		newest = signers[len(signers)-1].Generation
	}
	var out []issuedClient
	var named []v1alpha1.Destination
	for _, d := range w.Storage.Spec.ClientCertSecrets {
		if d.Namespace != w.Settings.Namespace && !slices.Contains(named, d) {
			named = append(named, d)
		}
	}
	for _, c := range w.recordedClients() {
		at := v1alpha1.Destination{Namespace: c.Namespace, Name: c.Name}
		switch {
		case c.RevokedAt > 0 && !slices.ContainsFunc(signers, func(ca pki.CA) bool { return ca.Generation <= c.RevokedAt }):
			continue // nothing that it could show is trusted any more
		case c.RevokedAt == 0 && slices.Contains(named, at):
			named = slices.DeleteFunc(named, func(d v1alpha1.Destination) bool { return d == at })
		case c.RevokedAt == 0:
			c.RevokedAt = max(newest, 1)
		}
		out = append(out, c)
	}
	for _, d := range named {
		c := issuedClient{Namespace: d.Namespace, Name: d.Name, Number: 1}
		for _, was := range out {
			if was.Namespace == c.Namespace && was.Name == c.Name {
				c.Number = max(c.Number, was.Number+1)
			}
		}
		out = append(out, c)
	}
	slices.SortFunc(out, func(a, b issuedClient) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Number, b.Number))
	})
	return out
}

// client is that of a Secret which the spec names.
func (w World) client(d Destination) issuedClient {
	for _, c := range w.clients() {
		if c.RevokedAt == 0 && c.Namespace == d.Namespace && c.Name == d.Name {
			return c
		}
	}
	return issuedClient{Namespace: d.Namespace, Name: d.Name, Number: 1}
}

func encodeClients(clients []issuedClient) []byte {
	raw, err := json.Marshal(clients)
	if err != nil {
		panic("operator: clients cannot be written as JSON: " + err.Error()) // a program error: they are words and numbers
	}
	return raw
}

// record adds the write of the record of clients, before the certificates that it is about are issued or revoked.
func (w World) record(p *Plan) {
	signers, want := w.signers(), w.clients()
	if len(signers[pki.Client]) == 0 || slices.Equal(w.recordedClients(), want) {
		return // the CA comes first, and has the record with it
	}
	s := w.signersWrite(signers, "the record of clients changes")
	var gone []string
	for _, was := range w.recordedClients() {
		if was.RevokedAt == 0 && !slices.Contains(want, was) {
			gone = append(gone, was.String())
		}
	}
	if len(gone) == 0 {
		p.add(Apply{s})
		return
	}
	s.About = About{strings.Join(gone, ", "), "the spec no longer names it: its certificates are refused from now on"}
	p.add(Revoke{s})
}

// RevokedClients lists the Secrets that the spec names no more and that may still hold what was issued.
func (w World) RevokedClients() []v1alpha1.Destination {
	var out []v1alpha1.Destination
	for _, c := range w.clients() {
		d := v1alpha1.Destination{Namespace: c.Namespace, Name: c.Name}
		if c.RevokedAt > 0 && !slices.Contains(w.Storage.Spec.ClientCertSecrets, d) && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	return out
}

// emptyRevoked takes what was issued out of Secrets that the spec names no more.
func (w World) emptyRevoked(p *Plan) {
	for _, d := range w.sortedDestinations(w.Revoked) {
		if d.State == Readable && d.Delivered == Mark(&w.Storage) {
			p.add(Withdraw{Delivery{About{d.String(), "the spec no longer names it"}, d}})
		}
	}
}

// Lines of the list that proxies read: a client that is refused, and a comment about one that is let in, so that the record can be recovered.
const (
	lineRevoked = "uri:" + pki.ClientURI
	lineCurrent = "# " + lineRevoked
)

// revokedList is what proxies read (--revoked-clients-file). Certificates of versions that gave clients no number are known by their common name.
func (w World) revokedList() string {
	var out strings.Builder
	out.WriteString("# Names of clients that are refused, because the EtcdStorage no longer names their Secrets. The other lines are comments.\n")
	all := w.clients()
	for _, c := range all {
		line := lineRevoked
		if c.RevokedAt == 0 {
			line = lineCurrent
		}
		leaf := c.leaf(w.Storage.Name)
		fmt.Fprintf(&out, "%s%s\n", line, strings.TrimPrefix(leaf.URIs[len(leaf.URIs)-1], pki.ClientURI))
		if c.RevokedAt > 0 && !slices.ContainsFunc(all, func(o issuedClient) bool {
			return o.RevokedAt == 0 && o.leaf(w.Storage.Name).CommonName == leaf.CommonName
		}) {
			fmt.Fprintf(&out, "cn:%s\n", leaf.CommonName)
		}
	}
	return out.String()
}

// clientsOf reads the list. Not all CAs may be known that signed for those that are refused, so that the newest counts as such.
func clientsOf(list string, newest int) (out []issuedClient) {
	for line := range strings.Lines(list) {
		text, current := strings.CutPrefix(strings.TrimSpace(line), lineCurrent)
		revokedAt := 0
		if !current {
			text = strings.TrimPrefix(text, lineRevoked)
			revokedAt = max(newest, 1)
		}
		parts := strings.Split(text, "/")
		if len(parts) != 3 {
			continue
		}
		if number, err := strconv.Atoi(parts[2]); err == nil {
			out = append(out, issuedClient{Namespace: parts[0], Name: parts[1], Number: number, RevokedAt: revokedAt})
		}
	}
	return out
}

// list adds the write of the list, before anything is issued to whom it names.
func (w World) list(p *Plan) {
	o, ours := w.own(KindConfigMap, ClientCAName(w.Storage.Name))
	if !ours || string(o.configData(v1alpha1.RevokedClientsKey)) == w.revokedList() {
		return
	}
	p.add(Apply{w.write(w.clientCA(o.configData(v1alpha1.ClientCAKey)), "the list of clients changes")})
}
