// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package pki

// Plan is everything that a lab's PKI folder holds.
type Plan struct {
	// Authorities are names of self-signed certificate authorities. Authority "x" is x.crt and x.key.
	Authorities []string `json:"authorities"`
	// Certificates are signed by one of Authorities. Certificate "y" is y.crt and y.key.
	Certificates []Certificate `json:"certificates"`
	// KeyPairs are bare key pairs without a certificate, as service account tokens need them. Pair "z" is z.key and z.pub.
	KeyPairs []string `json:"keyPairs,omitempty"`
}

// Certificate describes one leaf certificate.
type Certificate struct {
	// Name of the files, without extension.
	Name string `json:"name"`
	// Authority that signs it.
	Authority string `json:"authority"`
	// CommonName is the user name that Kubernetes and etcd read from a client certificate.
	CommonName string `json:"commonName"`
	// Organizations are the groups that Kubernetes reads from a client certificate.
	Organizations []string `json:"organizations,omitempty"`
	// DNSNames and IPs are what a serving certificate is valid for. A certificate without them cannot serve.
	DNSNames []string `json:"dnsNames,omitempty"`
	IPs      []string `json:"ips,omitempty"`
	// Client reports that it may be used to authenticate to a server.
	Client bool `json:"client,omitempty"`
}

// Serves reports whether the certificate is valid for serving anything.
func (c Certificate) Serves() bool { return len(c.DNSNames)+len(c.IPs) > 0 }
