// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"slices"
	"strconv"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
)

// content is an object as it is sent to the API server: as JSON, without what only the API server sets, and with the hash of the rest.
func content(object any) map[string]any {
	raw, err := json.Marshal(object)
	if err != nil {
		panic("operator: an object of its own cannot be written as JSON: " + err.Error()) // a program error: none of them has such a field
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		panic("operator: JSON that was just written cannot be read: " + err.Error())
	}
	delete(out, "status")
	dropNulls(out)
	if out["kind"] == KindSecret {
		return out // nothing that depends on a secret stands outside of it
	}
	if raw, err = json.Marshal(out); err != nil {
		panic("operator: an object of its own cannot be written as JSON: " + err.Error())
	}
	sum := sha256.Sum256(raw)
	metadata, _ := out["metadata"].(map[string]any)
	metadata["annotations"] = map[string]any{v1alpha1.AppliedAnnotation: hex.EncodeToString(sum[:6])}
	return out
}

func dropNulls(fields map[string]any) {
	for key, value := range fields {
		switch v := value.(type) {
		case nil:
			delete(fields, key)
		case map[string]any:
			dropNulls(v)
		case []any:
			for _, element := range v {
				if m, ok := element.(map[string]any); ok {
					dropNulls(m)
				}
			}
		}
	}
}

// holds reports whether a live value has all that is wanted. What others or the API server add is left alone: fields that are not wanted,
// and elements of lists of objects. Lists of plain values must be equal.
func holds(live, want any) bool {
	switch w := want.(type) {
	case map[string]any:
		l, ok := live.(map[string]any)
		if !ok {
			return len(w) == 0 && live == nil // the API server drops what is empty
		}
		for key, value := range w {
			if !holds(l[key], value) {
				return false
			}
		}
		return true
	case []any:
		return holdsList(live, w)
	case float64:
		switch l := live.(type) {
		case int64:
			return float64(l) == w
		case float64:
			return l == w
		}
		return false
	}
	return live == want // a plain value, or nil
}

func holdsList(live any, want []any) bool {
	l, ok := live.([]any)
	if !ok {
		return len(want) == 0 && live == nil
	}
	objects := slices.ContainsFunc(want, func(e any) bool { _, ok := e.(map[string]any); return ok })
	if !objects {
		return len(l) == len(want) && !slices.ContainsFunc(want, func(e any) bool { return !slices.Contains(l, e) })
	}
	return !slices.ContainsFunc(want, func(e any) bool {
		return !slices.ContainsFunc(l, func(x any) bool { return holds(x, e) })
	})
}

// CorePorts are the ports of URLs, each once, in order; 2379 where there is none.
func CorePorts(urls []string) []int32 {
	var out []int32
	for _, text := range urls {
		port := int32(2379)
		if u, err := url.Parse(text); err == nil && u.Port() != "" {
			if n, err := strconv.ParseInt(u.Port(), 10, 32); err == nil {
				port = int32(n)
			}
		}
		out = append(out, port)
	}
	slices.Sort(out)
	return slices.Compact(out)
}
