// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/plugin/page"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/internal/ui"
)

// asked is an answer.
type asked struct {
	code   int
	header http.Header
	body   string
}

// ask sends a request, changed as a test wants it, and follows no redirect.
func ask(t *testing.T, address string, changes ...func(*http.Request)) asked {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range changes {
		change(request)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return asked{response.StatusCode, response.Header, string(body)}
}

func method(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

func host(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }

// What a request must and must not be.
func TestOnlyTheOwnerReads(t *testing.T) {
	t.Parallel()
	s := &source{world: worldOf(5)}
	server := serve(t, s, quietClock())
	own, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	if own.Hostname() != "127.0.0.1" || !regexp.MustCompile(`^/[A-Za-z0-9_-]{43}/$`).MatchString(own.Path) {
		t.Errorf("the page is at %s", own)
	}
	origin, data := "http://"+own.Host, server.URL()+"page.json"
	for name, tt := range map[string]struct {
		address string
		change  func(*http.Request)
		code    int
		says    string
	}{
		"the page":                       {server.URL(), nil, 200, "<title>Mooring</title>"},
		"its data":                       {data, nil, 200, `"cluster":"production at`},
		"the drawing":                    {server.URL() + "topology.svg", nil, 200, "<svg "},
		"a page of our own asks":         {data, header("Origin", origin), 200, `"cluster"`},
		"HEAD":                           {data, method(http.MethodHead), 200, ""},
		"no token":                       {origin + "/", nil, 404, "use the whole address that kubectl mooring ui has printed"},
		"no token, data":                 {origin + "/page.json", nil, 404, "use the whole address"},
		"a wrong token":                  {origin + "/" + strings.Repeat("A", 43) + "/page.json", nil, 404, "use the whole address"},
		"half a token":                   {origin + own.Path[:20] + "/page.json", nil, 404, "use the whole address"},
		"the ticket as a token":          {server.TicketURL() + "/page.json", nil, 404, "use the whole address"},
		"another file":                   {server.URL() + "server.go", nil, 404, "there is no such file"},
		"a way out":                      {server.URL() + "%2e%2e/server.go", nil, 404, "there is no such file"},
		"a name that was made to lead":   {data, host("evil.example"), 421, "this page is at " + origin + "; to reach it by another name, such as through a tunnel, start it with kubectl mooring ui --allowed-host and that name\n"},
		"localhost":                      {data, host("localhost:" + own.Port()), 421, "--allowed-host"},
		"another port":                   {data, host("127.0.0.1:1"), 421, "--allowed-host"},
		"another origin":                 {data, header("Origin", "https://evil.example"), 403, "another site may not ask"},
		"an origin that hides":           {data, header("Origin", "null"), 403, "another site may not ask"},
		"another site's script or image": {data, header("Sec-Fetch-Site", "cross-site"), 403, "another site may not ask"},
		"POST":                           {data, method(http.MethodPost), 405, "this page only reads"},
		"DELETE":                         {data, method(http.MethodDelete), 405, "this page only reads"},
		"OPTIONS":                        {data, method(http.MethodOptions), 405, "this page only reads"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if tt.change == nil {
				tt.change = func(*http.Request) {}
			}
			got := ask(t, tt.address, tt.change)
			if got.code != tt.code || !strings.Contains(got.body, tt.says) {
				t.Errorf("%d %.200s", got.code, got.body)
			}
			if tt.code != 200 && strings.Contains(got.body, "worker-") {
				t.Errorf("it shows something: %.200s", got.body)
			}
			const policy = "default-src 'none'; "
			if csp := got.header.Get("Content-Security-Policy"); !strings.HasPrefix(csp, policy) || strings.Contains(csp, "script-src 'unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("policy %q", csp)
			}
			for name, value := range map[string]string{
				"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Frame-Options": "DENY",
				"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Access-Control-Allow-Origin": "",
			} {
				if got.header.Get(name) != value {
					t.Errorf("%s is %q", name, got.header.Get(name))
				}
			}
		})
	}
}

// Through a tunnel the page has another name, which must have been allowed, by itself for every port or with one; its own
// requests come under that name. No other name is let in by that.
func TestAllowedHosts(t *testing.T) {
	t.Parallel()
	server, err := page.Listen(t.Context(), 0, []string{"bastion.example", "localhost:9000"}, (&source{world: worldOf(5)}).read, quietClock())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	for name, tt := range map[string]struct {
		host, origin string
		code         int
	}{
		"a name":                  {"bastion.example", "", 200},
		"a name with any port":    {"bastion.example:8443", "https://bastion.example:8443", 200},
		"a name with its port":    {"localhost:9000", "http://localhost:9000", 200},
		"another port":            {"localhost:9001", "", 421},
		"a name that ends so":     {"evil-bastion.example", "", 421},
		"a name that begins so":   {"bastion.example.evil", "", 421},
		"no name":                 {":9000", "", 421},
		"another site asks":       {"bastion.example", "http://localhost:9000", 403},
		"an origin that ends so":  {"bastion.example", "http://evil-bastion.example", 403},
		"the page's own, as ever": {"", "", 200},
	} {
		got := ask(t, server.URL()+"page.json", func(r *http.Request) {
			if r.Host = tt.host; tt.host == "" {
				r.Host = r.URL.Host
			}
			r.Header.Set("Origin", tt.origin)
		})
		if got.code != tt.code || tt.code == 421 && strings.Count(got.body, "\n") != 1 {
			t.Errorf("%s: %d %.200s", name, got.code, got.body)
		}
	}
	if got := ask(t, server.TicketURL(), host("localhost:9000")); got.code != http.StatusSeeOther || got.header.Get("Location")[0] != '/' {
		t.Errorf("the ticket leads away from the tunnel: %q", got.header.Get("Location"))
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The ticket leads to the page once, and two servers have nothing in common.
func TestTicketWorksOnce(t *testing.T) {
	t.Parallel()
	server, other := serve(t, &source{}, quietClock()), serve(t, &source{}, quietClock())
	if got := ask(t, server.TicketURL(), method(http.MethodHead)); got.code != 404 {
		t.Errorf("HEAD uses the ticket: %d", got.code)
	}
	if got := ask(t, server.TicketURL()); got.code != http.StatusSeeOther || !strings.HasSuffix(server.URL(), got.header.Get("Location")) || got.header.Get("Location")[0] != '/' {
		t.Errorf("%d to %q", got.code, got.header.Get("Location"))
	}
	if got := ask(t, server.TicketURL()); got.code != http.StatusGone || got.header.Get("Location") != "" || !strings.HasPrefix(got.body, "this address works once: use the one") {
		t.Errorf("again: %d %s", got.code, got.body)
	}
	path := func(s *page.Server) string { return s.URL()[strings.LastIndex(strings.TrimSuffix(s.URL(), "/"), "/"):] }
	if path(server) == path(other) || strings.Contains(server.TicketURL(), strings.Trim(path(server), "/")) {
		t.Errorf("%s, %s, %s", server.URL(), other.URL(), server.TicketURL())
	}
}

// The cluster is read when somebody asks for it again, once for all who ask at a time; filters cost nothing.
func TestReadsAreShared(t *testing.T) {
	t.Parallel()
	s, c := &source{world: worldOf(300)}, quietClock()
	server := serve(t, s, c)
	reads := func() (n int) {
		s.set(func(s *source) { n = s.reads })
		return n
	}
	for _, query := range []string{"", "?q=worker-00017", "?only=attention", "?fresh=1", "?fresh=1"} {
		if got := ask(t, server.URL()+"page.json"+query); got.code != 200 {
			t.Fatalf("%s: %d", query, got.code)
		}
	}
	if reads() != 1 {
		t.Errorf("read %d times", reads())
	}
	c.SetTime(c.Now().Add(page.Every))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { ask(t, server.URL()+"page.json?fresh=1") })
	}
	wg.Wait()
	if reads() != 2 {
		t.Errorf("read %d times after eight have asked", reads())
	}
	s.set(func(s *source) { s.err = errors.New("listing Nodes: refused") })
	c.SetTime(c.Now().Add(page.Every))
	var p ui.Page
	for range 3 {
		if got := ask(t, server.URL()+"page.json?fresh=1"); json.Unmarshal([]byte(got.body), &p) != nil || p.Stale != "listing Nodes: refused" || p.Machines.Total != 300 {
			t.Errorf("when the cluster is gone: %.200s", got.body)
		}
	}
	if reads() != 3 {
		t.Errorf("read %d times: one that fails is tried again at the pace of one that does not", reads())
	}
	s.set(func(s *source) { s.err = nil })
	c.SetTime(c.Now().Add(page.Every))
	p = ui.Page{}
	if got := ask(t, server.URL()+"page.json?fresh=1&q=worker-00017"); json.Unmarshal([]byte(got.body), &p) != nil || p.Stale != "" || p.Machines.Total != 1 {
		t.Errorf("when it is back: %.200s", got.body)
	}
}

// A cluster that cannot be read is told before anything is listened at.
func TestFirstReadingFails(t *testing.T) {
	t.Parallel()
	want := errors.New("listing Nodes: forbidden")
	if _, err := page.Listen(t.Context(), 0, nil, (&source{err: want}).read, quietClock()); !errors.Is(err, want) {
		t.Errorf("%v", err)
	}
}

// Ending the context ends a request that waits for a cluster that does not respond, and the server.
func TestEndsWhileReading(t *testing.T) {
	t.Parallel()
	c, reading, first := quietClock(), make(chan struct{}), true
	read := func(ctx context.Context) (ui.World, error) {
		if first {
			first = false
			return worldOf(5), nil
		}
		close(reading)
		<-ctx.Done()
		return ui.World{}, ctx.Err()
	}
	server, err := page.Listen(t.Context(), 0, nil, read, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	c.SetTime(c.Now().Add(page.Every))
	go func() {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL()+"page.json?fresh=1", http.NoBody)
		if err != nil {
			return
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-reading
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// How much a browser is given at 5,000 machines: everything together less than a photograph.
func TestBytes(t *testing.T) {
	t.Parallel()
	server := serve(t, &source{world: worldOf(5000)}, quietClock())
	for name, most := range map[string]int{"": 8 << 10, "page.css": 16 << 10, "page.js": 20 << 10, "icon.svg": 1 << 10, "page.json": 256 << 10, "topology.svg": 64 << 10} {
		got := ask(t, server.URL()+name)
		if got.code != 200 || len(got.body) > most || len(got.body) == 0 {
			t.Errorf("%q: %d, %d bytes", name, got.code, len(got.body))
		}
		t.Logf("%q: %d bytes", name, len(got.body))
	}
}

// The embedded files name no other address, and make no markup of texts: what the browser's policy enforces, seen without a browser.
func TestAssetsStayHere(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("assets", "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%q, %v", files, err)
	}
	outside := regexp.MustCompile(`(?i)https?://[^"'\s]+|innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function|\sstyle=|\son[a-z]+=`)
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range outside.FindAllString(string(content), -1) {
			if found != "http://www.w3.org/2000/svg" { // which names what an element is, and is not fetched
				t.Errorf("%s has %q", file, found)
			}
		}
	}
}

// While the cluster does not respond the page is old by its age, at once and without a request that has ended, and another
// page that is opened then gets what is known.
func TestOldWhileTheClusterDoesNotRespond(t *testing.T) {
	t.Parallel()
	c, reading, first := quietClock(), make(chan struct{}), true
	read := func(ctx context.Context) (ui.World, error) {
		if first {
			first = false
			return worldOf(5), nil
		}
		close(reading)
		<-ctx.Done()
		return ui.World{}, ctx.Err()
	}
	server, err := page.Listen(t.Context(), 0, nil, read, c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	c.SetTime(c.Now().Add(page.Every))
	left, leave := context.WithCancel(t.Context())
	go func() {
		request, err := http.NewRequestWithContext(left, http.MethodGet, server.URL()+"page.json?fresh=1", http.NoBody)
		if err != nil {
			return
		}
		if response, err := http.DefaultClient.Do(request); err == nil {
			_ = response.Body.Close()
		}
	}()
	<-reading
	leave() // the page goes away: the reading is for the next one
	for _, step := range []struct {
		after time.Duration
		stale string
	}{{0, ""}, {page.Every + time.Second, "it was read 31s ago"}, {time.Hour, "it was read 1h0m31s ago"}} {
		c.SetTime(c.Now().Add(step.after))
		var p ui.Page
		got := ask(t, server.URL()+"page.json")
		if json.Unmarshal([]byte(got.body), &p) != nil || p.Stale != step.stale || p.Machines.Total != 5 {
			t.Errorf("after %s: stale %q, want %q, %d machines", step.after, p.Stale, step.stale, p.Machines.Total)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("ended with %v", err)
	}
}

// What is down stands out most: its color has the greatest contrast with what it stands on, by WCAG's formula, as a square and as
// a tile, in light and in dark; and what is written on it can be read.
func TestDownIsTheStrongestColor(t *testing.T) {
	t.Parallel()
	style := string(must.Get(os.ReadFile(filepath.Join("assets", "page.css"))).Or(t))
	light, dark, _ := strings.Cut(style, "@media (prefers-color-scheme: dark)")
	dark, _, _ = strings.Cut(dark, "* { box-sizing")
	light, _, _ = strings.Cut(light, "}")
	for name, text := range map[string]string{"light": light, "dark": dark} {
		color := map[string]float64{}
		for _, c := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3,6});`).FindAllStringSubmatch(text, -1) {
			color[c[1]] = luminance(t, c[2])
		}
		for _, other := range []string{"disagree", "unknown", "settling", "one-side", "agree"} {
			for _, end := range []string{"", "-line"} {
				down, is := contrast(color["down"+end], color["card"]), contrast(color[other+end], color["card"])
				if color[other+end] == 0 || down <= is {
					t.Errorf("%s: down%s has contrast %.1f, %s%s %.1f", name, end, down, other, end, is)
				}
			}
		}
		if readable := contrast(color["down-ink"], color["down"]); readable < 4.5 {
			t.Errorf("%s: text on down has contrast %.1f", name, readable)
		}
	}
}

// luminance is that of a color, 0 to 1.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{.2126, .7152, .0722} {
		v := float64(must.Get(strconv.ParseUint(hex[2*i:2*i+2], 16, 8)).Or(t)) / 255
		if v <= .03928 {
			v /= 12.92
		} else {
			v = math.Pow((v+.055)/1.055, 2.4)
		}
		sum += weight * v
	}
	return sum
}

func contrast(a, b float64) float64 { return (max(a, b) + .05) / (min(a, b) + .05) }
