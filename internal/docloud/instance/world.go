// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// World is all that is known when the existence of Nodes is decided. Everything in it that came from DigitalOcean MUST have been read with one
// and the same token: anyone who changes the token drops what was read with the old one.
type World struct {
	Now time.Time
	// Recorded is the account that this cluster was bound to, its zero value for none yet.
	Recorded Account
	// Current is the account of the token in use, its zero value if it could not be read.
	Current Account
	// Nodes are all Nodes of the cluster.
	Nodes []*corev1.Node
	// Known are IDs of droplets that were seen to be Nodes of this cluster, those of Nodes that exist included or not.
	Known []int
	// List is the newest list of droplets.
	List List
	// Answers are what GETs by ID answered, by droplet ID.
	Answers map[int]Answer
	// Shown are the droplets that DigitalOcean has shown, in a list or by ID, as they were then, by droplet ID.
	Shown map[int]Droplet
	// Missed says how many complete lists in a row lacked a droplet, none sooner than Config.ProofEvery after the one before, by droplet ID.
	// Lists do not count before the droplet was shown, or before its Node was [Established].
	Missed map[int]int
	// Memory is what the last decision asked to remember.
	Memory Memory
}

// Account is whose droplets a token sees: the user, and the team if the token is one of a team.
type Account struct {
	UUID string `json:"uuid"`
	Team string `json:"team,omitempty"`
}

// SameOwner reports whether two tokens see the same droplets. DigitalOcean tells the user of a token and, if it is a team's, the team; droplets
// belong to the team then, so that a colleague's token is as good. The same user in another team, or in none, sees others.
func (a Account) SameOwner(b Account) bool { return a == b || a.Team != "" && a.Team == b.Team }

func (a Account) String() string {
	if a.Team == "" {
		return a.UUID
	}
	return a.UUID + " (team " + a.Team + ")"
}

// List is what the lists of droplets said: the ordinary one and that of GPU droplets together.
type List struct {
	// At is when the oldest of its pages was asked for, the zero time if there is no list.
	At time.Time
	// Complete reports that every page of both lists arrived. Only what is in a list that is not complete counts, never what is missing.
	Complete bool
	// Droplets are the IDs in it.
	Droplets []int
}

// Answer is what one GET by ID said.
type Answer struct {
	// At is when it was asked for.
	At time.Time
	// Outcome is what was answered; Problem says what went wrong if that is [AnswerFailed].
	Outcome Outcome
	Problem string
}

// Outcome is an answer in one word.
type Outcome string

// The outcomes of a GET by ID. Everything that is neither 200 nor 404 is a failure, a refused token too.
const (
	AnswerFound    Outcome = "found"
	AnswerNotFound Outcome = "not found"
	AnswerFailed   Outcome = "failed"
)

// Memory is what a decision asks to remember until the next one. Its JSON form may outlive the process and MUST stay readable.
type Memory struct {
	// Gone are the droplets that were declared gone within the window, in ascending order.
	Gone []Loss `json:"gone,omitempty"`
}

// Loss is one droplet that was declared gone, and when first.
type Loss struct {
	Droplet int       `json:"droplet"`
	At      time.Time `json:"at"`
}

// Config bounds what a decision may do.
type Config struct {
	// Window and the two bounds say how many droplets may be declared gone within Window: the larger of AtLeast and Percent of those known.
	Window  time.Duration
	AtLeast int
	Percent int
	// ProofLists is how many complete lists, one every ProofEvery at the most, must lack a droplet that goes alongside these bounds: together
	// with its own 404 that is better proof than time. 0 is for no such thing.
	ProofLists int
	ProofEvery time.Duration
	// MaxListAge and MaxAnswerAge are how old a list and a 404 may be to be believed.
	MaxListAge, MaxAnswerAge time.Duration
}

// DefaultConfig returns the bounds of the product: a tenth of the cluster and five machines at least per five minutes. An autoscaler that
// removes a few machines at a time never notices; beyond that a droplet goes when three lists have lacked it for a minute.
func DefaultConfig() Config {
	return Config{Window: 5 * time.Minute, AtLeast: 5, Percent: 10, ProofLists: 3, ProofEvery: 30 * time.Second, MaxListAge: 5 * time.Minute, MaxAnswerAge: 2 * time.Minute}
}

// allowance is how many of known droplets may go within a window.
func (c Config) allowance(known int) int { return max(c.AtLeast, (known*c.Percent+99)/100) }
