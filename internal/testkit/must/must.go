// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package must ends a test at the first call that fails, for steps of which a test needs the result and not the error. What a test is about it judges
// itself, with words of its own.
package must

// TB is the part of testing.TB that is needed here. A property's *rapid.T has it, too.
type TB interface {
	Helper()
	Fatal(args ...any)
}

// Do ends the test if a call has failed: must.Do(t, os.Remove(path)).
func Do(tb TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// A Result is what a call returned.
type Result[T any] struct {
	value T
	err   error
}

// Get takes what a call returns: data := must.Get(os.ReadFile(path)).Or(t).
func Get[T any](value T, err error) Result[T] { return Result[T]{value, err} }

// Or returns the value, or ends the test if the call has failed.
func (r Result[T]) Or(tb TB) T {
	tb.Helper()
	Do(tb, r.err)
	return r.value
}
