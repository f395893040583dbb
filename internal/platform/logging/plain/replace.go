// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package plain

import (
	"log/slog"
	"strings"
	"time"
)

// Redacted is what stands in the log in place of a secret value.
const Redacted = "[redacted]"

// consoleTime is short on purpose: a person at a terminal knows the date.
const consoleTime = "15:04:05.000"

func replaceJSON(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.LevelKey {
		return renderLevel(a)
	}
	return redact(a)
}

func replaceText(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.String(a.Key, a.Value.Time().Format(consoleTime))
	}
	if a.Value.Kind() == slog.KindDuration {
		return slog.String(a.Key, a.Value.Duration().Round(time.Microsecond).String())
	}
	return replaceJSON(groups, a)
}

// renderLevel turns V(n) levels into DEBUG plus the attribute v=n. slog's own names ("INFO-2",
// "DEBUG-2") are unknown to the tools that read logs.
func renderLevel(a slog.Attr) slog.Attr {
	level, ok := a.Value.Any().(slog.Level)
	if !ok || level >= slog.LevelInfo {
		return a
	}
	// A group without a name is inlined by the handlers, so this is two attributes side by side.
	return slog.Attr{Value: slog.GroupValue(slog.String(slog.LevelKey, "DEBUG"), slog.Int("v", -int(level)))}
}

// redact hides values whose key says that they are secret, and any text that carries a private key.
// It is a safety net under the rule that secrets are never passed to a logger in the first place.
func redact(a slog.Attr) slog.Attr {
	if isSecretKey(a.Key) {
		return slog.String(a.Key, Redacted)
	}
	if a.Value.Kind() == slog.KindString && strings.Contains(a.Value.String(), "PRIVATE KEY-----") {
		return slog.String(a.Key, Redacted)
	}
	return a
}

// isSecretKey compares by suffix, so that tokenFile or secretName, which are only places and names,
// stay readable.
func isSecretKey(key string) bool {
	k := strings.Map(func(r rune) rune {
		switch r {
		case '-', '_', '.', ' ':
			return -1
		}
		return r
	}, strings.ToLower(key))
	for _, suffix := range [...]string{
		"password", "passwd", "passphrase", "token", "authorization", "credential", "credentials",
		"privatekey", "keypem", "keydata", "apikey", "accesskey", "secretkey", "clientsecret",
	} {
		if strings.HasSuffix(k, suffix) {
			return true
		}
	}
	return false
}
