// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package testkit

import (
	"bufio"
	"crypto/tls"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Scrape reads the metrics of an endpoint such as http://127.0.0.1:2379, with TLS if config is not nil, and returns the value of each series by its name and
// labels, as they are written in the text format.
func Scrape(tb testing.TB, endpoint string, config *tls.Config) map[string]float64 {
	tb.Helper()
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	request := must.Get(http.NewRequestWithContext(tb.Context(), http.MethodGet, endpoint+"/metrics", http.NoBody)).Or(tb)
	response, err := client.Do(request)
	must.Do(tb, err)
	defer func() { _ = response.Body.Close() }()
	out := map[string]float64{}
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if at := strings.LastIndex(lines.Text(), " "); at > 0 && !strings.HasPrefix(lines.Text(), "#") {
			out[lines.Text()[:at]] = must.Get(strconv.ParseFloat(lines.Text()[at+1:], 64)).Or(tb)
		}
	}
	return out
}
