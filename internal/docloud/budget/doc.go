// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package budget decides when a call to DigitalOcean's API may be made, so that the account's limits are never run into and what matters most
// goes first. It knows calls only by how urgent they are, and answers only by what they say of the limits.
//
// DigitalOcean allows a token 5,000 calls in any hour and 250 in any minute; each call counts from when it was made until an hour, or a minute,
// later. An answer says how many calls of the hour are left and when the oldest stops to count; one of 429 may say how long to wait. Other
// programs may use the same token.
//
//	free ──429, or none left──> held: no call at all ──time is over──> trying: one call at a time ──an answer that is not 429──> free
//
// [Budget] is for calls to the API as a whole, [Turns] shares a few calls among many who want one each. Both are plain state: the caller holds
// the lock and says what time it is.
package budget
