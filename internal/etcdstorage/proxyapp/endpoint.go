// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

const (
	schemeHTTP  = "http"
	schemeHTTPS = "https"
)

// endpoint is one address of the core.
type endpoint struct {
	scheme string // http or https
	host   string // host:port
}

func (e endpoint) String() string { return e.scheme + "://" + e.host }

// parseEndpoint reads an URL or host:port; the latter gets the scheme.
func parseEndpoint(text, scheme string) (endpoint, error) {
	complain := func(problem string) (endpoint, error) {
		return endpoint{}, fmt.Errorf("--core-endpoints %q %s: write https://host:2379", text, problem)
	}
	rest := text
	if before, after, found := strings.Cut(text, "://"); found {
		scheme, rest = before, after
	}
	switch {
	case text == "":
		return endpoint{}, errors.New("--core-endpoints has an empty element: write https://host:2379, with commas between several")
	case scheme != schemeHTTP && scheme != schemeHTTPS:
		return complain("has an unknown scheme, it must be https or http")
	case strings.Contains(text, "@"):
		// The text is not repeated: it may hold a password, and this goes to a log.
		return endpoint{}, errors.New("--core-endpoints names a user in an URL: use --core-username and --core-password-file")
	case strings.ContainsAny(strings.TrimSuffix(rest, "/"), "/?#"):
		return complain("has more than scheme, host and port")
	}
	rest = strings.TrimSuffix(rest, "/")
	host, port, err := net.SplitHostPort(rest)
	switch {
	case err != nil:
		return complain("has no port")
	case !validHost(host):
		return complain("has neither a host name nor an IP address before the port")
	case !validPort(port, 1):
		return complain("has no port between 1 and 65535")
	}
	return endpoint{scheme: scheme, host: rest}, nil
}

// parseEndpoints reads all of them and makes sure that they agree on the scheme, since one set of credentials serves them all.
func parseEndpoints(texts []string, scheme string) ([]endpoint, error) {
	if len(texts) == 0 {
		return nil, errors.New("--core-endpoints is missing: name the core etcd's client URLs, such as https://etcd-0.etcd:2379")
	}
	var out []endpoint
	var errs []error
	for _, text := range texts {
		e, err := parseEndpoint(strings.TrimSpace(text), scheme)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, e)
	}
	for _, e := range out {
		if e.scheme != out[0].scheme {
			errs = append(errs, fmt.Errorf("--core-endpoints has both %s and %s: all endpoints must be https", out[0], e))
			break
		}
	}
	return out, errors.Join(errs...)
}

// checkAddress refuses what cannot be listened on. With off, the word that turns the endpoint off is accepted.
func checkAddress(flag, addr string, off bool) error {
	advice := `write host:port or ":port"`
	if off {
		if addr == disabled {
			return nil
		}
		advice += fmt.Sprintf(", or %q to turn the endpoint off", disabled)
	}
	host, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil:
		return fmt.Errorf("%s %q is not an address to listen on: %s", flag, addr, advice)
	case !validPort(port, 0):
		return fmt.Errorf("%s %q has no port between 0 and 65535: %s", flag, addr, advice)
	case host != "" && !validHost(host):
		return fmt.Errorf("%s %q has neither a host name nor an IP address before the port: %s", flag, addr, advice)
	}
	return nil
}

// checkAdvertised refuses what no client could connect to.
func checkAdvertised(text string) error {
	const advice = "write https://host:2379"
	u, err := url.Parse(text)
	switch {
	case err != nil:
		return fmt.Errorf("--advertise-client-url %q is not an URL: %s", text, advice)
	case u.Scheme != schemeHTTP && u.Scheme != schemeHTTPS:
		return fmt.Errorf("--advertise-client-url %q has an unknown scheme, it must be https or http: %s", text, advice)
	case u.Port() == "" || !validPort(u.Port(), 1) || !validHost(u.Hostname()):
		return fmt.Errorf("--advertise-client-url %q has no host and port: %s", text, advice)
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "":
		return fmt.Errorf("--advertise-client-url %q has more than scheme, host and port: %s", text, advice)
	}
	return nil
}

// isLoopback tells whether a host:port can be reached from this machine alone. No name is looked up: only localhost is known to be such.
func isLoopback(hostPort string) bool {
	host, _, err := net.SplitHostPort(hostPort)
	if err != nil {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return strings.EqualFold(host, "localhost")
}

// hostName is a DNS name as people write it in URLs; underscores are found in Compose files.
var hostName = regexp.MustCompile(`^[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?(\.[A-Za-z0-9_]([-A-Za-z0-9_]*[A-Za-z0-9_])?)*\.?$`)

func validHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return true
	}
	return len(host) <= 253 && hostName.MatchString(host)
}

func validPort(port string, least uint64) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n >= least
}
