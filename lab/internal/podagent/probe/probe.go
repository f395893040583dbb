// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package probe asks containers how they are, as kubelet's probes do (k8s.io/kubernetes, pkg/kubelet/prober and pkg/probe).
package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ErrUnsupported says that a probe is of a kind that the lab does not have.
var ErrUnsupported = errors.New("the lab's probes are httpGet and tcpSocket only")

// bodyLimit is how much of an answer is read and told.
const bodyLimit = 1024

// Check makes the question of a probe to a container with the pod's address host. The function is nil, and the error says why, if it cannot be made.
func Check(p *corev1.Probe, container corev1.Container, host string) (func(context.Context) error, error) {
	switch {
	case p.HTTPGet != nil:
		port, err := portOf(p.HTTPGet.Port, container)
		if err != nil {
			return nil, err
		}
		return httpCheck(*p.HTTPGet, orHost(p.HTTPGet.Host, host), port), nil
	case p.TCPSocket != nil:
		port, err := portOf(p.TCPSocket.Port, container)
		if err != nil {
			return nil, err
		}
		address := net.JoinHostPort(orHost(p.TCPSocket.Host, host), port)
		return func(ctx context.Context) error { return tcpCheck(ctx, address) }, nil
	}
	return nil, ErrUnsupported
}

func orHost(own, pod string) string {
	if own != "" {
		return own
	}
	return pod
}

// portOf returns the number of a port, which may be the name of one of the container's.
func portOf(port intstr.IntOrString, container corev1.Container) (string, error) {
	if port.Type == intstr.Int {
		return strconv.Itoa(port.IntValue()), nil
	}
	for _, p := range container.Ports {
		if p.Name == port.StrVal {
			return strconv.Itoa(int(p.ContainerPort)), nil
		}
	}
	return "", fmt.Errorf("container %s has no port called %q", container.Name, port.StrVal)
}

func tcpCheck(ctx context.Context, address string) error {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	return connection.Close()
}

// httpCheck takes every answer from 200 to 399 for a yes and does not follow it; a certificate is not looked at.
func httpCheck(get corev1.HTTPGetAction, host, port string) func(context.Context) error {
	scheme := strings.ToLower(string(get.Scheme))
	if scheme == "" {
		scheme = "http"
	}
	target, err := url.Parse(get.Path)
	if err != nil {
		target = &url.URL{Path: get.Path}
	}
	target.Scheme, target.Host = scheme, net.JoinHostPort(host, port)
	client := &http.Client{
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, //nolint:gosec // as kubelet's: it asks whether, not who
			DisableKeepAlives: true, Proxy: nil,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
		if err != nil {
			return err
		}
		request.Header.Set("User-Agent", "kube-probe/1.36")
		request.Header.Set("Accept", "*/*")
		for _, h := range get.HTTPHeaders {
			if strings.EqualFold(h.Name, "Host") {
				request.Host = h.Value
				continue
			}
			request.Header.Set(h.Name, h.Value)
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(response.Body, bodyLimit))
		if response.StatusCode < http.StatusOK || response.StatusCode >= http.StatusBadRequest {
			return fmt.Errorf("it answers %s: %s", response.Status, strings.TrimSpace(string(body)))
		}
		return nil
	}
}

// Verdict is what a probe has found.
type Verdict struct {
	// Decided is false until one of the thresholds has been reached for the first time.
	Decided bool
	// Well says which one was the last. Message is what the last question found, if it was no.
	Well    bool
	Message string
}

// Run asks until ctx ends, first after the initial delay and then once a period, and reports each change of the verdict. It does so at once for a probe
// that cannot be asked.
func Run(ctx context.Context, p *corev1.Probe, check func(context.Context) error, report func(Verdict)) {
	seconds := func(n int32, least int32) time.Duration { return time.Duration(max(n, least)) * time.Second }
	if !wait(ctx, seconds(p.InitialDelaySeconds, 0)) {
		return
	}
	var verdict Verdict
	var row int32 // of answers of one kind
	var last bool
	for {
		asking, cancel := context.WithTimeout(ctx, seconds(p.TimeoutSeconds, 1))
		err := check(asking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		well := err == nil
		if row > 0 && well != last {
			row = 0
		}
		last = well
		row++
		next := Verdict{Decided: true, Well: well}
		threshold := max(p.SuccessThreshold, 1)
		if !well {
			next.Message, threshold = err.Error(), max(p.FailureThreshold, 1)
		}
		if row >= threshold && next != verdict {
			verdict = next
			report(verdict)
		}
		if !wait(ctx, seconds(p.PeriodSeconds, 1)) {
			return
		}
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
