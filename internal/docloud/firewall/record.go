// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package firewall

import (
	"encoding/json"
	"fmt"
	"time"
)

// RecordAnnotation on the Lease of the account: the ID of the cluster's firewall, and a request to make it whose response
// is not known, as JSON.
const RecordAnnotation = "cloud.mooring.dev/firewall"

// TakeOverAnnotation on the Lease of the account: the ID of a firewall that an administrator gives to this cluster
// although another is recorded. It counts once the recorded one does not exist any more.
const TakeOverAnnotation = "cloud.mooring.dev/firewall-take-over"

// Record is what is recorded of the cluster's firewall, by the controller's account alone. Its zero value is no record.
type Record struct {
	// ID is that of the firewall, empty for none so far.
	ID string `json:"id,omitempty"`
	// Attempt is a request to make it whose response is not known, nil for none.
	Attempt *Attempt `json:"attempt,omitempty"`
	// TakeOver is what [TakeOverAnnotation] says.
	TakeOver string `json:"-"`
}

// Attempt is a request to make a firewall: its name, and when it was sent first.
type Attempt struct {
	Name string    `json:"name"`
	At   time.Time `json:"at"`
}

// clocksDiffer is by how much the clock of the machine that noted a request may be ahead of DigitalOcean's.
const clocksDiffer = 5 * time.Minute

// ParseRecord reads the annotations of the account's Lease.
func ParseRecord(annotations map[string]string) (Record, error) {
	r := Record{TakeOver: annotations[TakeOverAnnotation]}
	if text := annotations[RecordAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &r); err != nil {
			return Record{}, fmt.Errorf("annotation %s of the account's Lease cannot be read, delete it: %w", RecordAnnotation, err)
		}
	}
	return r, nil
}

// Format is the value of [RecordAnnotation], empty for no record.
func (r Record) Format() (string, error) {
	if r.ID == "" && r.Attempt == nil {
		return "", nil
	}
	text, err := json.Marshal(r)
	if err != nil {
		return "", fmt.Errorf("encoding the record of the firewall: %w", err)
	}
	return string(text), nil
}

// Attempting is the record before a request to make the firewall is sent.
func (r Record) Attempting(name string, now time.Time) Record {
	if r.Attempt == nil || r.Attempt.Name != name {
		r.Attempt = &Attempt{Name: name, At: now.UTC().Truncate(time.Second)}
	}
	return r
}

// Holds reports whether exactly this firewall is recorded.
func (r Record) Holds(o Observed) bool { return r.ID == o.ID && r.Attempt == nil }

// Whose reports whether a firewall is the cluster's, and if not why, for one that has the name:
//
//	it is recorded, or an administrator gives it     it is
//	it was made since a request under its name that  it is, unless it covers other droplets only: nobody lived to see
//	is recorded                                      the response
//	another one is recorded                          it is not: somebody made it, or another cluster
//	nothing is recorded                              what [Ours] says, once: an earlier version or upstream made it
func (r Record) Whose(o Observed, c Config) (bool, string) {
	attempted := r.Attempt != nil && r.Attempt.Name == o.Name &&
		(o.CreatedAt.IsZero() || !o.CreatedAt.Before(r.Attempt.At.Add(-clocksDiffer)))
	switch {
	case o.ID == r.ID, o.ID == r.TakeOver:
		return true, ""
	case attempted, r.ID == "" && o.Name == c.Name:
		return Ours(o, c)
	}
	return false, fmt.Sprintf("%s has the name of this cluster's firewall, but that is %s: it is left alone; rename it, choose another name, or "+
		"hand it over: kubectl -n kube-system annotate lease digitalocean-cloud-controller-manager-account %s=%s",
		o, r.ID, TakeOverAnnotation, o.ID)
}
