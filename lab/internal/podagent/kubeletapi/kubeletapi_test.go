// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/pki"
)

// files are the logs of one container; it runs until over.
type files struct {
	paths []string
	over  atomic.Bool
}

func (f *files) Find(namespace, pod, container string) ([]string, error) {
	if namespace+"/"+pod+"/"+container != "ns/pod/main" {
		return nil, errors.New("there is no such container")
	}
	return f.paths, nil
}

func (f *files) Runs(string, string, string) bool { return !f.over.Load() }

func write(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	logs := &files{paths: []string{filepath.Join(dir, "0.log"), filepath.Join(dir, "1.log")}}
	write(t, logs.paths[0], "before\n")
	write(t, logs.paths[1], "one\ntwo\n"+strings.Repeat("long", 40_000)+"\nend\n")
	server := httptest.NewServer(Handler(logs))
	defer server.Close()
	get := func(target string) (int, string) {
		response, err := http.Get(server.URL + target)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(body)
	}
	const path = "/containerLogs/ns/pod/main"
	for query, want := range map[string]string{
		"?previous=true": "before\n", "?tailLines=1": "end\n", "?tailLines=0": "", "?limitBytes=5": "one\nt", "?tailLines=1&limitBytes=2": "en",
		"?previous=true&tailLines=9": "before\n", "?previous=true&follow=true": "before\n",
	} {
		if code, got := get(path + query); code != http.StatusOK || got != want {
			t.Errorf("%s: %d %.40q", query, code, got)
		}
	}
	if _, got := get(path); !strings.HasPrefix(got, "one\ntwo\nlong") || !strings.HasSuffix(got, "long\nend\n") || len(got) != 160_013 {
		t.Errorf("all of it is %d bytes: %.40q", len(got), got)
	}
	if _, got := get(path + "?tailLines=2"); !strings.HasPrefix(got, "long") || len(got) != 160_005 {
		t.Errorf("the last two lines are %d bytes: %.40q", len(got), got)
	}
	for query, want := range map[string]string{
		path + "?sinceSeconds=5":  "the lab keeps no times of log lines; leave --since and --since-time out\n",
		path + "?timestamps=true": "the lab keeps no times of log lines; leave --timestamps out\n",
		path + "?tailLines=x":     "tailLines \"x\" is not a number of 0 or more\n",
		"/containerLogs/ns/pod/x": "there is no such container\n",
	} {
		if code, got := get(query); code != http.StatusBadRequest || got != want {
			t.Errorf("%s: %d %q", query, code, got)
		}
	}
	logs.paths = logs.paths[:1]
	if _, got := get(path + "?previous=true"); got != "container \"main\" of pod ns/pod has no such log; it has run 1 times\n" {
		t.Errorf("a log that is not there: %q", got)
	}
}

// TestFollow reads a log while it is written, until its container ends.
func TestFollow(t *testing.T) {
	t.Parallel()
	logs := &files{paths: []string{filepath.Join(t.TempDir(), "0.log")}}
	write(t, logs.paths[0], "one\n")
	server := httptest.NewServer(Handler(logs))
	defer server.Close()
	response, err := http.Get(server.URL + "/containerLogs/ns/pod/main?follow=true")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line := make([]byte, 4)
	if _, err := io.ReadFull(response.Body, line); err != nil || string(line) != "one\n" {
		t.Fatalf("%q, %v", line, err)
	}
	write(t, logs.paths[0], "two\n")
	if _, err := io.ReadFull(response.Body, line); err != nil || string(line) != "two\n" {
		t.Fatalf("%q, %v", line, err)
	}
	write(t, logs.paths[0], "end\n")
	logs.over.Store(true)
	if rest, err := io.ReadAll(response.Body); err != nil || string(rest) != "end\n" {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestOnlyTheAuthoritysClientsAreServed asks as the API server does, and as others.
func TestOnlyTheAuthoritysClientsAreServed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := pki.Ensure(dir, pki.Plan{
		Authorities: []string{"kubelet-ca", "other-ca"},
		Certificates: []pki.Certificate{
			{Name: "own", Authority: "kubelet-ca", CommonName: "kube-apiserver", Client: true}, {Name: "other", Authority: "other-ca", CommonName: "other", Client: true},
		},
	}, time.Now()); err != nil {
		t.Fatal(err)
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	authority, err := loadAuthority(file("kubelet-ca.crt"), file("kubelet-ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: Handler(&files{}), ReadHeaderTimeout: headerTimeout, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(tls.NewListener(listener, authority.config())) }()
	defer func() { _ = server.Close() }()
	roots := x509.NewCertPool()
	roots.AddCert(authority.cert)
	ask := func(client string) error {
		config := &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		if client != "" {
			pair, err := tls.LoadX509KeyPair(file(client+".crt"), file(client+".key"))
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		// The address is what the certificate is checked against.
		response, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}).Get("https://" + listener.Addr().String() + "/containerLogs/ns/pod/x")
		if err != nil {
			return err
		}
		return response.Body.Close()
	}
	if err := ask("own"); err != nil {
		t.Errorf("the API server: %v", err)
	}
	for _, client := range []string{"", "other"} {
		if err := ask(client); err == nil {
			t.Errorf("the client %q has been answered", client)
		}
	}
}
