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
	"strconv"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
)

// mostPages bounds a list, so that a server which always has a next page does not keep a program busy for ever.
const mostPages = 500

// page is what every list answers alongside its items.
type page struct {
	Links struct {
		Pages struct {
			Next string `json:"next"`
		} `json:"pages"`
	} `json:"links"`
	Meta struct {
		Total int `json:"total"`
	} `json:"meta"`
}

// errTooManyPages is a list without an end.
var errTooManyPages = errors.New("the list has no end")

// lister says how one kind of list is read: A is the response of a page, W an item as the API writes it, K what tells
// items apart, and T the item that callers get.
type lister[A, W any, K comparable, T any] struct {
	items     func(A) ([]W, page)
	key       func(W) K
	translate func(W) T
}

// all reads all pages, each item once. It is all of them or an error.
//
// Pages are read one after the other while the account changes: an item that moves from a page not yet read to one that
// was is missed. Then there are fewer items than the last page's total says, and the list is read again; if it never
// adds up it is an error, since what a list lacks is acted on.
func (l lister[A, W, K, T]) all(ctx context.Context, c *Client, path string, query url.Values) ([]T, error) {
	const readings = 3
	got, total := 0, 0
	for range readings {
		found, says, err := l.pages(ctx, c, path, query)
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
func (l lister[A, W, K, T]) pages(
	ctx context.Context, c *Client, path string, query url.Values,
) (found []T, total int, err error) {
	q, seen := maps.Clone(query), map[K]bool{}
	if q == nil {
		q = url.Values{}
	}
	q.Set("per_page", strconv.Itoa(PageSize))
	for number := 1; number <= mostPages; number++ {
		var answer A
		q.Set("page", strconv.Itoa(number))
		request := call{method: http.MethodGet, route: path, path: path, query: q, answer: &answer}
		if number > 1 {
			request.atLeast = budget.Change // without it the pages before would have been read in vain
		}
		if err := c.do(ctx, request); err != nil {
			return nil, 0, err
		}
		items, info := l.items(answer)
		for _, item := range items {
			if key := l.key(item); !seen[key] {
				seen[key], found = true, append(found, l.translate(item))
			}
		}
		if info.Links.Pages.Next == "" {
			return found, info.Meta.Total, nil
		}
	}
	return nil, 0, &Error{Method: http.MethodGet, Route: path, Message: errTooManyPages.Error()}
}
