// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package assumed

import (
	"fmt"
	"strings"
	"time"
)

// Assumption is one row: what is assumed, who said so and when, and what would notice a change.
type Assumption struct {
	// Name is that of the constant or function in this package.
	Name string
	// System is whose it is.
	System string
	// Meaning is what the value is, Value the value itself.
	Meaning string
	Value   any
	// Source is the document and sentence, or the program and place. Read is when somebody read it, as YYYY-MM-DD.
	Source, Read string
	// Stated is where DigitalOcean's OpenAPI description states the value, nil if it does not.
	Stated *Statement
	// Test is the test that fails when the value is not right. It is [StatementTest] for what the description states.
	Test string
	// Unknown reports that nobody outside states it: Value lists the variants, all of which simulators and tests must run.
	Unknown bool
}

// Statement is a place in DigitalOcean's OpenAPI description.
type Statement struct {
	// Operation is a method and a path, as "POST /v2/volumes".
	Operation string
	// Field is request:, response:, query: or header: and the names of properties with dots between them; empty for the operation itself.
	Field string
	// Keyword is that of the schema: enum, maximum, minimum, default, maxLength, pattern, required or description.
	Keyword string
	// Sentence is part of a description, with {} where the number stands, in digits or as a word.
	Sentence string
}

// StatementTest compares each Statement with the description.
const StatementTest = "TestTheDescriptionStatesIt"

const (
	digitalOcean = "DigitalOcean"
	disk         = "SCSI disk"
	csi          = "CSI"
	calico       = "Calico"
	bird         = "BIRD"

	description = "OpenAPI description (digitalocean/openapi, 7 August 2026)"
	readNow     = "2026-11-27"
)

// stated is a row that the description states.
func stated(name, meaning string, value any, operation, field, keyword string) Assumption {
	return Assumption{
		Name: name, System: digitalOcean, Meaning: meaning, Value: value, Source: description, Read: readNow, Test: StatementTest,
		Stated: &Statement{Operation: operation, Field: field, Keyword: keyword},
	}
}

// said is a row that a sentence of the description states.
func said(name, meaning string, value any, operation, field, sentence string) Assumption {
	row := stated(name, meaning, value, operation, field, "description")
	row.Stated.Sentence = sentence
	return row
}

// from is a row with another source.
func from(system, name, meaning string, value any, source, test string) Assumption {
	return Assumption{Name: name, System: system, Meaning: meaning, Value: value, Source: source, Read: readNow, Test: test}
}

// Table returns all rows, in the order of this package's files.
func Table() []Assumption {
	var all []Assumption
	for _, part := range [][]Assumption{storageRows(), priceRows(), callRows(), refusalRows(), balancerRows(), numberRows(), otherRows(), unknownRows()} {
		all = append(all, part...)
	}
	return all
}

// Text is the value as the reference shows it.
func (a Assumption) Text() string {
	switch v := a.Value.(type) {
	case time.Duration:
		return v.String()
	case []string:
		return strings.Join(v, ", ")
	default:
		return strings.Trim(fmt.Sprint(v), "[]")
	}
}

// Where is the place of a statement, for people.
func (s Statement) Where() string {
	place := s.Operation
	if s.Field != "" {
		place += ", " + s.Field
	}
	if s.Sentence != "" {
		return place + ": “" + s.Sentence + "”"
	}
	return place + ": " + s.Keyword
}
