// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package finding

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/mooring-dev/mooring/internal/platform/prose"
)

// Component is one installation of a component as it runs. Its JSON form is a contract with programs.
type Component struct {
	Name string `json:"name"`
	// Namespace and Workload are where it runs; Workload is "" if only its Lease was found.
	Namespace string `json:"namespace"`
	Workload  string `json:"workload,omitempty"`
	// Version is the tag of its image, "" if a digest names the image or nothing does.
	Version string `json:"version,omitempty"`
	// Ready and Wanted count its pods.
	Ready  int `json:"ready"`
	Wanted int `json:"wanted"`
	// Leader holds its Lease of leader election, "" if there is none; Renewed is when the leader last renewed it.
	Leader  string     `json:"leader,omitempty"`
	Renewed *time.Time `json:"renewed,omitempty"`
	// Problem is why it does not do its work, "" if it does as far as is known.
	Problem string `json:"problem,omitempty"`
	// Unread is why it is unknown whether it works, "" if it is known.
	Unread string `json:"unread,omitempty"`
	// Absent reports that objects in the cluster need it, and that neither a workload nor a Lease of it was found.
	Absent bool `json:"absent,omitempty"`
	// Token reports that the problem is its token.
	Token bool `json:"-"`
}

// Where is where it runs, for people.
func (c Component) Where() string {
	switch {
	case c.Absent:
		return "not found"
	case c.Workload == "":
		return c.Namespace + ", only its Lease was found"
	}
	return c.Namespace + "/" + c.Workload
}

// Pods is how many of its pods are ready, "" where none are known.
func (c Component) Pods() string {
	if c.Workload == "" {
		return ""
	}
	return fmt.Sprintf("%d/%d", c.Ready, c.Wanted)
}

// NotKept begins why what a component reports may be old.
const NotKept = "not kept up to date: "

// Unkept is why what a component reports of its objects may be old, "" while one works: that none does, or that it is
// unknown whether one runs, for which unread has the reason.
func Unkept(all []Component, name, unread string, now time.Time) string {
	its := slices.DeleteFunc(slices.Clone(all), func(c Component) bool { return c.Name != name })
	works := slices.ContainsFunc(its, func(c Component) bool { return c.Problem+c.Unread == "" })
	switch {
	case works, len(its) == 0 && unread == "":
		return ""
	case len(its) == 0:
		return NotKept + "it is unknown whether " + name + " runs"
	}
	why := NotKept + name + ": " + cmp.Or(its[0].Problem, its[0].Unread)
	if at := its[0].Renewed; at != nil {
		why += ", last seen " + prose.Span(max(0, now.Sub(*at))) + " ago"
	}
	return why
}
