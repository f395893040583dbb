// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mooring-dev/mooring/lab/internal/bgp/fabric"
	"github.com/mooring-dev/mooring/lab/internal/bgp/netns"
	"github.com/mooring-dev/mooring/lab/internal/bgp/probe"
)

// State is what the network says of itself.
type State struct {
	Nodes []NodeState `json:"nodes"`
	// Pending are the machines whose coming or going the network has not followed yet.
	Pending []string `json:"pending,omitempty"`
	// Processes are the numbers of the processes of the nodes, by node/process.
	Processes map[string]int `json:"processes"`
}

// NodeState is one node's.
type NodeState struct {
	Name string `json:"name"`
	// Address is empty, and AddressV6 absent, where the node has none of the family.
	Address   netip.Prefix `json:"address"`
	AddressV6 netip.Prefix `json:"addressV6,omitzero"`
	// Pods are the IPv4 addresses first.
	Pods []netip.Addr `json:"pods"`
	// Missing are the pod addresses of other nodes to which this one has no route.
	Missing []netip.Addr `json:"missing"`
}

// Converged reports whether the network is what the machines are, and every node has a route to every pod address.
func (s State) Converged() bool {
	have, want := s.Routes()
	return len(s.Nodes) > 0 && len(s.Pending) == 0 && have == want
}

// Routes counts the routes that the nodes have to each other's pod addresses, and those that they should have.
func (s State) Routes() (have, want int) {
	pods, missing := 0, 0
	for _, n := range s.Nodes {
		pods += len(n.Pods)
		missing += len(n.Missing)
	}
	for _, n := range s.Nodes {
		want += pods - len(n.Pods)
	}
	return want - missing, want
}

// server answers on a Unix socket, since nothing else of the fabric is reachable.
type server struct {
	hosts     func() []fabric.Host
	processes func() map[string]int
	// pending names the machines that the network has not followed yet.
	pending func() ([]string, error)
	mu      sync.Mutex // guards what follows
	probers map[string]running
	last    int
}

type running struct {
	*probe.Prober
	interval time.Duration
}

func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /state", s.state)
	mux.HandleFunc("POST /probes", s.start)
	mux.HandleFunc("DELETE /probes/{id}", s.stop)
	return mux
}

// listen makes the socket again: one that an earlier process left is nobody's. The path is relative to the working directory, because the path
// of a socket is limited to 107 bytes.
func listen(path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return net.Listen("unix", path) //nolint:noctx // it returns at once
}

func (s *server) state(w http.ResponseWriter, _ *http.Request) {
	// Asked first: what joins meanwhile has its routes missing instead.
	pending, err := s.pending()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	out := State{Processes: s.processes(), Pending: pending}
	hosts := s.hosts()
	for _, h := range hosts {
		var others []netip.Addr
		for _, o := range hosts {
			if o.Name != h.Name {
				others = append(others, o.Pods...)
			}
		}
		missing, err := h.Missing(others)
		if errors.Is(err, netns.ErrClosed) {
			out.Pending = append(out.Pending, h.Name) // it has just gone
			continue
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		out.Nodes = append(out.Nodes, NodeState{Name: h.Name, Address: h.Address, AddressV6: h.AddressV6, Pods: h.Pods, Missing: missing})
	}
	reply(w, out)
}

func (s *server) start(w http.ResponseWriter, r *http.Request) {
	interval, err := time.ParseDuration(r.FormValue("interval"))
	if err != nil || interval < time.Millisecond {
		http.Error(w, fmt.Sprintf("interval %q is not a duration of at least 1ms", r.FormValue("interval")), http.StatusBadRequest)
		return
	}
	var ends []probe.End
	for _, h := range s.hosts() {
		for _, family := range []func(netip.Addr) bool{netip.Addr.Is4, netip.Addr.Is6} {
			if i := slices.IndexFunc(h.Pods, family); i >= 0 {
				ends = append(ends, probe.End{Node: h.Name, Address: h.Pods[i], Do: h.Do})
			}
		}
	}
	prober, err := probe.Start(context.WithoutCancel(r.Context()), ends, interval)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	id := strconv.Itoa(s.last)
	s.probers[id] = running{prober, interval}
	reply(w, id)
}

func (s *server) stop(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	prober, ok := s.probers[r.PathValue("id")]
	delete(s.probers, r.PathValue("id"))
	s.mu.Unlock()
	if !ok {
		http.Error(w, "there is no such probe", http.StatusNotFound)
		return
	}
	var changed []string
	if text := r.FormValue("changed"); text != "" {
		changed = strings.Split(text, ",")
	}
	reply(w, probe.Summarize(prober.Stop(), prober.interval, changed))
}

func reply(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}
