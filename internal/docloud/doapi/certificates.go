// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"fmt"
	"net/http"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

const certificatesPath = "v2/certificates"

// wireCertificate is a certificate as the API writes it (schema "certificate").
type wireCertificate struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	State    string   `json:"state"`
	DNSNames []string `json:"dns_names"`
}

func (w wireCertificate) key() string { return w.ID }

func (w wireCertificate) translate() loadbalancer.Certificate {
	return loadbalancer.Certificate{
		ID: w.ID, Name: w.Name, Type: loadbalancer.CertificateType(w.Type), State: loadbalancer.CertificateState(w.State), DNSNames: w.DNSNames,
	}
}

// CreateCertificate asks for a certificate of Let's Encrypt (POST /v2/certificates); it is pending when this returns. With an error for which
// errors.Is(err, ErrAmbiguous) holds it may have been made: names are unique in an account, so look for it by name before trying again.
func (c *Client) CreateCertificate(ctx context.Context, r loadbalancer.CertificateRequest) (loadbalancer.Certificate, error) {
	var answer struct {
		Certificate *wireCertificate `json:"certificate"`
	}
	request := call{method: http.MethodPost, route: certificatesPath, path: certificatesPath, body: r, answer: &answer}
	if err := c.do(ctx, request); err != nil {
		return loadbalancer.Certificate{}, err
	}
	if answer.Certificate == nil || answer.Certificate.ID == "" {
		return loadbalancer.Certificate{}, noAnswer(request, true, fmt.Errorf("the response is not about certificate %q", r.Name))
	}
	return answer.Certificate.translate(), nil
}

// Certificates lists all certificates of the account (GET /v2/certificates). It is all of them or an error.
func (c *Client) Certificates(ctx context.Context) ([]loadbalancer.Certificate, error) {
	return list[wireCertificate](ctx, c, certificatesPath, nil)
}
