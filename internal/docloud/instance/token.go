// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ConditionTokenHealthy DigitalOcean accepts the token for every call, and it belongs to the cluster's account. If False, the message says
// what is wrong and what to do.
const ConditionTokenHealthy = "TokenHealthy"

// TokenReason says in one word the token's health. It is the reason of a condition and the label of a metric, and MUST NOT change.
type TokenReason string

// The reasons. All but TokenAccepted need a person.
const (
	// TokenAccepted of TokenHealthy=True: DigitalOcean accepts it for every call, and it belongs to the cluster's account.
	TokenAccepted TokenReason = "Accepted"
	// TokenRefused of TokenHealthy=False: DigitalOcean responds with status 401.
	TokenRefused TokenReason = "Refused"
	// TokenAnotherAccount of TokenHealthy=False: it belongs to another account than the cluster.
	TokenAnotherAccount TokenReason = "AnotherAccount"
	// TokenScopeMissing of TokenHealthy=False: a call failed with status 403, because the token lacks a scope.
	TokenScopeMissing TokenReason = "ScopeMissing"
	// TokenNothingVisible of TokenHealthy=False: it belongs to the right account and shows none of the cluster's droplets.
	TokenNothingVisible TokenReason = "NothingVisible"
)

// TokenReasons are all reasons, in the order of their weight.
func TokenReasons() []TokenReason {
	return []TokenReason{TokenRefused, TokenAnotherAccount, TokenScopeMissing, TokenNothingVisible, TokenAccepted}
}

// TokenAnswers is what DigitalOcean's answers to any calls say of the token.
type TokenAnswers struct {
	// Asked reports that there was an answer that says something of it.
	Asked bool
	// Refused reports that the last of these was that the token is not accepted.
	Refused bool
	// Forbidden are the calls that were answered last that a scope is missing, as METHOD ROUTE in ascending order.
	Forbidden []string
}

// TokenHealth is the token's health.
type TokenHealth struct {
	Reason TokenReason
	// Message is one sentence: what is wrong and what to do.
	Message string
}

// Healthy reports that nobody needs to act.
func (h TokenHealth) Healthy() bool { return h.Reason == TokenAccepted }

// JudgeToken says the token's health: by the answers, and by whether what it sees is this cluster's (of a Plan, its Trust and Message). That
// DigitalOcean does not respond, or cannot be relied on for another reason, says nothing of the token. It is false if nothing is known of it.
func JudgeToken(answers TokenAnswers, trust Trust, message string) (TokenHealth, bool) {
	switch {
	case !answers.Asked:
		return TokenHealth{}, false
	case answers.Refused:
		return TokenHealth{TokenRefused, "DigitalOcean does not accept the token, it is wrong, expired or revoked: put another one into its Secret"}, true
	case trust == AnotherAccount:
		return TokenHealth{TokenAnotherAccount, message}, true
	case len(answers.Forbidden) > 0:
		return TokenHealth{TokenScopeMissing, fmt.Sprintf("the token lacks the scope for %s: give it the scopes that the documentation lists",
			strings.Join(answers.Forbidden, ", "))}, true
	case trust == NothingVisible:
		return TokenHealth{TokenNothingVisible, message}, true
	default:
		return TokenHealth{TokenAccepted, "DigitalOcean accepts the token"}, true
	}
}

// Condition returns the condition that is to be recorded, and whether it says anything else than the one that is: another status, reason or
// message. Its time is when the reason began, to the second; a message may change while it stays.
func (h TokenHealth) Condition(before *metav1.Condition, now time.Time) (metav1.Condition, bool) {
	c := metav1.Condition{
		Type: ConditionTokenHealthy, Status: metav1.ConditionFalse, Reason: string(h.Reason), Message: h.Message,
		LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
	}
	if h.Healthy() {
		c.Status = metav1.ConditionTrue
	}
	if before == nil {
		return c, true
	}
	if before.Status == c.Status && before.Reason == c.Reason {
		c.LastTransitionTime = before.LastTransitionTime
	}
	return c, before.Status != c.Status || before.Reason != c.Reason || before.Message != c.Message
}
