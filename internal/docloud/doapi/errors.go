// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// Kinds of errors, for errors.Is. Everything else is a failure that may pass.
var (
	// ErrNotFound is the API's own 404 for an object.
	ErrNotFound = errors.New("not found")
	// ErrUnauthorized is a token that the API does not know (401).
	ErrUnauthorized = errors.New("the token is not accepted")
	// ErrForbidden is a token without the scope that the call needs (403).
	ErrForbidden = errors.New("the token lacks a scope")
	// ErrBusy is a load balancer that is processing an earlier change (403 or 409): try again later.
	ErrBusy = errors.New("busy with an earlier change")
	// ErrRateLimited is one of the API's two limits (429).
	ErrRateLimited = errors.New("rate limited")
	// ErrTooSoon is a limit of one object, which says nothing of other calls (429): a volume has one snapshot in ten minutes.
	ErrTooSoon = errors.New("too soon after the last one")
	// ErrPending is an action on a volume or droplet that has another one under way (422): it is taken later.
	ErrPending = errors.New("busy with another action")
	// ErrHeld is a call that was not made, because too many were or DigitalOcean asked to wait. It is an ErrRateLimited too.
	ErrHeld = fmt.Errorf("%w, so that the call was not made", ErrRateLimited)
	// ErrRefused is a request that the API understood and will not take as it is (400, 409, 412, 422, and 403 for a limit of the account).
	ErrRefused = errors.New("refused")
	// ErrAmbiguous is a write of which no response arrived: it may have been made.
	ErrAmbiguous = errors.New("no response arrived, the change may have been made anyway")
)

// Error is an answer of the API that is not a success, or none at all.
type Error struct {
	// Method and Route name the call; identifiers in the route are replaced.
	Method, Route string
	// Status is the HTTP status, 0 if no response arrived.
	Status int
	// Message is the API's own text, or the failure of the connection. It never contains the token.
	Message string
	// RequestID is what DigitalOcean's support asks for, empty if there is none.
	RequestID string
	// NotBefore is until when the API asks to wait with the next call, the zero time if it does not ask; never later than an upper bound.
	NotBefore time.Time
	kind      error
}

// NotBefore returns until when the API asks to wait, by whichever of its errors is in err; the zero time if it does not ask.
func NotBefore(err error) time.Time {
	if answered, ok := errors.AsType[*Error](err); ok {
		return answered.NotBefore
	}
	return time.Time{}
}

// Error implements error.
func (e *Error) Error() string {
	text := fmt.Sprintf("%s %s: ", e.Method, e.Route)
	if e.Status != 0 {
		text += fmt.Sprintf("%d ", e.Status)
	}
	text += strings.TrimSuffix(e.Message, ".")
	if e.kind != nil && !errors.Is(e.kind, ErrRefused) {
		text += " (" + e.kind.Error() + ")"
	}
	if e.RequestID != "" {
		text += ", request " + e.RequestID
	}
	return text
}

// Unwrap returns the kind of the error.
func (e *Error) Unwrap() error { return e.kind }

// ofOneObject reports whether an answer of 429 is about one object, so that other calls may go on.
func ofOneObject(status int, message string) bool {
	return status == http.StatusTooManyRequests && strings.Contains(message, assumed.RefusedTooSoon)
}

// kindOf sorts an answer by its status and text. A 404 without the API's own body is somebody else's: a proxy, or a wrong base URL.
func kindOf(status int, id, message string) error {
	switch status {
	case http.StatusUnauthorized:
		return ErrUnauthorized
	case http.StatusForbidden:
		switch {
		case strings.Contains(message, assumed.RefusedBusy):
			return ErrBusy
		case strings.Contains(message, assumed.RefusedLimit):
			return ErrRefused
		}
		return ErrForbidden
	case http.StatusNotFound:
		if id == "not_found" {
			return ErrNotFound
		}
	case http.StatusTooManyRequests:
		if ofOneObject(status, message) {
			return ErrTooSoon
		}
		return ErrRateLimited
	case http.StatusBadRequest, http.StatusConflict, http.StatusPreconditionFailed, http.StatusUnprocessableEntity:
		switch {
		case strings.Contains(message, assumed.RefusedBusy):
			return ErrBusy
		case strings.Contains(message, assumed.RefusedPending):
			return ErrPending
		}
		return ErrRefused
	}
	return nil
}

// refusal makes an Error of an answer that is not a success.
func refusal(c call, status int, body failure, header http.Header, now time.Time) *Error {
	e := &Error{
		Method: c.method, Route: c.route, Status: status, Message: body.Message, RequestID: requestID(header, body),
		kind: kindOf(status, body.ID, body.Message),
	}
	if wait := retryAfter(status, header, now); wait > 0 {
		e.NotBefore = now.Add(wait)
	}
	if e.Message == "" {
		e.Message = strings.ToLower(http.StatusText(status)) + ", without the API's own explanation"
	}
	// A server that failed on the way may have done it all the same.
	if status >= http.StatusInternalServerError && c.method != http.MethodGet {
		e.kind = ErrAmbiguous
	}
	return e
}

// noAnswer makes an Error of a call that ended without a whole answer. A request that never left made no change; it cannot be told apart from
// one whose answer was lost, except where the connection was never there.
func noAnswer(c call, sent bool, err error) *Error {
	e := &Error{Method: c.method, Route: c.route, Message: err.Error()}
	if sent && c.method != http.MethodGet {
		e.kind = ErrAmbiguous
	}
	return e
}
