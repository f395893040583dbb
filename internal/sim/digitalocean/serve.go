// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/journal"
)

// maxBody is the largest request that is read: more than a firewall with thousands of rules.
const maxBody = 4 << 20

// call is one request on its way through the simulator.
type call struct {
	sim      *Simulator
	route    *route
	params   map[string]string
	base     string // scheme and host, for links
	path     string
	query    url.Values
	body     []byte
	bearer   string
	decision fault.Decision
	entry    journal.Entry
	left     bool // the entry is in the journal

	// Set when the request is processed.
	now     time.Time
	token   *token
	account *account
	header  http.Header
}

// Handler serves the API below /v2. A token is expected as in Authorization: Bearer.
//
// Injected failures of the connection are real: net/http's client repeats a GET by itself if a connection that it had used
// before dies without a response, so that the journal may show a read twice. Writes are never repeated by it.
func (s *Simulator) Handler() http.Handler { return http.HandlerFunc(s.serve) }

func (s *Simulator) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, "reading the request: "+err.Error(), http.StatusBadRequest)
		return
	}
	c := s.arrive(r, body)
	defer s.leave(c) // also if the client gives up
	if !s.wait(r.Context(), s.options.Latency+c.decision.Delay) {
		return
	}
	switch c.decision.Fault.Kind {
	case fault.Reset:
		s.leave(c)
		reset(w)
		return
	case fault.Hang:
		<-r.Context().Done()
		return
	default:
	}
	s.deliver(w, r, c, s.process(c))
}

// arrive notes the request and decides what will happen to it.
func (s *Simulator) arrive(r *http.Request, body []byte) *call {
	c := &call{sim: s, path: r.URL.Path, query: r.URL.Query(), body: body, header: http.Header{}}
	c.base = "http://" + r.Host
	if r.TLS != nil || r.URL.Scheme == "https" {
		c.base = "https://" + r.Host
	}
	c.bearer, _ = strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	c.route, c.params = match(s.routes, r.Method, r.URL.Path)
	name := r.Method + " unknown"
	if c.route != nil {
		name = c.route.name()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.clock.Now()
	c.decision = s.faults.Decide(name)
	c.entry = journal.Entry{
		Number: s.journal.Begin(now), Time: now, Route: name, Method: r.Method, URL: r.URL.RequestURI(),
		Fault: string(c.decision.Fault.Kind),
	}
	if c.entry.Fault == "" && c.decision.Delay > 0 {
		c.entry.Fault = string(fault.Delay)
	}
	if r.Method != http.MethodGet && len(body) > 0 {
		c.entry.Body = asJSON(body)
	}
	return c
}

// asJSON returns a body that can be part of JSON.
func asJSON(body []byte) json.RawMessage {
	if json.Valid(body) {
		return body
	}
	quoted, err := json.Marshal(string(body))
	if err != nil { // a string can always be marshaled
		return nil
	}
	return quoted
}

// leave writes the request into the journal, once: before the client can know the answer, so that it finds its own request there.
func (s *Simulator) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.left {
		c.left = true
		s.journal.End(c.entry)
	}
}

// wait lets time pass, and is false if the client gave up before.
func (s *Simulator) wait(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}

// process answers the request and changes the state accordingly.
func (s *Simulator) process(c *call) result {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.now = s.clock.Now()
	c.header.Set("x-request-id", s.requestID(c.entry.Number))
	c.token = s.tokens[c.bearer]
	if c.token == nil {
		return refuse(http.StatusUnauthorized, "Unable to authenticate you.").result()
	}
	c.account = c.token.account
	c.entry.Account = c.account.name
	c.account.settle(c.now)
	if refused := c.countAgainstLimits(); refused != nil {
		return refused.result()
	}
	rule := c.decision.Fault
	switch rule.Kind {
	case fault.Error:
		return c.faulty(rule)
	case fault.ProxyError:
		return result{status: http.StatusBadGateway, page: "<html><head><title>502 Bad Gateway</title></head></html>\n"}
	case fault.TooManyRequests:
		if rule.Delay > 0 {
			c.header.Set("retry-after", seconds(rule.Delay))
		}
		return refuse(http.StatusTooManyRequests, "API rate limit exceeded.").result()
	default:
	}
	before := s.revision
	answer := c.handle()
	s.keep(before)
	if rule.Kind == fault.ErrorAfterApply && answer.status < 300 {
		return c.faulty(rule)
	}
	return answer
}

// handle checks what the token may do and lets the route answer.
func (c *call) handle() result {
	if c.route == nil {
		return notFound().result()
	}
	for _, scope := range c.route.scopes {
		if !c.token.can(scope) {
			return forbidden().result()
		}
	}
	answer := c.route.handle(c)
	c.entry.Applied = answer.status < 300
	return answer
}

func (c *call) faulty(rule fault.Rule) result {
	status, message := rule.Status, rule.Message
	if status == 0 {
		status = http.StatusInternalServerError
	}
	if message == "" {
		message = "Unexpected server-side error"
	}
	return refuse(status, "%s", message).result()
}

// countAgainstLimits counts the request and sets the headers that say how many are left.
func (c *call) countAgainstLimits() *refusal {
	verdict := c.token.counter.Take(c.now)
	c.header.Set("ratelimit-limit", strconv.Itoa(verdict.Limit))
	c.header.Set("ratelimit-remaining", strconv.Itoa(verdict.Remaining))
	c.header.Set("ratelimit-reset", strconv.FormatInt(verdict.Reset.Unix(), 10))
	if verdict.Allowed {
		return nil
	}
	if verdict.RetryAfter > 0 {
		c.header.Set("retry-after", seconds(verdict.RetryAfter))
	}
	return refuse(http.StatusTooManyRequests, "API rate limit exceeded.")
}

// seconds is a duration in whole seconds, rounded up, as HTTP wants it.
func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}

// requestID depends on the seed and the request's number only.
func (s *Simulator) requestID(number uint64) string {
	return uuidFrom(rand.New(rand.NewPCG(s.options.Seed^requestStream, number)))
}

// deliver writes the response, or as much of it as the fault allows.
func (s *Simulator) deliver(w http.ResponseWriter, r *http.Request, c *call, answer result) {
	switch c.decision.Fault.Kind {
	case fault.CutAfterApply:
		s.leave(c)
		reset(w)
		return
	case fault.HangAfterApply:
		<-r.Context().Done()
		return
	default:
	}
	payload, contentType := answer.payload(c.header.Get("x-request-id"))
	kind := c.decision.Fault.Kind
	if kind == fault.TruncatedJSON {
		payload = payload[:len(payload)/2]
	}
	for name, values := range c.header {
		w.Header()[http.CanonicalHeaderKey(name)] = values
	}
	if contentType != "" {
		w.Header().Set("Content-Type", contentType)
		w.Header().Set("Content-Length", strconv.Itoa(len(payload)))
	}
	c.entry.Status = answer.status
	s.leave(c)
	w.WriteHeader(answer.status)
	if kind == fault.ShortBody && len(payload) > 0 {
		_, _ = w.Write(payload[:len(payload)/2])
		if flusher, ok := w.(http.Flusher); ok {
			flusher.Flush()
		}
		panic(http.ErrAbortHandler)
	}
	_, _ = w.Write(payload) // a client that is gone is the client's affair
}

// reset ends the connection without a response: with RST if the connection can be had, else without a word.
func reset(w http.ResponseWriter) {
	if hijacker, ok := w.(http.Hijacker); ok {
		if connection, _, err := hijacker.Hijack(); err == nil {
			if tcp, ok := connection.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
			_ = connection.Close()
			return
		}
	}
	panic(http.ErrAbortHandler)
}
