// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package shop

// Base is embedded.
type Base struct{ store Store }

// Promoted is a method of Whole, too.
func (b *Base) Promoted() { b.Own() }

// Own calls nothing.
func (b *Base) Own() {}

// Whole has a method of its own and two that are promoted.
type Whole struct{ Base }

// Third calls nothing.
func (w *Whole) Third() {}

// Judge has two implementations, of which one is used.
type Judge interface{ Judge() }

// Paper is used.
type Paper struct{}

// Judge calls a function.
func (Paper) Judge() { leaf() }

// Stone is not used.
type Stone struct{}

// Judge calls a function.
func (Stone) Judge() { leaf() }

// Each calls do.
func Each[T any](all []T, do func(T)) {
	for _, x := range all {
		do(x)
	}
	leaf()
}

// Store writes.
type Store struct{}

// Write is an exit: what it calls is not entered.
func (s *Store) Write() { s.behind() }

func (s *Store) behind() { leaf() }
