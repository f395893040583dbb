// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// While one call logs in, the others wait for it, but no longer than they may take themselves.
func TestWaitingForALogin(t *testing.T) {
	t.Parallel()
	asked, release := make(chan struct{}), make(chan struct{})
	c := &core{logins: make(chan struct{}, 1), cfg: UpstreamConfig{Password: func() (string, error) {
		close(asked)
		<-release
		return "", context.Canceled
	}}}
	c.p = &Proxy{}
	ended := make(chan error)
	go func() {
		_, err := c.login(t.Context())
		ended <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.login(ctx); status.Code(err) != codes.Canceled {
		t.Errorf("a call that was given up while another logs in: %v", err)
	}
	close(release)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("the login itself: %v", err)
	}
}

// What a change of anybody's users in the core interrupted is done again, with a token or without.
func TestInterruptedByAChangeOfUsers(t *testing.T) {
	t.Parallel()
	const changed = "etcdserver: revision of auth store is old"
	certificate := &core{}
	if !certificate.loggedOut("", changed) || certificate.loggedOut("", "etcdserver: permission denied") || certificate.loggedOut("", "etcdserver: invalid auth token") {
		t.Error("by certificate: wrong")
	}
	token := &core{cfg: UpstreamConfig{Password: func() (string, error) { return "", nil }}, token: "t"}
	if !token.loggedOut("t", changed) || token.token != "" || token.loggedOut("", "etcdserver: permission denied") {
		t.Error("by token: wrong")
	}
}
