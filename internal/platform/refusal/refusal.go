// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package refusal gives a refusal of the API server a reason where it has none.
package refusal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// longestRefusal bounds what is read of a refusal to see whether it has a message.
const longestRefusal = 64 << 10

// Explain gives a refusal of the API server, or of a proxy before it, a message if it has none. client-go has no words
// of its own for some status codes, such as 403 and 410, so that an error would end where its reason should begin. It
// is for rest.Config.Wrap.
func Explain(next http.RoundTripper) http.RoundTripper { return explaining{next} }

type explaining struct{ http.RoundTripper }

// WrappedRoundTripper implements k8s.io/apimachinery's net.RoundTripperWrapper.
func (e explaining) WrappedRoundTripper() http.RoundTripper { return e.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (e explaining) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := e.RoundTripper.RoundTrip(request)
	if err != nil || response.StatusCode < http.StatusBadRequest {
		return response, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, longestRefusal))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reading the API server's refusal, %s: %w", response.Status, err), response.Body.Close())
	}
	if text, changed := explained(body, response.Status); changed {
		if body = text; text[0] != '{' {
			response.Header.Set("Content-Type", "text/plain")
		}
		response.Header.Del("Content-Length")
		response.ContentLength = -1
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(body), response.Body), response.Body}
	return response, nil
}

// explained is the body of a refusal with a message, if it has none.
func explained(body []byte, status string) (text []byte, changed bool) {
	message := "the API server responded with " + status + " and no message"
	if len(bytes.TrimSpace(body)) == 0 {
		return []byte(message), true
	}
	var object metav1.Status
	if json.Unmarshal(body, &object) != nil || object.Kind != "Status" || object.Message != "" {
		return nil, false
	}
	object.Message = message
	text, err := json.Marshal(object)
	return text, err == nil
}
