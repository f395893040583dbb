// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"crypto/sha256"
	"errors"
	"sync"
)

// epochs tells apart what was read with one token from what was read with another. The token itself is not kept.
type epochs struct {
	mu     sync.Mutex // guards all below
	number uint64
	token  [sha256.Size]byte
}

// use notes which token is about to be used, and reports whether there was another one before.
func (e *epochs) use(token string) (number uint64, other bool) {
	sum := sha256.Sum256([]byte(token))
	e.mu.Lock()
	defer e.mu.Unlock()
	if sum != e.token {
		other = e.token != [sha256.Size]byte{}
		e.number++
		e.token = sum
	}
	return e.number, other
}

// refused notes that the API did not accept the token.
func (e *epochs) refused() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.number++
}

// current is the epoch without a check of the token.
func (e *epochs) current() uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.number
}

// Epoch is a number that grows whenever the token has become another one, and whenever the API refused it (401). What was read in an earlier
// epoch may be about another account: anyone who decides on it compares the epoch before the first call with the one after the last.
func (c *Client) Epoch() uint64 {
	token, err := c.token.Token()
	if err != nil {
		return c.epochs.current()
	}
	return c.epochOf(token)
}

// epochOf is the epoch of a token that is about to be used. With another one than before nothing is known of its rate
// limit and of its rights.
func (c *Client) epochOf(token string) uint64 {
	number, other := c.epochs.use(token)
	if other {
		c.pacer.renew()
		c.witness.renew()
	}
	return number
}

// rereader is a TokenSource that can look again at once.
type rereader interface {
	// Reread looks for a newer token and reports whether there is one.
	Reread() bool
}

// otherToken reports that the API refused the token and that there is a newer one by now.
func (c *Client) otherToken(err error) bool {
	source, ok := c.token.(rereader)
	return ok && errors.Is(err, ErrUnauthorized) && source.Reread()
}
