// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

const (
	// DefaultURL is where DigitalOcean serves its API.
	DefaultURL = "https://api.digitalocean.com/"
	// callTimeout bounds one attempt, answer included.
	callTimeout = 30 * time.Second
	// largestAnswer bounds how much of one answer is read, in bytes: a page of 200 droplets is about 1 MB.
	largestAnswer = 32 << 20
	// PageSize is the most that the API gives in one page.
	PageSize = assumed.PageSize
)

// Options are what a Client needs.
type Options struct {
	// URL is the API's base URL, DefaultURL if it is empty.
	URL       string
	Token     TokenSource
	UserAgent string
	// QPS bounds the client's calls per second, 0 for no bound.
	QPS float64
	// Mode report refuses all calls that write.
	Mode outputs.Mode
	// Transport carries the requests, http.DefaultTransport if it is nil.
	Transport http.RoundTripper
	Clock     clock.Clock
	Metrics   *Metrics
	// Chance spreads calls that have to wait: numbers in [0, 1), those of math/rand if it is nil.
	Chance func() float64
}

// Client makes calls. It is safe for concurrent use.
type Client struct {
	base      *url.URL
	http      *http.Client
	token     TokenSource
	userAgent string
	mode      outputs.Mode
	limiter   *rate.Limiter
	clock     clock.Clock
	metrics   *Metrics
	epochs    epochs
	pacer     *pacer
	witness   witness
}

// New makes a Client. It makes no call. An error is one sentence about the URL.
func New(o Options) (*Client, error) {
	if o.URL == "" {
		o.URL = DefaultURL
	}
	base, err := url.Parse(o.URL)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, fmt.Errorf("the API's URL is %q: it must be of the form https://HOST/", o.URL)
	}
	if base.User != nil { // it may be the token, so that it is not repeated
		return nil, errors.New("the API's URL has a user before its host: it must be of the form https://HOST/")
	}
	if base.Path == "" || base.Path[len(base.Path)-1] != '/' {
		base.Path += "/"
	}
	c := &Client{
		base: base, token: o.Token, userAgent: o.UserAgent, mode: o.Mode, clock: o.Clock, metrics: o.Metrics,
		http: &http.Client{Transport: o.Transport, CheckRedirect: refuseRedirect},
	}
	if c.clock == nil {
		c.clock = clock.RealClock{}
	}
	c.pacer = newPacer(c.clock, o.Chance, o.Metrics)
	if o.QPS > 0 {
		c.limiter = rate.NewLimiter(rate.Limit(o.QPS), 1)
	}
	return c, nil
}

// refuseRedirect keeps the token from going anywhere else. The API does not redirect.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// call is one call.
type call struct {
	method string
	// route is the path with its identifiers replaced, for errors and metrics; path is the real one, relative to the base URL.
	route, path string
	query       url.Values
	// body is encoded as JSON, nil for none; the answer is decoded into answer, nil for none.
	body, answer any
	// atLeast is how urgent the call is, if that is more than its kind and its context say.
	atLeast budget.Priority
}

// failure is the API's own explanation of an answer that is not a success.
type failure struct {
	ID        string `json:"id"`
	Message   string `json:"message"`
	RequestID string `json:"request_id"`
}

// do makes a call, again if that can help and does no harm, and decodes the answer. Every error is an *Error, but for one of ctx or of the token.
func (c *Client) do(ctx context.Context, call call) error {
	if err := c.allowed(ctx, call); err != nil {
		return err
	}
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return fmt.Errorf("%s %s: encoding the request: %w", call.method, call.route, err)
		}
	}
	var last error
	for attempt := 1; ; attempt++ {
		err := c.attempt(ctx, call, body)
		if err == nil {
			return nil
		}
		if errors.Is(err, ErrHeld) {
			return cmp.Or(last, err) // what DigitalOcean said is the better word
		}
		last = err
		if attempt >= attempts || ctx.Err() != nil || ctx.Value(once{}) != nil || !worthAnother(call.method, err) && !c.otherToken(err) {
			return err
		}
		asked := time.Duration(0)
		if until := NotBefore(err); !until.IsZero() {
			asked = until.Sub(c.clock.Now())
		}
		if !c.pause(ctx, backOff(attempt, asked)) {
			return err
		}
	}
}

// allowed returns an error for a write that is not declared, and for all in mode report.
func (c *Client) allowed(ctx context.Context, call call) error {
	switch {
	case call.method == http.MethodGet:
		return nil
	case c.mode == outputs.Report:
		return fmt.Errorf("%s %s: --mode is %s: %w", call.method, call.route, c.mode, outputs.ErrUndeclared)
	}
	_, err := outputs.Allowed(ctx, outputs.DigitalOcean, call.route, call.method)
	return err
}

// attempt makes a call once.
func (c *Client) attempt(ctx context.Context, call call, body []byte) error {
	if c.limiter != nil {
		if err := c.limiter.Wait(ctx); err != nil {
			return err
		}
	}
	if err := c.pacer.admit(ctx, call); err != nil {
		return err
	}
	word := budget.Word{}
	defer func() { c.pacer.heard(word) }()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	request, err := c.request(ctx, call, body)
	if err != nil {
		return err
	}
	began := c.clock.Now()
	response, err := c.http.Do(request)
	if err != nil {
		c.metrics.observe(call, "none", c.clock.Since(began))
		c.witness.failed(ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded))
		return noAnswer(call, !neverConnected(err), unwrapURL(err))
	}
	defer func() { _ = response.Body.Close() }()
	content, err := io.ReadAll(io.LimitReader(response.Body, largestAnswer))
	c.metrics.observe(call, strconv.Itoa(response.StatusCode), c.clock.Since(began))
	c.witness.heard(c.clock.Now(), call, response.StatusCode, nil)
	word = wordOf(response.StatusCode, response.Header, c.clock.Now())
	c.witness.failed(response.StatusCode == http.StatusUnauthorized || response.StatusCode >= http.StatusInternalServerError)
	if response.StatusCode == http.StatusUnauthorized {
		c.epochs.refused()
	}
	switch {
	case response.StatusCode < 200 || response.StatusCode > 299:
		explained := failure{}
		_ = json.Unmarshal(content, &explained) // what is not JSON is not the API's own
		explained.Message = hide(explained.Message, request)
		if ofOneObject(response.StatusCode, explained.Message) {
			word.Limited, word.Until = false, time.Time{}
		}
		said := refusal(call, response.StatusCode, explained, response.Header, c.clock.Now())
		c.witness.heard(c.clock.Now(), call, response.StatusCode, said.kind)
		return said
	case err != nil:
		return noAnswer(call, true, fmt.Errorf("reading the response: %w", err))
	case call.answer == nil:
		return nil
	}
	if err := json.Unmarshal(content, call.answer); err != nil {
		return noAnswer(call, true, fmt.Errorf("the response is not whole: %w", err))
	}
	return nil
}

func (c *Client) request(ctx context.Context, call call, body []byte) (*http.Request, error) {
	target := c.base.ResolveReference(&url.URL{Path: call.path, RawQuery: call.query.Encode()})
	request, err := http.NewRequestWithContext(ctx, call.method, target.String(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", call.method, call.route, err)
	}
	token, err := c.token.Token()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", call.method, call.route, err)
	}
	epoch := c.epochOf(token)
	if call.method != http.MethodGet {
		if err := outputs.Current(ctx, epoch); err != nil {
			return nil, fmt.Errorf("%s %s: %w", call.method, call.route, err)
		}
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("User-Agent", c.userAgent)
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// hide takes the token out of what a server says: one on the way may repeat a request's header in its complaint.
func hide(text string, request *http.Request) string {
	const shortest = 8 // in a shorter one nobody would recognize a token
	_, token, _ := strings.Cut(request.Header.Get("Authorization"), " ")
	if len(token) < shortest {
		return text
	}
	return strings.ReplaceAll(text, token, "(the token)")
}

func requestID(header http.Header, explained failure) string {
	if explained.RequestID != "" {
		return explained.RequestID
	}
	return header.Get("X-Request-Id")
}

// neverConnected reports that a request was not sent, since there was no connection.
func neverConnected(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// unwrapURL takes the URL from an error of net/http: the route says it better.
func unwrapURL(err error) error {
	if wrapped := (*url.Error)(nil); errors.As(err, &wrapped) {
		return wrapped.Err
	}
	return err
}
