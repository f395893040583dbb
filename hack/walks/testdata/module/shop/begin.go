// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package shop is walked through by a test.
package shop

// Begin calls in four ways.
func Begin() {
	w := &Whole{}
	w.Promoted()
	var j Judge = Paper{}
	j.Judge()
	Each([]int{1}, func(int) { hand(w.store.Write) })
}

func hand(func()) { leaf() }

func leaf() {}
