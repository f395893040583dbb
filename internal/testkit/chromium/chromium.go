// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package chromium drives Debian's Chromium for tests of pages, through the DevTools protocol on a pipe: no port, no driver, no other module.
package chromium

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// answerTime is how long an answer may take, a bound that only a hang exceeds.
const answerTime = 2 * time.Minute

// Browser is a headless browser with a profile of its own.
type Browser struct {
	tb   testing.TB
	in   *os.File
	cmd  *exec.Cmd
	done chan struct{} // closed when nothing is read from it any more

	mu      sync.Mutex // guards what follows
	next    int
	waiting map[int]chan message
	pages   map[string]*Page // by session
}

// message is one of the DevTools protocol, in either direction.
type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Start starts a browser that ends with the test, or skips the test where there is none; under CI=true it fails it.
func Start(tb testing.TB) *Browser {
	tb.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		testkit.Skip(tb, "it needs chromium: apt-get install -y --no-install-recommends chromium")
	}
	toBrowser, in := pipe(tb)
	out, fromBrowser := pipe(tb)
	// Not tb.TempDir: the browser's helpers write to the profile until they are gone, which may be after the browser is.
	profile, err := os.MkdirTemp("", "mooring-chromium-") //nolint:usetesting // as above
	must.Do(tb, err)
	cmd := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", //nolint:noctx // it ends with the test
		"--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-breakpad",
		"--disable-background-timer-throttling", "--disable-renderer-backgrounding", "--disable-backgrounding-occluded-windows", "--force-device-scale-factor=1",
		"--user-data-dir="+profile, "--remote-debugging-pipe", "about:blank")
	cmd.ExtraFiles = []*os.File{toBrowser, fromBrowser} // which the browser has as 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Env = append(os.Environ(), "HOME="+profile, "XDG_CONFIG_HOME="+profile, "XDG_CACHE_HOME="+profile)
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting chromium: %v", err)
	}
	_, _ = toBrowser.Close(), fromBrowser.Close()
	b := &Browser{tb: tb, in: in, cmd: cmd, done: make(chan struct{}), waiting: map[int]chan message{}, pages: map[string]*Page{}}
	go b.read(out)
	tb.Cleanup(func() {
		// Asked first, so that it waits for its helpers.
		if b.call("", "Browser.close", map[string]any{}, nil) != nil {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		}
		_ = cmd.Wait()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = in.Close()
		<-b.done
		testkit.Eventually(tb, "the browser's profile to be removed", func() string {
			if err := os.RemoveAll(profile); err != nil {
				return err.Error()
			}
			return ""
		})
	})
	return b
}

func pipe(tb testing.TB) (r, w *os.File) {
	tb.Helper()
	r, w, err := os.Pipe()
	must.Do(tb, err)
	return r, w
}

// read hands out what the browser says until it ends. Messages end with a zero byte.
func (b *Browser) read(out *os.File) {
	defer close(b.done)
	defer func() { _ = out.Close() }()
	for reader := bufio.NewReader(out); ; {
		text, err := reader.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(text[:len(text)-1], &m) != nil {
			continue
		}
		b.mu.Lock()
		answer, page := b.waiting[m.ID], b.pages[m.SessionID]
		delete(b.waiting, m.ID)
		b.mu.Unlock()
		switch {
		case m.ID != 0 && answer != nil:
			answer <- m
		case m.ID == 0 && page != nil:
			page.note(m)
		}
	}
}

// call asks the browser and decodes its answer into result, unless that is nil.
func (b *Browser) call(session, method string, params, result any) error {
	text, err := json.Marshal(params)
	if err != nil {
		return err
	}
	answer := make(chan message, 1)
	b.mu.Lock()
	b.next++
	m := message{ID: b.next, SessionID: session, Method: method, Params: text}
	b.waiting[m.ID] = answer
	if text, err = json.Marshal(m); err == nil {
		_, err = b.in.Write(append(text, 0))
	}
	b.mu.Unlock()
	if err != nil {
		return err
	}
	select {
	case m = <-answer:
	case <-b.done:
		return errors.New("the browser has ended")
	case <-time.After(answerTime):
		return errors.New("no response")
	}
	if m.Error != nil {
		return errors.New(m.Error.Message)
	}
	if result == nil {
		return nil
	}
	return json.Unmarshal(m.Result, result)
}

// Page is one tab. What it asked for and what went wrong in it is kept.
type Page struct {
	b       *Browser
	session string

	mu       sync.Mutex // guards what follows
	requests []string
	troubles []string
}

// Open opens an empty tab of a size in pixels.
func (b *Browser) Open(width, height int) *Page {
	b.tb.Helper()
	var target struct {
		TargetID string `json:"targetId"`
	}
	var session struct {
		SessionID string `json:"sessionId"`
	}
	// A window of its own: a tab behind another one counts as hidden.
	err := b.call("", "Target.createTarget", map[string]any{"url": "about:blank", "newWindow": true, "width": width, "height": height}, &target)
	if err == nil {
		err = b.call("", "Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	}
	if err != nil {
		b.tb.Fatalf("opening a tab: %v", err)
	}
	p := &Page{b: b, session: session.SessionID}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Security"} {
		p.Do(domain+".enable", nil, nil)
	}
	p.Do("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	p.Do("Emulation.setFocusEmulationEnabled", map[string]any{"enabled": true}, nil)
	return p
}

// Close closes the tab.
func (p *Page) Close() {
	p.b.tb.Helper()
	p.Do("Page.close", nil, nil)
}

// note keeps what an event tells: requests, and everything that a console shows as a warning or worse.
func (p *Page) note(m message) {
	var event struct {
		Type    string `json:"type"`
		Request struct {
			URL string `json:"url"`
		} `json:"request"`
		Entry            struct{ Level, Text, URL string } `json:"entry"`
		ExceptionDetails json.RawMessage                   `json:"exceptionDetails"`
		Args             json.RawMessage                   `json:"args"`
	}
	_ = json.Unmarshal(m.Params, &event) // what has none of these tells nothing
	p.mu.Lock()
	defer p.mu.Unlock()
	switch m.Method {
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, event.Request.URL)
	case "Log.entryAdded":
		if event.Entry.Level == "error" || event.Entry.Level == "warning" {
			p.troubles = append(p.troubles, event.Entry.Text+" "+event.Entry.URL)
		}
	case "Runtime.exceptionThrown":
		p.troubles = append(p.troubles, string(event.ExceptionDetails))
	case "Runtime.consoleAPICalled":
		if event.Type == "error" || event.Type == "warning" || event.Type == "assert" {
			p.troubles = append(p.troubles, string(event.Args))
		}
	}
}

// Requests are the addresses that were asked for so far.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.requests...)
}

// Troubles are errors and warnings of the console so far, exceptions and refusals of the page's policy among them.
func (p *Page) Troubles() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.troubles...)
}

// Do calls a method of the protocol on the tab.
func (p *Page) Do(method string, params, result any) {
	p.b.tb.Helper()
	if params == nil {
		params = map[string]any{}
	}
	if err := p.b.call(p.session, method, params, result); err != nil {
		p.b.tb.Fatalf("%s: %v", method, err)
	}
}

// Go opens an address. The page need not be complete when it returns.
func (p *Page) Go(url string) {
	p.b.tb.Helper()
	p.Do("Page.navigate", map[string]any{"url": url}, nil)
}

// Dark chooses the colors that the person prefers.
func (p *Page) Dark(dark bool) {
	p.b.tb.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	p.Do("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
}

// Eval runs a script's expression, waits for its promise, and decodes its value into result, unless that is nil.
func (p *Page) Eval(expression string, result any) error {
	var answer struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		ExceptionDetails *struct {
			Text      string `json:"text"`
			Exception struct {
				Description string `json:"description"`
			} `json:"exception"`
		} `json:"exceptionDetails"`
	}
	params := map[string]any{"expression": expression, "awaitPromise": true, "returnByValue": true, "userGesture": true}
	if err := p.b.call(p.session, "Runtime.evaluate", params, &answer); err != nil {
		return err
	}
	if x := answer.ExceptionDetails; x != nil {
		return fmt.Errorf("%s %s", x.Text, x.Exception.Description)
	}
	if result == nil {
		return nil
	}
	if len(answer.Result.Value) == 0 {
		return io.ErrUnexpectedEOF // the expression is undefined
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Until waits until an expression is true.
func (p *Page) Until(what, expression string) {
	p.b.tb.Helper()
	testkit.Eventually(p.b.tb, what, func() string {
		var is bool
		if err := p.Eval("Boolean("+expression+")", &is); err != nil {
			return err.Error()
		}
		if !is {
			return "not true: " + expression
		}
		return ""
	})
}

// Press presses a key by its name, such as Tab or ArrowRight, with a modifier if shift is set.
func (p *Page) Press(key string, shift bool) {
	p.b.tb.Helper()
	codes := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, " ": 32, "End": 35, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
	params := map[string]any{"type": "rawKeyDown", "key": key, "code": key, "windowsVirtualKeyCode": codes[key], "modifiers": 0}
	if shift {
		params["modifiers"] = 8
	}
	if key == "Enter" {
		params["type"], params["text"] = "keyDown", "\r"
	}
	p.Do("Input.dispatchKeyEvent", params, nil)
	delete(params, "text")
	params["type"] = "keyUp"
	p.Do("Input.dispatchKeyEvent", params, nil)
}

// Type types characters, each by a key of its own.
func (p *Page) Type(text string) {
	p.b.tb.Helper()
	for _, r := range text {
		p.Do("Input.dispatchKeyEvent", map[string]any{"type": "keyDown", "key": string(r), "text": string(r)}, nil)
		p.Do("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": string(r)}, nil)
	}
}

// Click clicks with the mouse on the middle of the first element that a selector finds.
func (p *Page) Click(selector string) {
	p.b.tb.Helper()
	var at struct{ X, Y float64 }
	quoted, err := json.Marshal(selector)
	if err == nil {
		err = p.Eval(`(() => { const e = document.querySelector(`+string(quoted)+`); e.scrollIntoView({block: "center", behavior: "instant"});
			const r = e.getBoundingClientRect(); return {X: r.x + r.width / 2, Y: r.y + r.height / 2} })()`, &at)
	}
	if err != nil {
		p.b.tb.Fatalf("clicking on %s: %v", selector, err)
	}
	for _, kind := range []string{"mousePressed", "mouseReleased"} {
		p.Do("Input.dispatchMouseEvent", map[string]any{"type": kind, "x": at.X, "y": at.Y, "button": "left", "clickCount": 1}, nil)
	}
}

// Screenshot is a PNG of the observed state, or of the whole page.
func (p *Page) Screenshot(whole bool) []byte {
	p.b.tb.Helper()
	var shot struct {
		Data string `json:"data"`
	}
	p.Do("Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole}, &shot)
	png := must.Get(base64.StdEncoding.DecodeString(shot.Data)).Or(p.b.tb)
	return png
}
