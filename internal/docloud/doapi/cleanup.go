// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"fmt"
	"math"
	"net/http"

	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

// certificateRoute is the route of one certificate.
const certificateRoute = "v2/certificates/{id}"

// Cleanup makes the calls that only a person's command makes: controllers neither ask for prices nor remove certificates.
type Cleanup struct{ client *Client }

// NewCleanup makes calls by a client.
func NewCleanup(c *Client) Cleanup { return Cleanup{c} }

// Prices returns what a droplet of each size costs in a month, in US cents, by the size's slug (GET /v2/sizes).
func (c Cleanup) Prices(ctx context.Context) (map[string]int, error) {
	const cents = 100
	all, err := offers(ctx, c.client, "v2/sizes")
	if err != nil {
		return nil, err
	}
	prices := map[string]int{}
	for _, one := range all {
		prices[one.Slug] = int(math.Round(one.Monthly * cents))
	}
	return prices, nil
}

// Certificate reads one certificate (GET /v2/certificates/{id}). errors.Is(err, ErrNotFound) holds only for the API's own 404.
func (c Cleanup) Certificate(ctx context.Context, id string) (loadbalancer.Certificate, error) {
	if err := checkID("certificate", id); err != nil {
		return loadbalancer.Certificate{}, err
	}
	var answer struct {
		Certificate *wireCertificate `json:"certificate"`
	}
	request := call{method: http.MethodGet, route: certificateRoute, path: certificatesPath + "/" + id, answer: &answer}
	if err := c.client.do(ctx, request); err != nil {
		return loadbalancer.Certificate{}, err
	}
	if answer.Certificate == nil || answer.Certificate.ID != id {
		return loadbalancer.Certificate{}, noAnswer(request, true, fmt.Errorf("the response is not about certificate %q", id))
	}
	return answer.Certificate.translate(), nil
}

// DeleteCertificate deletes a certificate (DELETE /v2/certificates/{id}). One that is not found is ErrNotFound; one that a load balancer uses is
// refused by DigitalOcean.
func (c Cleanup) DeleteCertificate(ctx context.Context, id string) error {
	return c.client.deleteOne(ctx, "certificate", certificateRoute, certificatesPath, id)
}
