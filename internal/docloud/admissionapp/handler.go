// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package admissionapp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
)

const (
	// path is the webhook's. It MUST NOT change: webhook configurations of clusters name it.
	path = "/lb-service"
	// largestReview bounds a request, in bytes: twice the 1.5 MiB that etcd takes for an object, twice over.
	largestReview = 6 << 20
	// reserve is what is kept of the API server's own timeout for the way back.
	reserve = 500 * time.Millisecond
	// mostWarnings bounds what people are told at once.
	mostWarnings = 10
)

// handler answers the API server.
type handler struct {
	cluster loadbalancer.Cluster
	// ask is nil if DigitalOcean cannot be asked.
	ask     func(ctx context.Context, q admission.Question) admission.Answer
	metrics *Metrics
	clock   clock.PassiveClock
	log     logr.Logger
}

// ServeHTTP implements http.Handler. What cannot be read at all is 400, by which the API server goes on as its failurePolicy says.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	began := h.clock.Now()
	request, err := read(w, r)
	if err != nil {
		h.metrics.requests.WithLabelValues(outcomeUnreadable).Inc()
		h.log.Info("A request cannot be read", "error", err.Error())
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	ctx, cancel := withDeadline(r.Context(), r.URL.Query().Get("timeout"))
	defer cancel()
	response := h.review(ctx, request)
	h.metrics.seconds.Observe(h.clock.Since(began).Seconds())
	answer := admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"}, Response: response,
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(answer); err != nil {
		h.log.V(1).Info("A response could not be sent", "error", err.Error())
	}
}

// read returns what the API server asks.
func read(w http.ResponseWriter, r *http.Request) (*admissionv1.AdmissionRequest, error) {
	if r.Method != http.MethodPost {
		return nil, fmt.Errorf("the method is %s, it must be POST", r.Method)
	}
	content, err := io.ReadAll(http.MaxBytesReader(w, r.Body, largestReview))
	if err != nil {
		return nil, fmt.Errorf("reading the request: %w", err)
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(content, &review); err != nil {
		return nil, fmt.Errorf("the request is not an AdmissionReview: %w", err)
	}
	if want := admissionv1.SchemeGroupVersion.String(); review.APIVersion != want || review.Kind != "AdmissionReview" || review.Request == nil {
		return nil, fmt.Errorf("the request is %s of %s, it must be AdmissionReview of %s with a request", review.Kind, review.APIVersion, want)
	}
	if review.Request.UID == "" {
		return nil, errors.New("the request has no UID")
	}
	return review.Request, nil
}

// withDeadline keeps to what the API server says of its own timeout (query parameter timeout), so that it hears an answer.
func withDeadline(ctx context.Context, said string) (context.Context, context.CancelFunc) {
	timeout, err := time.ParseDuration(said)
	if err != nil || timeout <= 2*reserve {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout-reserve)
}

// review decides, and tells.
func (h *handler) review(ctx context.Context, request *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	log := h.log.WithValues("namespace", request.Namespace, "service", request.Name, "operation", request.Operation, "user", request.UserInfo.Username)
	decision, err := h.decide(ctx, request)
	if err != nil {
		h.metrics.requests.WithLabelValues(outcomeUnreadable).Inc()
		log.Info("A Service cannot be read and is allowed", "error", err.Error())
		return &admissionv1.AdmissionResponse{UID: request.UID, Allowed: true, Warnings: []string{"the Service was not validated: " + err.Error()}}
	}
	response := &admissionv1.AdmissionResponse{UID: request.UID, Allowed: decision.Allowed(), Warnings: told(decision.Warnings)}
	outcome := outcomeAllowed
	switch {
	case !response.Allowed:
		outcome = outcomeRefused
		response.Result = &metav1.Status{Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: decision.Message()}
		log.Info("Refused a Service", "reason", decision.Message())
	case len(response.Warnings) > 0:
		outcome = outcomeWarned
		log.V(1).Info("Allowed a Service with warnings", "warnings", decision.Warnings)
	default:
		log.V(2).Info("Allowed a Service")
	}
	h.metrics.requests.WithLabelValues(outcome).Inc()
	return response
}

// told are the warnings that are given to people.
func told(warnings []string) []string {
	if len(warnings) <= mostWarnings {
		return warnings
	}
	return append(slices.Clip(warnings[:mostWarnings]), fmt.Sprintf("and %d more", len(warnings)-mostWarnings))
}

func (h *handler) decide(ctx context.Context, request *admissionv1.AdmissionRequest) (admission.Decision, error) {
	if request.Resource.Group != "" || request.Resource.Resource != "services" {
		return admission.Decision{}, nil
	}
	review := admission.Request{
		Operation: request.Operation, Subresource: request.SubResource, User: request.UserInfo.Username, Cluster: h.cluster,
	}
	var err error
	if review.New, err = decode(request.Object); err != nil {
		return admission.Decision{}, err
	}
	if review.Old, err = decode(request.OldObject); err != nil {
		return admission.Decision{}, err
	}
	decision := admission.Review(review)
	if decision.Ask == nil || h.ask == nil {
		return decision, nil
	}
	answer := h.ask(ctx, *decision.Ask)
	h.metrics.questions.WithLabelValues(string(answer.Verdict)).Inc()
	return decision.With(answer), nil
}

// decode reads a Service, nil for none.
func decode(raw runtime.RawExtension) (*corev1.Service, error) {
	if len(raw.Raw) == 0 || string(raw.Raw) == "null" {
		return nil, nil
	}
	s := &corev1.Service{}
	if err := json.Unmarshal(raw.Raw, s); err != nil {
		return nil, fmt.Errorf("reading the Service: %w", err)
	}
	return s, nil
}
