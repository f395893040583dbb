// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import "sync"

// keyedLock is a lock per key; keys that nobody holds take no memory.
type keyedLock struct {
	mu    sync.Mutex // guards locks and what they count
	locks map[string]*countedLock
}

// countedLock is held by whoever has put something into held.
type countedLock struct {
	held  chan struct{}
	users int
}

// lock locks a key and returns what unlocks it.
func (k *keyedLock) lock(key string) func() {
	k.mu.Lock()
	if k.locks == nil {
		k.locks = map[string]*countedLock{}
	}
	l := k.locks[key]
	if l == nil {
		l = &countedLock{held: make(chan struct{}, 1)}
		k.locks[key] = l
	}
	l.users++
	k.mu.Unlock()
	l.held <- struct{}{}
	return func() {
		<-l.held
		k.mu.Lock()
		defer k.mu.Unlock()
		if l.users--; l.users == 0 {
			delete(k.locks, key)
		}
	}
}
