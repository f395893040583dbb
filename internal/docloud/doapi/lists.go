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

// list reads all pages. answer is where each page is decoded into, and collect takes its items and says how many distinct ones there are so far.
//
// Pages are read one after the other while the account changes: an item that moves from a page not yet read to one that was is missed. Then
// there are fewer items than the last page's total says, and the list is read again; if it never adds up it is an error, since what
// a list lacks is acted on.
func (c *Client) list(ctx context.Context, path string, query url.Values, begin func() (answer any, info *page, collect func() int)) error {
	const readings = 3
	var got, total int
	for range readings {
		answer, info, collect := begin()
		var err error
		if got, total, err = c.pages(ctx, path, query, answer, info, collect); err != nil {
			return err
		}
		if got >= total {
			return nil
		}
	}
	return &Error{Method: http.MethodGet, Route: path, Message: fmt.Sprintf("the pages hold %d items and the list says it has %d", got, total)}
}

func (c *Client) pages(ctx context.Context, path string, query url.Values, answer any, info *page, collect func() int) (got, total int, err error) {
	q := maps.Clone(query)
	if q == nil {
		q = url.Values{}
	}
	q.Set("per_page", strconv.Itoa(PageSize))
	for number := 1; number <= mostPages; number++ {
		q.Set("page", strconv.Itoa(number))
		*info = page{}
		page := call{method: http.MethodGet, route: path, path: path, query: q, answer: answer}
		if number > 1 {
			page.atLeast = budget.Change // without it the pages before would have been read in vain
		}
		if err := c.do(ctx, page); err != nil {
			return 0, 0, err
		}
		got, total = collect(), info.Meta.Total
		if info.Links.Pages.Next == "" {
			return got, total, nil
		}
	}
	return 0, 0, &Error{Method: http.MethodGet, Route: path, Message: errTooManyPages.Error()}
}
