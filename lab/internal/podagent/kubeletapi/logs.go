// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"time"
)

// Logs finds the logs of containers.
type Logs interface {
	// Find returns the log files of a container's runs, the oldest first. The error is for the user.
	Find(namespace, pod, container string) ([]string, error)
	// Runs reports whether the container runs, so that more may come.
	Runs(namespace, pod, container string) bool
}

// pollInterval is how often a log that is followed is looked at.
const pollInterval = 200 * time.Millisecond

// question is which part of a log somebody wants.
type question struct {
	follow, previous bool
	tail, limit      int64 // -1: all
}

// parse reads the options of a log (k8s.io/api/core/v1, PodLogOptions), and refuses those that need times of lines, which the lab does not keep.
func parse(values url.Values) (question, error) {
	q := question{tail: -1, limit: -1}
	for _, name := range []string{"sinceSeconds", "sinceTime"} {
		if values.Get(name) != "" {
			return q, errors.New("the lab keeps no times of log lines; leave --since and --since-time out")
		}
	}
	if values.Get("timestamps") == "true" {
		return q, errors.New("the lab keeps no times of log lines; leave --timestamps out")
	}
	q.follow, q.previous = values.Get("follow") == "true", values.Get("previous") == "true"
	for name, number := range map[string]*int64{"tailLines": &q.tail, "limitBytes": &q.limit} {
		text := values.Get(name)
		if text == "" {
			continue
		}
		parsed, err := strconv.ParseInt(text, 10, 64)
		if err != nil || parsed < 0 {
			return q, fmt.Errorf("%s %q is not a number of 0 or more", name, text)
		}
		*number = parsed
	}
	return q, nil
}

// Handler answers the API server's questions.
func Handler(logs Logs) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, r *http.Request) {
		q, err := parse(r.URL.Query())
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		namespace, pod, container := r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container")
		file, err := open(logs, q, namespace, pod, container)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		defer func() { _ = file.Close() }()
		w.Header().Set("Content-Type", "text/plain")
		more := func() bool { return q.follow && !q.previous && logs.Runs(namespace, pod, container) }
		_ = send(r.Context(), w, file, q, more) // whoever asked has gone away
	})
	return mux
}

func open(logs Logs, q question, namespace, pod, container string) (*os.File, error) {
	files, err := logs.Find(namespace, pod, container)
	if err != nil {
		return nil, err
	}
	back := 1
	if q.previous {
		back = 2
	}
	if len(files) < back {
		return nil, fmt.Errorf("container %q of pod %s/%s has no such log; it has run %d times", container, namespace, pod, len(files))
	}
	return os.Open(files[len(files)-back])
}

// send sends what is asked for of a log, and what comes after while more says that something may.
func send(ctx context.Context, w http.ResponseWriter, file *os.File, q question, more func() bool) error {
	if q.tail >= 0 {
		if err := seekTail(file, q.tail); err != nil {
			return err
		}
	}
	var out io.Writer = w
	if q.limit >= 0 {
		out = &limited{w: w, left: q.limit}
	}
	for {
		again := more() // asked before reading: what was written before the end is sent
		if _, err := io.Copy(out, file); err != nil {
			return err
		}
		if !again {
			return nil
		}
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pollInterval):
		}
	}
}

// errEnough says that as many bytes were sent as were asked for.
var errEnough = errors.New("enough")

// limited passes on so many bytes.
type limited struct {
	w    io.Writer
	left int64
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if int64(len(p)) <= l.left {
		l.left -= int64(len(p))
		return l.w.Write(p)
	}
	n, err := l.w.Write(p[:l.left])
	l.left = 0
	return n, errors.Join(err, errEnough)
}

// seekTail goes to where the last lines begin, reading from the end.
func seekTail(file *os.File, lines int64) error {
	const step = 64 << 10
	end, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if lines == 0 {
		return nil
	}
	buffer := make([]byte, step)
	last := true // the newline at the very end belongs to the last line
	for at := end; at > 0; {
		size := min(step, at)
		at -= size
		if _, err := file.ReadAt(buffer[:size], at); err != nil {
			return err
		}
		for i := size; i > 0; {
			i = int64(bytes.LastIndexByte(buffer[:i], '\n'))
			if i < 0 {
				break
			}
			if last && at+i == end-1 {
				last = false
				continue
			}
			if lines--; lines == 0 {
				_, err := file.Seek(at+i+1, io.SeekStart)
				return err
			}
		}
	}
	_, err = file.Seek(0, io.SeekStart)
	return err
}
