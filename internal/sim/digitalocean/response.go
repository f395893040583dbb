// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

// result is an answer before it is written. Its body must not change any more: it is encoded after the lock is released.
type result struct {
	status  int
	body    any    // JSON, if not nil
	page    string // HTML, if not empty
	refused *refusal
}

// payload returns the body and its type, both empty if there is none.
func (r result) payload(requestID string) (body []byte, contentType string) {
	switch {
	case r.page != "":
		return []byte(r.page), "text/html"
	case r.refused != nil && r.refused.body == nil:
		r.body = map[string]string{"id": r.refused.id, "message": r.refused.message, "request_id": requestID}
	case r.refused != nil:
		r.body = r.refused.body
	case r.body == nil:
		return nil, ""
	}
	encoded, err := json.Marshal(r.body)
	if err != nil {
		panic(fmt.Errorf("encoding a response: %w", err)) // our own types can always be encoded
	}
	return encoded, "application/json; charset=utf-8"
}

// refusal is why a request is not applied. It is an error for the callers of the Go API.
type refusal struct {
	status  int
	id      string
	message string
	body    any // instead of the usual {id, message}
}

// Error returns the sentence that a client would see.
func (r *refusal) Error() string { return fmt.Sprintf("%d %s: %s", r.status, r.id, r.message) }

func (r *refusal) result() result { return result{status: r.status, refused: r} }

// refuse returns a refusal; its id follows from the status, as DigitalOcean's do.
func refuse(status int, format string, args ...any) *refusal {
	ids := map[int]string{
		http.StatusBadRequest: "bad_request", http.StatusUnauthorized: "unauthorized", http.StatusForbidden: "forbidden",
		http.StatusNotFound: "not_found", http.StatusConflict: "conflict", http.StatusUnprocessableEntity: "unprocessable_entity",
		http.StatusTooManyRequests: "too_many_requests", http.StatusServiceUnavailable: "service_unavailable",
	}
	id, ok := ids[status]
	if !ok {
		id = "server_error"
	}
	return &refusal{status: status, id: id, message: fmt.Sprintf(format, args...)}
}

// invalid is a refusal with 422.
func invalid(format string, args ...any) *refusal {
	return refuse(http.StatusUnprocessableEntity, format, args...)
}

func notFound() *refusal {
	return refuse(http.StatusNotFound, "The resource you were accessing could not be found.")
}

func forbidden() *refusal {
	return refuse(http.StatusForbidden, "You are not authorized to perform this operation")
}

func ok(body any) result { return result{status: http.StatusOK, body: body} }

func noContent() result { return result{status: http.StatusNoContent} }

// decode reads the request's body. Fields that are not known are ignored, as DigitalOcean does.
func (c *call) decode(into any) *refusal {
	if err := json.Unmarshal(c.body, into); err != nil {
		return refuse(http.StatusBadRequest, "error parsing request body: %v", err)
	}
	return nil
}

// can reports whether the request's token has a scope.
func (c *call) can(scope string) bool { return c.token.can(scope) }

// whenSeenByGet is the time as of which GET by ID sees the world; whenListed is the same for lists.
func (c *call) whenSeenByGet() time.Time { return c.now.Add(-c.sim.consistency.Get) }
func (c *call) whenListed() time.Time    { return c.now.Add(-c.sim.consistency.List) }

// listing answers with one page of values. show makes of each what the client sees.
func listing[V any](c *call, key string, values iter.Seq[V], show func(V) any) result {
	page, perPage, refused := c.pageWanted()
	if refused != nil {
		return refused.result()
	}
	all := slices.Collect(values)
	if c.sim.options.NewestFirst {
		slices.Reverse(all)
	}
	all = slices.DeleteFunc(all, func(V) bool { return c.leavesOut(fault.HideItems) })
	total := len(all)
	start := min((page-1)*perPage, total)
	items := make([]any, 0, min(perPage, total-start))
	for _, value := range all[start:min(start+perPage, total)] {
		if !c.leavesOut(fault.OmitItems) {
			items = append(items, show(value))
		}
	}
	return ok(map[string]any{
		key:     items,
		"links": c.links(page, perPage, total),
		"meta":  map[string]int{"total": total},
	})
}

// leavesOut reports whether a fault of this kind leaves the next item out.
func (c *call) leavesOut(kind fault.Kind) bool {
	rule := c.decision.Fault
	if rule.Kind != kind {
		return false
	}
	fraction := rule.Fraction
	if fraction == 0 {
		fraction = 0.5
	}
	return c.decision.Random.Float64() < fraction
}

// pageWanted reads page (from 1, default 1) and per_page (1 to 200, default 20). Anything else is refused (assumed:
// DigitalOcean documents the bounds and not what it does beyond them).
func (c *call) pageWanted() (page, perPage int, refused *refusal) {
	page, perPage = 1, assumed.PageSizeDefault
	for _, want := range []struct {
		name string
		into *int
		most int
	}{{"page", &page, 1 << 30}, {"per_page", &perPage, assumed.PageSize}} {
		text := c.query.Get(want.name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 || n > want.most {
			return 0, 0, invalid("%s must be between 1 and %d, not %q", want.name, want.most, text)
		}
		*want.into = n
	}
	return page, perPage, nil
}

// links returns the links to other pages, none if there is only one page.
func (c *call) links(page, perPage, total int) map[string]any {
	last := max(1, (total+perPage-1)/perPage)
	pages := map[string]string{}
	if page > 1 {
		pages["first"] = c.pageURL(1, perPage)
		pages["prev"] = c.pageURL(min(page-1, last), perPage)
	}
	if page < last {
		pages["next"] = c.pageURL(page+1, perPage)
		pages["last"] = c.pageURL(last, perPage)
	}
	if len(pages) == 0 {
		return map[string]any{}
	}
	return map[string]any{"pages": pages}
}

func (c *call) pageURL(page, perPage int) string {
	query := maps.Clone(c.query)
	query.Set("page", strconv.Itoa(page))
	query.Set("per_page", strconv.Itoa(perPage))
	return c.base + c.path + "?" + query.Encode()
}

// rfc3339 is how DigitalOcean writes times.
func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
