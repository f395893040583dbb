// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

type object = map[string]any

// readDescription reads DigitalOcean's OpenAPI description, in which every reference is resolved.
func readDescription(t *testing.T) func() object {
	t.Helper()
	data := must.Get(os.ReadFile(testkit.Shared(t, "data", "digitalocean", "openapi.json"))).Or(t)
	return func() object {
		var document object
		must.Do(t, json.Unmarshal(data, &document))
		return document
	}
}

// at follows keys of objects.
func at(o object, keys ...string) object {
	for _, key := range keys {
		o, _ = o[key].(object)
	}
	return o
}

// parts are a schema and all that it is composed of: its alternatives, and the items of a list.
func parts(schema object) []object {
	if schema == nil {
		return nil
	}
	found := []object{schema}
	for _, keyword := range []string{"allOf", "oneOf", "anyOf"} {
		alternatives, _ := schema[keyword].([]any)
		for _, one := range alternatives {
			part, _ := one.(object)
			found = append(found, parts(part)...)
		}
	}
	return append(found, parts(at(schema, "items"))...)
}

// places are the schemas, or the operation, that a statement is about. An operation may describe a field several times.
func (s Statement) places(document object) []object {
	method, path, _ := strings.Cut(s.Operation, " ")
	operation := at(document, "paths", path, strings.ToLower(method))
	kind, name, _ := strings.Cut(s.Field, ":")
	var found []object
	switch kind {
	case "":
		return []object{operation}
	case "query":
		all, _ := operation["parameters"].([]any)
		for _, one := range all {
			if p, _ := one.(object); p["name"] == name && p["in"] == "query" {
				found = append(found, at(p, "schema"))
			}
		}
		return found
	case "header":
		return []object{at(operation, "responses", "200", "headers", name)}
	case "response":
		found = parts(at(operation, "responses", "200", "content", "application/json", "schema"))
	default:
		found = parts(at(operation, "requestBody", "content", "application/json", "schema"))
	}
	if name == "" {
		return found
	}
	for property := range strings.SplitSeq(name, ".") {
		var below []object
		for _, schema := range found {
			below = append(below, parts(at(schema, "properties", property))...)
		}
		found = below
	}
	return found
}

// numbers are those that descriptions write as words.
var numbers = []string{"zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"}

func number(text string) (int, error) {
	if i := slices.Index(numbers, strings.ToLower(text)); i >= 0 {
		return i, nil
	}
	return strconv.Atoi(strings.ReplaceAll(text, ",", ""))
}

// sentence finds the number in a description, in which lines break anywhere.
func (s Statement) sentence() *regexp.Regexp {
	pattern := strings.ReplaceAll(regexp.QuoteMeta(s.Sentence), `\{\}`, `([\w,]+)`)
	return regexp.MustCompile(strings.ReplaceAll(pattern, " ", `\s+`))
}

// check returns what differs between an assumption and a description.
func (a Assumption) check(document object) error {
	stated := 0
	for _, place := range a.Stated.places(document) {
		value, found := place[a.Stated.Keyword]
		if !found {
			continue
		}
		got := normal(value)
		if text, isText := value.(string); isText && a.Stated.Sentence != "" {
			match := a.Stated.sentence().FindStringSubmatch(text)
			if match == nil {
				continue
			}
			n, err := number(match[1])
			if err != nil {
				return fmt.Errorf("%s: the description says %q: %w", a.Name, match[0], err)
			}
			got = normal(n)
		}
		stated++
		if want := normal(a.Value); got != want {
			return fmt.Errorf("%s is %s, and the description says %s at %s", a.Name, want, got, a.Stated.Where())
		}
	}
	if stated == 0 {
		return fmt.Errorf("%s: the description no longer states it at %s", a.Name, a.Stated.Where())
	}
	return nil
}

// normal is a value as text: a list without regard to order.
func normal(value any) string {
	switch v := value.(type) {
	case []any:
		var words []string
		for _, word := range v {
			words = append(words, fmt.Sprint(word))
		}
		return normal(words)
	case []string:
		return strings.Join(slices.Sorted(slices.Values(v)), " ")
	default:
		return fmt.Sprint(v)
	}
}

// TestTheDescriptionStatesIt compares what DigitalOcean's description states with the constants, and shows for each that a description which says
// otherwise, or no longer says it, is noticed.
func TestTheDescriptionStatesIt(t *testing.T) {
	t.Parallel()
	read := readDescription(t)
	document, checked := read(), 0
	for _, row := range Table() {
		if row.Stated == nil {
			continue
		}
		checked++
		if err := row.check(document); err != nil {
			t.Error(err)
			continue
		}
		for name, edit := range map[string]func(object, string){"another value": change, "no value": func(place object, key string) { delete(place, key) }} {
			copied := read()
			for _, place := range row.Stated.places(copied) {
				if _, found := place[row.Stated.Keyword]; found {
					edit(place, row.Stated.Keyword)
				}
			}
			if err := row.check(copied); err == nil || !strings.Contains(err.Error(), row.Name) {
				t.Errorf("%s: a description with %s passes: %v", row.Name, name, err)
			}
		}
	}
	if checked < 30 {
		t.Errorf("%d rows were compared; the description states at least 30", checked)
	}
}

// change makes another value of one in a description.
func change(place object, key string) {
	switch v := place[key].(type) {
	case float64:
		place[key] = v + 1
	case []any:
		place[key] = append(slices.Clone(v), "another")
	case string:
		edited := regexp.MustCompile(`fifteen|\b\d+\b`).ReplaceAllString(v, "16")
		if edited == v {
			edited += "?"
		}
		place[key] = edited
	}
}

// TestTheDescriptionSpellsIt compares what the description says in words alone with what the constants do.
func TestTheDescriptionSpellsIt(t *testing.T) {
	t.Parallel()
	document := readDescription(t)()
	for _, want := range []Statement{
		{Operation: createVolume, Field: "request:name", Sentence: `Must be lowercase and be composed only of numbers, letters and "-"`},
		{Operation: createVolume, Field: "request:name", Sentence: "The name must begin with a letter."},
		{Operation: createBalancer, Field: "request:size", Sentence: "up to once per hour"},
		{Operation: createBalancer, Field: "request:size", Sentence: "cannot resize a load balancer within the first hour"},
		{Operation: "GET /v2/volumes", Field: "response:volumes.droplet_ids", Sentence: "a volume can only be attached to a single Droplet"},
		{Operation: listActions, Sentence: "retrieve " + ActionsOfAVolume + " that have been executed on a volume"},
		{Operation: "GET /v2/volumes", Field: "response:volumes.tags", Sentence: "scope"},
	} {
		if !slices.ContainsFunc(want.places(document), func(place object) bool {
			text, _ := place["description"].(string)
			return want.sentence().MatchString(text)
		}) {
			t.Errorf("the description no longer says it at %s", want.Where())
		}
	}
	for name, fits := range map[string]bool{"pvc-1": true, "a": true, "1a": false, "-a": false, "A": false, "a_b": false, "": false} {
		if got := regexp.MustCompile(VolumeNamePattern).MatchString(name); got != fits {
			t.Errorf("%q as a volume's name: %v", name, got)
		}
	}
}
