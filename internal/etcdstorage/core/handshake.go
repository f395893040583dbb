// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package core

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// verdictPatience bounds the wait for a server's verdict on our certificate: in TLS 1.3 it comes after the handshake, and a server that is
// content sends its settings of HTTP/2 at once.
const verdictPatience = time.Second

// refusedTLS makes a sentence of why TLS with the core fails, "" if it does not, or if nothing is reached at all. Calls tell of a handshake
// that fails as of a core that is silent, since they try again until their time is over; so this makes one of its own at each URL.
func (c *Client) refusedTLS(ctx context.Context, urls []string) string {
	if c.tls == nil {
		return ""
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.patience) // the call that failed may have used it up
	defer cancel()
	for _, text := range urls {
		if err := handshake(ctx, c.tls, text); err != nil {
			return fmt.Sprintf("TLS with the core etcd %s fails: %v: its certificate must be signed by the configured CA and name that host, and it must trust the "+
				"operator's certificate", text, err)
		}
	}
	return ""
}

// handshake returns what is wrong with TLS, nil if nothing is or nobody is there.
func handshake(ctx context.Context, config *tls.Config, text string) error {
	at, err := url.Parse(text)
	if err != nil {
		return nil // the flag was checked
	}
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return nil // that is silence
	}
	defer func() { _ = raw.Close() }()
	config = config.Clone()
	config.ServerName, config.NextProtos = at.Hostname(), []string{"h2"}
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(verdictPatience)) //nolint:forbidigo // a deadline of the network's
	_, err = conn.Read(make([]byte, 1))
	if refused, ok := errors.AsType[*net.OpError](err); ok && refused.Op == "remote error" {
		return refused
	}
	return nil
}
