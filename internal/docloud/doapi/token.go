// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package doapi

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// TokenSource gives the API token for one request. Implementations are safe for concurrent use.
type TokenSource interface {
	// Token returns the token. An error means that no request can be made now.
	Token() (string, error)
}

// StaticToken is a token that never changes.
type StaticToken string

// Token implements TokenSource.
func (t StaticToken) Token() (string, error) { return string(t), nil }

// tokenAge is how long a token that was read from a file is used before the file is looked at again.
const tokenAge = 10 * time.Second

// FileToken is a token in a file that may be replaced while the program runs, as a mounted Secret is.
type FileToken struct {
	path  string
	clock clock.PassiveClock

	mu    sync.Mutex // guards all below
	token string
	read  time.Time
}

// NewFileToken reads the file once. Its error is one sentence that names the file.
func NewFileToken(path string, clock clock.PassiveClock) (*FileToken, error) {
	t := &FileToken{path: path, clock: clock}
	_, err := t.Token()
	return t, err
}

// Token implements TokenSource. A file that cannot be read, or is empty, while it is being replaced leaves the last token in use.
func (t *FileToken) Token() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.token != "" && t.clock.Since(t.read) < tokenAge {
		return t.token, nil
	}
	token, err := readToken(t.path)
	if err != nil && t.token == "" {
		return "", err
	}
	if err == nil {
		t.token = token
	}
	t.read = t.clock.Now()
	return t.token, nil
}

// Reread looks at the file at once, since the API has refused the token, and reports whether there is another one now.
func (t *FileToken) Reread() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	token, err := readToken(t.path)
	t.read = t.clock.Now()
	if err != nil || token == t.token {
		return false
	}
	t.token = token
	return true
}

func readToken(path string) (string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the DigitalOcean token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if err := ValidateToken(token); err != nil {
		return "", fmt.Errorf("the DigitalOcean token in file %s: %w", path, err)
	}
	return token, nil
}

// ValidateToken says what is wrong with a token, without repeating it: it is empty, or has characters that no HTTP header may have.
func ValidateToken(token string) error {
	if token == "" {
		return errors.New("it is empty")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return errors.New("it has blanks or characters that no token has; look for quotes and line breaks")
	}
	return nil
}
