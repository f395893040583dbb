// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package logrusbridge_test

import (
	"bytes"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/sirupsen/logrus" //nolint:depguard // what is bridged

	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/platform/logging/logrusbridge"
)

func logAll(l *logrus.Logger) {
	l.WithError(errors.New("boom")).WithField("node", "a").Error("An error")
	l.Warn("A warning")
	l.WithField("password", "s3cr3t").Info("An info")
	l.Debug("A debug")
	l.Trace("A trace")
}

func TestForwardsByVerbosity(t *testing.T) {
	t.Parallel()
	const (
		errorLine = `{"level":"ERROR","msg":"An error","logger":"calico","error":"boom","node":"a"}`
		warnLine  = `{"level":"WARN","msg":"A warning","logger":"calico"}`
		infoLine  = `{"level":"DEBUG","v":1,"msg":"An info","logger":"calico","password":"[redacted]"}`
		debugLine = `{"level":"DEBUG","v":4,"msg":"A debug","logger":"calico"}`
		traceLine = `{"level":"DEBUG","v":6,"msg":"A trace","logger":"calico"}`
	)
	tests := map[string]struct {
		verbosity int
		level     logrus.Level
		want      []string
	}{
		"0 leaves problems": {0, logrus.WarnLevel, []string{errorLine, warnLine}},
		"1 adds info":       {1, logrus.InfoLevel, []string{errorLine, warnLine, infoLine}},
		"4 adds debug":      {4, logrus.DebugLevel, []string{errorLine, warnLine, infoLine, debugLine}},
		"6 is everything":   {6, logrus.TraceLevel, []string{errorLine, warnLine, infoLine, debugLine, traceLine}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out, direct bytes.Buffer
			l := logrus.New()
			l.SetOutput(&direct)
			logrusbridge.Install(l, logging.NewHandler(&out, logging.Options{Format: logging.FormatJSON, Verbosity: tt.verbosity}))
			logAll(l)
			got := strings.Split(strings.TrimSpace(regexp.MustCompile(`"time":"[^"]*",`).ReplaceAllString(out.String(), "")), "\n")
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("log differs (-want +got):\n%s", diff)
			}
			if direct.Len() > 0 {
				t.Errorf("logrus still writes by itself: %s", direct.String())
			}
			// libcalico-go asks the level before it builds expensive messages.
			if l.GetLevel() != tt.level {
				t.Errorf("logrus level is %s, want %s", l.GetLevel(), tt.level)
			}
		})
	}
}
