// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/ui"
)

// assets are the page, its style, its script and its icon; nothing is built.
//
//go:embed assets
var assets embed.FS

// Every is how often a page that is looked at asks for a new reading.
const Every = 15 * time.Second

// The two policies of what a browser may do with an answer. The drawing has its style in it, and is shown as an image, which runs nothing.
const (
	pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; " +
		"frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
	drawingPolicy = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox"
)

// Reader reads a cluster. It is called by one caller at a time.
type Reader func(ctx context.Context) (ui.World, error)

// Server is the page on one port of the loopback address.
type Server struct {
	listener net.Listener
	http     *http.Server
	host     string // address and port
	// allowed are other names, each with a port or for any, by which the page may be reached.
	allowed []string
	token   string
	ticket  string
	// used reports that the ticket was used.
	used     atomic.Bool
	snapshot *snapshot
}

// Listen reads the cluster once, so that the first page has something to show and what is wrong is told at once, and listens at 127.0.0.1. A port of
// 0 is any free one. allowed are other names by which a browser may reach it, such as through a tunnel: NAME, or NAME:PORT.
// [Server.Serve] must follow.
func Listen(ctx context.Context, port int, allowed []string, read Reader, c clock.PassiveClock) (*Server, error) {
	s := &Server{allowed: allowed, snapshot: &snapshot{read: read, clock: c, turn: make(chan struct{}, 1)}}
	if err := s.snapshot.first(ctx); err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp4", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return nil, fmt.Errorf("listening for the browser, pass --port for another port: %w", err)
	}
	s.listener, s.host, s.token, s.ticket = listener, listener.Addr().String(), secret(), secret()
	return s, nil
}

// secret is 256 random bits for a URL.
func secret() string {
	bits := make([]byte, 32)
	_, _ = rand.Read(bits) // which never fails
	return base64.RawURLEncoding.EncodeToString(bits)
}

// URL is where the page is. Anyone who knows it sees the page.
func (s *Server) URL() string { return "http://" + s.host + "/" + s.token + "/" }

// TicketURL leads to the page once. It is for the browser's command line, which other users of the machine may see.
func (s *Server) TicketURL() string { return "http://" + s.host + "/" + s.ticket }

// Close ends a Server that is not served.
func (s *Server) Close() error { return s.listener.Close() }

// Serve answers until ctx ends, and returns nil then.
func (s *Server) Serve(ctx context.Context) error {
	life, end := context.WithCancel(ctx)
	defer end()
	s.snapshot.life = life
	s.http = &http.Server{
		Handler: s, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		BaseContext: func(net.Listener) context.Context { return life },
	}
	done := make(chan error, 1)
	go func() { done <- s.http.Serve(s.listener) }()
	select {
	case err := <-done:
		return fmt.Errorf("serving the page: %w", err)
	case <-ctx.Done():
	}
	end() // what is being read for a page need not be read to its end
	_ = s.http.Close()
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the page: %w", err)
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range map[string]string{
		"Content-Security-Policy": pagePolicy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY", "Referrer-Policy": "no-referrer",
		"Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		header.Set(name, value)
	}
	switch {
	case !s.isHost(r.Host):
		http.Error(w, "this page is at http://"+s.host+"; to reach it by another name, such as through a tunnel, "+
			"start it with kubectl mooring ui --allowed-host and that name", http.StatusMisdirectedRequest)
		return
	case r.Header.Get("Sec-Fetch-Site") == "cross-site", !sameOrigin(r):
		http.Error(w, "another site may not ask", http.StatusForbidden)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		header.Set("Allow", "GET, HEAD")
		http.Error(w, "this page only reads", http.StatusMethodNotAllowed)
		return
	}
	token, rest, found := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case same(token, s.token) && found:
		s.file(w, r, rest)
	case same(token, s.ticket) && !found && r.Method == http.MethodGet:
		s.enter(w, r)
	default:
		http.Error(w, "use the whole address that kubectl mooring ui has printed", http.StatusNotFound)
	}
}

// isHost reports whether the page may be reached by a name. Any other may be one that its owner lets point here.
func (s *Server) isHost(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	return host == s.host || slices.ContainsFunc(s.allowed, func(a string) bool { return a == host || a == name })
}

// sameOrigin reports whether the page itself asks. A tunnel may end TLS.
func sameOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	return origin == "" || origin == "http://"+r.Host || origin == "https://"+r.Host
}

// same compares in a time that says nothing of where two texts differ.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// enter lets in anyone who comes first with the ticket.
func (s *Server) enter(w http.ResponseWriter, r *http.Request) {
	if s.used.Swap(true) {
		http.Error(w, "this address works once: use the one that kubectl mooring ui has printed", http.StatusGone)
		return
	}
	http.Redirect(w, r, "/"+s.token+"/", http.StatusSeeOther)
}

// file answers what is below the token.
func (s *Server) file(w http.ResponseWriter, r *http.Request, name string) {
	types := map[string]string{
		"index.html": "text/html; charset=utf-8", "page.css": "text/css; charset=utf-8", "page.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml",
	}
	if name == "" {
		name = "index.html"
	}
	switch name {
	case "page.json":
		s.page(w, r)
	case "names.json":
		answerJSON(w, ui.Names(s.snapshot.now().world, filterOf(r)))
	case "topology.svg":
		w.Header().Set("Content-Security-Policy", drawingPolicy)
		answer(w, "image/svg+xml", []byte(s.snapshot.now().svg))
	default:
		content, err := assets.ReadFile("assets/" + name)
		if types[name] == "" || err != nil {
			http.Error(w, "there is no such file", http.StatusNotFound)
			return
		}
		answer(w, types[name], content)
	}
}

// answer sends a whole body; a HEAD request gets its length.
func answer(w http.ResponseWriter, contentType string, body []byte) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	_, _ = w.Write(body)
}

// answerJSON sends a value.
func answerJSON(w http.ResponseWriter, value any) {
	body, err := json.Marshal(value)
	if err != nil {
		http.Error(w, "the page cannot be encoded", http.StatusInternalServerError)
		return
	}
	answer(w, "application/json", body)
}

// filterOf is what a request asks to see.
func filterOf(r *http.Request) ui.Filter {
	query := r.URL.Query()
	return ui.Filter{Text: query.Get("q"), Attention: query.Get("only") == "attention"}
}

// page answers what is to be shown: with fresh set of a reading that is not old, otherwise of the last one, at once. The
// browser counts on from its age by a clock of its own.
func (s *Server) page(w http.ResponseWriter, r *http.Request) {
	if r.URL.Query().Get("fresh") != "" {
		s.snapshot.renew(r.Context())
	}
	seen := s.snapshot.now()
	answerJSON(w, struct {
		ui.Page
		EverySeconds float64 `json:"everySeconds"`
		AgeSeconds   float64 `json:"ageSeconds"`
		OldSeconds   float64 `json:"oldSeconds"`
	}{ui.View(seen.world, filterOf(r), seen.stale), Every.Seconds(), seen.age.Seconds(), oldAfter.Seconds()})
}
