// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
)

// mostPages bounds a list, so that a server which always has a next page does not keep a program busy for ever.
const mostPages = 500

// listed is a page of a list: the items are under the name of their kind, and every list has the rest.
type listed[W any] struct {
	Certificates  []W `json:"certificates"`
	Droplets      []W `json:"droplets"`
	Firewalls     []W `json:"firewalls"`
	LoadBalancers []W `json:"load_balancers"`
	Regions       []W `json:"regions"`
	Sizes         []W `json:"sizes"`
	Snapshots     []W `json:"snapshots"`
	Volumes       []W `json:"volumes"`

	Links struct {
		Pages struct {
			Next string `json:"next"`
		} `json:"pages"`
	} `json:"links"`
	Meta struct {
		Total int `json:"total"`
	} `json:"meta"`
}

func (l listed[W]) items() []W {
	return slices.Concat(l.Certificates, l.Droplets, l.Firewalls, l.LoadBalancers, l.Regions, l.Sizes, l.Snapshots, l.Volumes)
}

// item is an item of a list as the API writes it: what tells it apart, and what callers get of it.
type item[T any] interface {
	key() string
	translate() T
}

// errTooManyPages is a list without an end.
var errTooManyPages = errors.New("the list has no end")

// list reads all pages of a list, each item once. It is all of them or an error.
//
// Pages are read one after the other while the account changes: an item that moves from a page not yet read to one that
// was is missed. Then there are fewer items than the last page's total says, and the list is read again; if it never
// adds up it is an error, since what a list lacks is acted on.
func list[W item[T], T any](ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	const readings = 3
	got, total := 0, 0
	for range readings {
		found, says, err := pages[W](ctx, c, path, query)
		if err != nil {
			return nil, err
		}
		if got, total = len(found), says; got >= total {
			return found, nil
		}
	}
	return nil, &Error{
		Method: http.MethodGet, Route: path,
		Message: fmt.Sprintf("the pages hold %d items and the list says it has %d", got, total),
	}
}

// pages reads the pages once, and returns how many items the last one says there are.
func pages[W item[T], T any](ctx context.Context, c *Client, path string, query url.Values) (found []T, total int, err error) {
	q, seen := maps.Clone(query), map[string]bool{}
	if q == nil {
		q = url.Values{}
	}
	q.Set("per_page", strconv.Itoa(PageSize))
	for number := 1; number <= mostPages; number++ {
		var answer listed[W]
		q.Set("page", strconv.Itoa(number))
		request := call{method: http.MethodGet, route: path, path: path, query: q, answer: &answer}
		if number > 1 {
			request.atLeast = budget.Change // without it the pages before would have been read in vain
		}
		if err := c.do(ctx, request); err != nil {
			return nil, 0, err
		}
		for _, item := range answer.items() {
			if key := item.key(); !seen[key] {
				seen[key], found = true, append(found, item.translate())
			}
		}
		if answer.Links.Pages.Next == "" {
			return found, answer.Meta.Total, nil
		}
	}
	return nil, 0, &Error{Method: http.MethodGet, Route: path, Message: errTooManyPages.Error()}
}
