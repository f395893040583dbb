// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package sample is the program of the image mooring-lab/sample: what one wants to know of a pod, asked over HTTP.
//
//	GET /healthz            200, or 502 while the program is to be unwell
//	GET /become?well=BOOL   what /healthz answers from now on
//	GET /name               the host's name
//	GET /env?name=NAME      a variable
//	GET /file?path=PATH     a file
//	GET /fetch?url=URL      what another server answers, as seen from this pod
//	GET /etcd?endpoint=URL&ca=FILE&cert=FILE&key=FILE&name=NAME[&put=VALUE]
//	                        the value of a key of an etcd, after putting it there
//	GET /etcd/keys?endpoint=URL&ca=FILE&cert=FILE&key=FILE&prefix=PREFIX
//	                        the keys of an etcd that begin so, one a line
package sample

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// Name is the program's and the image's name.
const Name = "sample"

const (
	// timeout bounds one answer.
	timeout = 10 * time.Second
	// answerLimit bounds what is passed on.
	answerLimit = 1 << 20
)

type options struct {
	address  string
	exit     int
	stubborn bool
}

// NewCommand returns the program, the entrypoint of the image.
func NewCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:    Name,
		Short:  "Answer questions about a pod over HTTP (the program of the image mooring-lab/sample)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
			defer cancel()
			if command.Flags().Changed("exit") {
				os.Exit(o.exit) //nolint:forbidigo // the exit code is what it is asked for
			}
			if o.stubborn {
				ctx = context.WithoutCancel(ctx)
			}
			return serve(ctx, o.address, os.Stdout)
		},
	}
	flags := command.Flags()
	flags.StringVar(&o.address, "listen", ":8080", "address to serve on")
	flags.IntVar(&o.exit, "exit", 0, "end at once with this code")
	flags.BoolVar(&o.stubborn, "stubborn", false, "do not end when told to")
	return command
}

func serve(ctx context.Context, address string, log io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	fmt.Fprintf(log, "serving on %s\n", listener.Addr())
	server := &http.Server{Handler: handler(), ReadHeaderTimeout: timeout}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(listener) }()
	select {
	case <-ctx.Done():
		fmt.Fprintln(log, "told to end")
		return server.Close()
	case err := <-ended:
		return fmt.Errorf("serving: %w", err)
	}
}

func handler() http.Handler {
	mux := http.NewServeMux()
	answer := func(pattern string, find func(*http.Request) (string, error)) {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) {
			text, err := find(r)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_, _ = io.WriteString(w, text)
		})
	}
	var unwell atomic.Bool
	answer("/healthz", func(*http.Request) (string, error) {
		if unwell.Load() {
			return "", errors.New("it is to be unwell")
		}
		return "ok\n", nil
	})
	answer("/become", func(r *http.Request) (string, error) {
		well, err := strconv.ParseBool(r.FormValue("well"))
		if err == nil {
			unwell.Store(!well)
		}
		return fmt.Sprintf("well: %t\n", !unwell.Load()), err
	})
	answer("/name", func(*http.Request) (string, error) { return os.Hostname() })
	answer("/env", func(r *http.Request) (string, error) {
		value, ok := os.LookupEnv(r.FormValue("name"))
		if !ok {
			return "", errors.New("there is no such variable")
		}
		return value, nil
	})
	answer("/file", func(r *http.Request) (string, error) {
		content, err := os.ReadFile(r.FormValue("path"))
		return string(content), err
	})
	answer("/fetch", fetch)
	answer("/etcd", askEtcd)
	answer("/etcd/keys", listEtcd)
	return mux
}

func fetch(r *http.Request) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, r.FormValue("url"), nil)
	if err != nil {
		return "", err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerLimit))
	if err != nil {
		return "", err
	}
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("it answers %s: %s", response.Status, body)
	}
	return string(body), nil
}
