// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package logging_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/mooring-dev/mooring/internal/platform/logging"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// lines decodes a JSON log, without the times.
func lines(t *testing.T, text string) []map[string]any {
	t.Helper()
	var out []map[string]any
	for line := range strings.Lines(text) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("log line %q is not JSON: %v", line, err)
		}
		if _, ok := record["time"]; !ok {
			t.Errorf("log line %q has no time", line)
		}
		delete(record, "time")
		out = append(out, record)
	}
	return out
}

func TestJSONLevelsAndVerbosity(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	h := logging.NewHandler(&buf, logging.Options{Verbosity: 2})
	l := logr.FromSlogHandler(h).WithName("nodes").WithValues("node", "a")
	l.Info("Deleted Node")
	l.V(2).Info("Listed Nodes", "count", 3)
	l.V(3).Info("Too detailed")
	l.Error(errors.New("boom"), "Lost the datastore")
	slog.New(h).WithGroup("g").Warn("Grouped", "k", "v")
	slog.New(h).WithGroup("g").Log(t.Context(), slog.Level(-1), "Grouped flow", "k", "v")

	want := []map[string]any{
		{"level": "INFO", "msg": "Deleted Node", "logger": "nodes", "node": "a"},
		{"level": "DEBUG", "v": 2.0, "msg": "Listed Nodes", "logger": "nodes", "node": "a", "count": 3.0},
		{"level": "ERROR", "msg": "Lost the datastore", "logger": "nodes", "node": "a", "err": "boom"},
		{"level": "WARN", "msg": "Grouped", "g": map[string]any{"k": "v"}},
		{"level": "DEBUG", "v": 1.0, "msg": "Grouped flow", "g": map[string]any{"k": "v"}},
	}
	if diff := cmp.Diff(want, lines(t, buf.String())); diff != "" {
		t.Errorf("log differs (-want +got):\n%s", diff)
	}
}

func TestTextFormat(t *testing.T) {
	t.Parallel()
	var buf bytes.Buffer
	l := slog.New(logging.NewHandler(&buf, logging.Options{Format: logging.FormatText, Verbosity: 4}))
	l.Info("Deleted Node", "node", "a", "took", 1234567*time.Nanosecond)
	l.Debug("Compared", "token", "abc")
	want := `^time=\d\d:\d\d:\d\d\.\d{3} level=INFO msg="Deleted Node" node=a took=1\.235ms
time=\S+ level=DEBUG v=4 msg=Compared token=\[redacted\]
$`
	if !regexp.MustCompile(want).MatchString(buf.String()) {
		t.Errorf("got:\n%s\nwant a match of:\n%s", buf.String(), want)
	}
}

func TestSecretsAreRedacted(t *testing.T) {
	t.Parallel()
	secret := []any{
		"password", "s3cr3t", "etcdPassword", "s3cr3t", "bearer-token", "s3cr3t", "Authorization", "s3cr3t", "private_key", "s3cr3t",
		"do.apiKey", "s3cr3t", "text", "-----BEGIN EC PRIVATE KEY-----\ns3cr3t",
	}
	open := []any{"tokenFile", "visible", "secretName", "visible", "keyFile", "visible", "node", "visible", "tokens", "visible"}
	for _, format := range []logging.Format{logging.FormatJSON, logging.FormatText} {
		var buf bytes.Buffer
		l := logr.FromSlogHandler(logging.NewHandler(&buf, logging.Options{Format: format}))
		l.WithValues(secret...).Info("As values", open...)
		l.Info("As a group", "g", slog.GroupValue(slog.String("password", "s3cr3t")))
		if strings.Contains(buf.String(), "s3cr3t") {
			t.Errorf("%s: a secret came through:\n%s", format, buf.String())
		}
		if got := strings.Count(buf.String(), "visible"); got != 5 {
			t.Errorf("%s: %d of 5 harmless values are readable:\n%s", format, got, buf.String())
		}
		if got := strings.Count(buf.String(), logging.Redacted); got != 8 {
			t.Errorf("%s: %d values redacted, want 8:\n%s", format, got, buf.String())
		}
	}
}

func TestFlags(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		args    []string
		want    logging.Options
		wantErr string
	}{
		"defaults":              {nil, logging.Options{Format: "auto"}, ""},
		"kubernetes' spellings": {[]string{"-v=2"}, logging.Options{Format: "auto", Verbosity: 2}, ""},
		"long":                  {[]string{"--v", "4", "--log-format=json"}, logging.Options{Format: "json", Verbosity: 4}, ""},
		"unknown format": {[]string{"--log-format=xml"}, logging.Options{Format: "xml"},
			`--log-format "xml" is unknown: use auto, json or text`},
		"too verbose": {[]string{"-v99"}, logging.Options{Format: "auto", Verbosity: 99},
			`-v 99 is out of range: use 0 (quiet) to 10 (everything)`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got logging.Options
			fs := pflag.NewFlagSet("x", pflag.ContinueOnError)
			got.AddFlags(fs)
			must.Do(t, fs.Parse(tt.args))
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("options differ (-want +got):\n%s", diff)
			}
			var gotErr string
			if err := got.Validate(); err != nil {
				gotErr = err.Error()
			}
			if gotErr != tt.wantErr {
				t.Errorf("Validate() = %q, want %q", gotErr, tt.wantErr)
			}
		})
	}
}

// TestInstall runs in a process of its own, because Install changes the whole process.
func TestInstall(t *testing.T) {
	t.Parallel()
	if os.Getenv("LOGGING_TEST_INSTALL") != "" {
		installAndLog()
		return
	}
	exe := must.Get(os.Executable()).Or(t)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestInstall$")
	cmd.Env = append(os.Environ(), "LOGGING_TEST_INSTALL=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr // not a terminal, so auto means JSON
	if out, err := cmd.Output(); err != nil {
		t.Fatalf("running the test binary again: %v\n%s%s", err, out, stderr.String())
	}
	want := []map[string]any{
		{"level": "INFO", "msg": "Via slog"},
		{"level": "INFO", "msg": "Via log"},
		{"level": "INFO", "msg": "Via klog"},
		{"level": "INFO", "msg": "Stopped by the end", "err": "reading: context canceled"},
		{"level": "ERROR", "msg": "An error", "err": "EOF"},
		{"level": "DEBUG", "v": 2.0, "msg": "Via klog at 2", "k": "v"},
		{"level": "INFO", "msg": "Via controller-runtime", "logger": "c"},
		{"level": "INFO", "msg": "Stopped by the end", "logger": "c", "err": "reading: context canceled"},
		{"level": "ERROR", "msg": "An error", "logger": "c", "err": "EOF"},
		{"level": "DEBUG", "v": 1.0, "msg": "Via logr"},
	}
	if diff := cmp.Diff(want, lines(t, stderr.String())); diff != "" {
		t.Errorf("log differs (-want +got):\n%s", diff)
	}
}

func installAndLog() {
	o := logging.Options{Format: logging.FormatAuto, Verbosity: 2}
	l := logging.Install(logging.NewHandler(os.Stderr, o), o)
	slog.Info("Via slog") //nolint:sloglint // the default logger is what is tested
	log.Print("Via log")
	klog.Info("Via klog")
	klog.ErrorS(fmt.Errorf("reading: %w", context.Canceled), "Stopped by the end")
	klog.ErrorS(io.EOF, "An error")
	klog.V(2).InfoS("Via klog at 2", "k", "v")
	klog.V(3).Info("Hidden")
	c := ctrllog.FromContext(context.Background()).WithName("c")
	c.Info("Via controller-runtime")
	c.Error(fmt.Errorf("reading: %w", context.Canceled), "Stopped by the end")
	c.Error(io.EOF, "An error")
	l.V(1).Info("Via logr")
	l.V(3).Info("Hidden")
}
