// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package page_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/agreement"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	"github.com/mooring-dev/mooring/internal/plugin/page"
	"github.com/mooring-dev/mooring/internal/testkit/chromium"
	"github.com/mooring-dev/mooring/internal/topology"
	"github.com/mooring-dev/mooring/internal/ui"
)

// screenshots names a folder that gets pictures of the page, for a person to look at.
const screenshots = "MOORING_SCREENSHOTS"

// axeScript names axe-core's axe.min.js (npm install axe-core), by which a person has the page judged for accessibility.
const axeScript = "MOORING_AXE"

// mostNodes is how many elements a page may have, whatever the cluster's size.
const mostNodes = 6000

// drawn waits until a page shows an answer and its drawing.
func drawn(p *chromium.Page) {
	p.Until("the page to be drawn", `document.querySelector("#summary").dataset.asked > 0 && document.querySelector("#summary").textContent !== "Reading…"
		&& [...document.images].every((i) => i.complete && i.naturalWidth > 0)`)
}

// answered runs a step that asks the server, and waits for its answer.
func answered(t *testing.T, p *chromium.Page, step func()) {
	t.Helper()
	var before float64
	if err := p.Eval(`Number(document.querySelector("#summary").dataset.asked)`, &before); err != nil {
		t.Fatal(err)
	}
	step()
	p.Until("an answer", fmt.Sprintf(`Number(document.querySelector("#summary").dataset.asked) > %v`, before))
}

// want compares a script's text with what it must be.
func want(t *testing.T, p *chromium.Page, expression, text string) {
	t.Helper()
	var got string
	if err := p.Eval(expression, &got); err != nil || got != text {
		t.Errorf("%s is %q (%v), want %q", expression, got, err, text)
	}
}

// quiet says what a page must never do: tell its console of trouble, or ask anybody but the server.
func quiet(t *testing.T, p *chromium.Page, server string) {
	t.Helper()
	for _, trouble := range p.Troubles() {
		t.Errorf("on the console: %s", trouble)
	}
	own, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	for _, request := range p.Requests() {
		if u, err := url.Parse(request); err != nil || u.Scheme != "http" || u.Host != own.Host {
			t.Errorf("asked for %s", request)
		}
	}
}

// The page in a real browser: at each size in both colors, with mouse and keyboard, with hostile names, and when the cluster goes away.
func TestPageInChromium(t *testing.T) {
	browser := chromium.Start(t)
	t.Run("sizes", func(t *testing.T) { testSizes(t, browser) })
	t.Run("ways", func(t *testing.T) { testWays(t, browser) })
	t.Run("filters", func(t *testing.T) { testFilters(t, browser) })
	t.Run("keyboard", func(t *testing.T) { testKeyboard(t, browser) })
	t.Run("changes", func(t *testing.T) { testChanges(t, browser) })
	t.Run("narrow", func(t *testing.T) { testNarrow(t, browser) })
	t.Run("hostile", func(t *testing.T) { testHostile(t, browser) })
}

// picture takes pictures in both colors if a person wants them.
func picture(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	folder := os.Getenv(screenshots)
	if folder == "" {
		return
	}
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		for _, whole := range []bool{false, true} {
			path := filepath.Join(folder, fmt.Sprintf("%s-dark=%v-whole=%v.png", name, dark, whole))
			if err := os.WriteFile(path, p.Screenshot(whole), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// judge has axe-core look at what a page shows, in both colors, if a person wants that.
func judge(t *testing.T, p *chromium.Page, name string) {
	t.Helper()
	path := os.Getenv(axeScript)
	if path == "" {
		return
	}
	script, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dark := range []bool{false, true} {
		p.Dark(dark)
		if err := p.Eval(string(script)+"; 1", nil); err != nil {
			t.Fatal(err)
		}
		var found struct {
			Passes     int
			Violations []string
		}
		err := p.Eval(`axe.run().then((r) => ({Passes: r.passes.length, Violations: r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html.slice(0, 120)).slice(0, 3).join(" ; "))}))`, &found)
		if err != nil || found.Passes == 0 || len(found.Violations) > 0 {
			t.Errorf("axe, %s, dark=%v: %d rules pass, %v, violations:\n%s", name, dark, found.Passes, err, strings.Join(found.Violations, "\n"))
		}
		t.Logf("axe, %s, dark=%v: %d rules pass", name, dark, found.Passes)
	}
}

func testSizes(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	for _, machines := range []int{5, 200, 5000} {
		s := &source{world: worldOf(machines)}
		server := serve(t, s, clock.RealClock{})
		p := browser.Open(1440, 900)
		p.Go(server.URL())
		drawn(p)
		var state struct{ Nodes, Tiles, Wide, Ill int }
		err := p.Eval(`({Nodes: document.querySelectorAll("*").length, Tiles: document.querySelectorAll(".tile").length,
			Wide: document.documentElement.scrollWidth - document.documentElement.clientWidth, Ill: document.querySelectorAll(".tile.disagree").length})`, &state)
		if err != nil {
			t.Fatal(err)
		}
		if state.Nodes > mostNodes || state.Tiles > ui.MostShown || state.Wide > 0 || state.Ill == 0 {
			t.Errorf("%d machines: %+v", machines, state)
		}
		var squares float64
		if err := p.Eval(`[...document.querySelectorAll(".heat path")].map((p) => p.getAttribute("d").split("M").length - 1).reduce((a, b) => a + b, 0)`, &squares); err != nil {
			t.Fatal(err)
		}
		if hot := machines > ui.MostShown; hot && int(squares) != machines || !hot && squares > 0 {
			t.Errorf("%d machines: %v squares", machines, squares)
		}
		if machines <= ui.MostShown && state.Tiles != machines {
			t.Errorf("of %d machines %d have tiles", machines, state.Tiles)
		}
		var paint struct{ First, Drawn float64 }
		if err := p.Eval(`({First: (performance.getEntriesByName("first-contentful-paint")[0] || {}).startTime || 0, Drawn: performance.now()})`, &paint); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d machines: first contentful paint after %.0f ms, seen to be complete after %.0f ms, %d elements", machines, paint.First, paint.Drawn, state.Nodes)
		picture(t, p, fmt.Sprint(machines))
		judge(t, p, fmt.Sprint(machines))
		light, dark := "", ""
		p.Dark(false)
		_ = p.Eval(`getComputedStyle(document.body).backgroundColor`, &light)
		p.Dark(true)
		_ = p.Eval(`getComputedStyle(document.body).backgroundColor`, &dark)
		if light == dark || light == "" {
			t.Errorf("light is %q, dark is %q", light, dark)
		}
		quiet(t, p, server.URL())
		p.Close()
	}
}

// testSquares points at squares: each says whose it is, and a click finds the machine. Without that no names are asked for.
func testSquares(t *testing.T, p *chromium.Page) {
	t.Helper()
	want(t, p, `String(performance.getEntriesByType("resource").filter((r) => r.name.includes("names.json")).length)`, "0")
	at := func(event string, row, column int) {
		err := p.Eval(fmt.Sprintf(`(() => { const map = document.querySelector(".heat"), box = map.getBoundingClientRect(), size = Math.min(box.width / 48,
			box.height / map.viewBox.baseVal.height * 10); map.dispatchEvent(new PointerEvent(%q, {bubbles: true, clientX: box.left + (%d + .4) * size,
			clientY: box.top + (%d + .4) * size})); return 1 })()`, event, column, row), nil)
		if err != nil {
			t.Fatal(err)
		}
	}
	const named = `document.querySelector(".named").textContent`
	at("pointermove", 0, 2) // the third of every third machine, in natural order
	p.Until("the name of a square", named+` === "worker-00007: agree"`)
	at("pointermove", 1, 1)
	p.Until("the name of another", named+` === "worker-00148: agree"`)
	at("click", 1, 1)
	p.Until("the machine to be found", `document.querySelectorAll(".tile").length === 1 && document.querySelector(".tile").textContent === "worker-00148"`)
	answered(t, p, func() {
		_ = p.Eval(`document.querySelector("#words").value = ""; document.querySelector("#words").dispatchEvent(new Event("input"))`, nil)
	})
}

func testFilters(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	server := serve(t, &source{world: worldOf(5000)}, clock.RealClock{})
	p := browser.Open(1440, 900)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	testSquares(t, p)
	p.Click("#attention") // what was asked for before may be answered after the click
	p.Until("those that need attention", `document.querySelector("#summary").textContent === "53 of 5000 machines: 33 disagree, 20 unknown."`)
	answered(t, p, func() { p.Click("#attention") })
	p.Click("#words")
	p.Type("worker-04990")
	p.Until("the machine that was asked for", `document.querySelectorAll(".tile").length === 1 && document.querySelector(".tile").textContent === "worker-04990"`)
	want(t, p, `document.querySelector("#summary").textContent`, "1 of 5000 machines: 1 agree.")
	want(t, p, `location.search`, "?q=worker-04990")
	p.Click(".tile")
	picture(t, p, "detail")
	want(t, p, `document.querySelector("#detail").open + " " + document.querySelector("#detail-body dd").textContent`, "true droplet 8989")
	p.Click("#close")
	p.Until("the details to be closed", `!document.querySelector("#detail").open && document.activeElement.textContent === "worker-04990"`)
	p.Go(server.URL() + "?q=worker-00001&only=attention")
	p.Until("the filter of the address", `document.querySelector("#summary").textContent === "0 of 5000 machines match the filter."`)
	want(t, p, `document.querySelector("#words").value + " " + document.querySelector("#attention").checked`, "worker-00001 true")
	quiet(t, p, server.URL())
}

// From a reflector and a step to the machine, and what is to be pasted elsewhere.
func testWays(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	w := worldOf(5)
	w.Topologies[0].Groups[0].Reflectors[0].Node = "worker-00001"
	server := serve(t, &source{world: w}, clock.RealClock{})
	p := browser.Open(1440, 900)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	p.Click("#list-reflectors .link")
	want(t, p, `document.querySelector("#detail").open + " " + document.querySelector("#detail-name").textContent`, "true worker-00001")
	judge(t, p, "details")
	p.Click("#detail .copy")
	p.Until("the command to be copied", `document.querySelector("#detail .copy").textContent === "copied"`)
	p.Click("#close")
	p.Until("the details to be closed", `!document.querySelector("#detail").open`)
	want(t, p, `document.querySelector("#list-balancers .copy").textContent + " " + document.querySelector("#list-balancers .copy").title`, "8b5f8e1e… Copy 8b5f8e1e-0000")
	// What is wrong now is above all else, with its reason, a command and who acts next.
	want(t, p, `document.querySelector("main").firstElementChild.id + " " + document.querySelectorAll("#wrong p b").length`, "wrong 3")
	want(t, p, `document.querySelector("#wrong p").textContent`,
		"left-behind disagree: there is a Calico Node and no Kubernetes Node. Run kubectl mooring explain node left-behind Copy Next: you.")
	want(t, p, `document.querySelector("#wrong p:last-child").textContent`, "and 7 more, below")
	p.Click("#wrong .copy")
	p.Until("the command to be copied", `document.querySelector("#wrong .copy").textContent === "copied"`)
	// What waits has its command whole, and what the doctor found is in its order, without what is well.
	want(t, p, `document.querySelector("#list-waits code").textContent`, "kubectl mooring confirm nodes 3f2a9c01d4be")
	p.Click("#list-waits .copy")
	p.Until("the confirmation to be copied", `document.querySelector("#list-waits .copy").textContent === "copied"`)
	want(t, p, `[...document.querySelectorAll("#list-doctor tbody tr")].map((r) => r.cells[0].textContent).join(" ")`, "problem warning")
	want(t, p, `document.querySelector("#list-doctor p").textContent.replace(/now$|\d+ s ago$/, "then")`, "2 findings, and 1 ok, checked then")
	want(t, p, `document.querySelector('#sections a[href="#doctor"] .count').textContent`, "1 problem, 1 not read")
	// A reflector that is not a machine leads to all that has its name.
	answered(t, p, func() { _ = p.Eval(`[...document.querySelectorAll("#list-reflectors .link")].at(-1).click()`, nil) })
	want(t, p, `document.querySelector("#words").value`, "reflector-2")
	want(t, p, `document.querySelector("#summary").textContent`, "0 of 5 machines match the filter.")
	quiet(t, p, server.URL())
}

// focus is what has the focus, in few words.
const focus = `(() => { const e = document.activeElement; return e.id || e.textContent.trim().split(" ")[0] })()`

func testKeyboard(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	server := serve(t, &source{world: worldOf(5)}, clock.RealClock{})
	p := browser.Open(1440, 900)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	for _, next := range []string{
		"Skip", "words", "attention", "refresh", "Machines", "Waits", "Doctor", "Route", "Load", "Volumes", "Tenants", "Components", "Recent", "Copy", "Copy", "Copy", "worker-00004", "worker-00002", "worker-00003", "left-behind", "Copy",
		"drawing",
	} {
		p.Press("Tab", false)
		want(t, p, focus, next)
	}
	p.Press("Tab", true)
	want(t, p, focus, "Copy")
	want(t, p, `document.activeElement.getAttribute("aria-label")`, "Copy kubectl mooring confirm nodes 3f2a9c01d4be")
	p.Press("Tab", true)
	want(t, p, focus, "left-behind")
	for range 3 {
		p.Press("Tab", true)
	}
	want(t, p, focus, "worker-00004")
	p.Press("ArrowRight", false)
	want(t, p, focus, "worker-00001")
	p.Press("ArrowRight", false) // there is none further
	want(t, p, focus, "worker-00001")
	p.Press("Home", false)
	want(t, p, focus, "worker-00004")
	p.Press("End", false)
	p.Press("Enter", false)
	want(t, p, `document.querySelector("#detail").open + " " + document.querySelector("#detail-name").textContent`, "true worker-00001")
	p.Press("Escape", false)
	p.Until("the details to be closed", `!document.querySelector("#detail").open`)
	p.Until("the focus to be where it was", focus+` === "worker-00001"`)
	p.Type("/")
	want(t, p, focus+` + document.querySelector("#words").value`, "words")
	// What has no text of its own has a name, and every control too.
	var nameless []string
	err := p.Eval(`[...document.querySelectorAll("button, input, progress, table, section, dialog, img, [role=group], [role=region]")].filter((e) =>
		!(e.getAttribute("aria-label") || e.getAttribute("alt") !== null || (e.labels && e.labels.length) || (e.getAttribute("aria-labelledby") &&
		document.getElementById(e.getAttribute("aria-labelledby"))) || (e.localName === "button" && e.textContent.trim()))).map((e) => e.outerHTML.slice(0, 100))`, &nameless)
	if err != nil || len(nameless) > 0 {
		t.Errorf("without a name: %q (%v)", nameless, err)
	}
	quiet(t, p, server.URL())
}

// What changes is shown without losing the focus; what cannot be read any more is said, and what was read stays.
func testChanges(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	s, c := &source{world: worldOf(5)}, quietClock()
	server := serve(t, s, c)
	p := browser.Open(1440, 900)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	if err := p.Eval(`document.querySelector(".tile.disagree").focus()`, nil); err != nil {
		t.Fatal(err)
	}
	want(t, p, focus, "worker-00002")
	step := func() {
		c.SetTime(c.Now().Add(page.Every))
		answered(t, p, func() { _ = p.Eval(`document.querySelector("#refresh").dispatchEvent(new Event("click"))`, nil) })
	}
	s.set(func(s *source) {
		s.world.Machines[0].Verdict, s.world.Machines[0].Findings = finding.Down, []finding.Verdict{{State: finding.Down, What: "it was changed"}}
	})
	step()
	want(t, p, `document.querySelector("#summary").textContent`, "5 machines: 1 down, 2 disagree, 1 unknown, 1 agree.")
	want(t, p, focus, "worker-00002")
	s.set(func(s *source) { s.err = fmt.Errorf("listing Nodes: the connection <b>was</b> refused") })
	step()
	want(t, p, `document.querySelector("#stale").textContent`, "The cluster could not be read again; what is shown is old: listing Nodes: the connection <b>was</b> refused")
	want(t, p, `document.querySelector("#summary").textContent`, "5 machines: 1 down, 2 disagree, 1 unknown, 1 agree.")
	// It is gray by its age: not yet, and then by the page's own clock, while no request ends.
	want(t, p, `document.body.className`, "")
	if err := p.Eval(`(() => { const now = performance.now; performance.now = () => now.call(performance) + 20000; return 1 })()`, nil); err != nil {
		t.Fatal(err)
	}
	p.Until("the page to be gray", `document.body.className === "old"`)
	want(t, p, `String(/^read [34]\d s ago$/.test(document.querySelector("#read").textContent))`, "true")
	// Findings of an hour ago are gray, and nothing that waits folds its section.
	s.set(func(s *source) { s.err, s.world.CheckedAt, s.world.Waits = nil, s.world.ReadAt.Add(-time.Hour), nil })
	step()
	want(t, p, `document.querySelectorAll("#list-doctor tr.aged").length + document.querySelector("#list-doctor time").textContent`, "260 min ago")
	want(t, p, `document.querySelector("#waits").className + " " + getComputedStyle(document.querySelector("#list-waits")).display`, "empty none")
	want(t, p, `String(document.querySelector("#stale").hidden) + document.body.className`, "true")
	quiet(t, p, server.URL())
}

// A narrow window scrolls in one direction alone.
func testNarrow(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	server := serve(t, &source{world: worldOf(200)}, clock.RealClock{})
	p := browser.Open(390, 800)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	want(t, p, `String(document.documentElement.scrollWidth - document.documentElement.clientWidth)`, "0")
	var high float64 // where each row is a card, a table begins with a few
	if err := p.Eval(`document.documentElement.scrollHeight`, &high); err != nil || high > 16_000 {
		t.Errorf("the page is %v px tall (%v)", high, err)
	}
	want(t, p, `document.querySelectorAll("#list-journal tbody tr").length + document.querySelector("#list-journal .rest").textContent`, "5Show 194 more")
	// What needs attention is among the first.
	want(t, p, `[...document.querySelectorAll("#list-balancers tbody tr")].filter((r) => r.className === "ill").map((r) => r.cells[0].textContent).join()`, "shop/front-2")
	p.Click("#list-balancers .rest")
	want(t, p, `document.querySelectorAll("#list-balancers tbody tr").length + document.activeElement.id + document.querySelectorAll("#list-balancers .rest").length`, "19list-balancers0")
	picture(t, p, "narrow")
	judge(t, p, "narrow")
	quiet(t, p, server.URL())
}

// Names and texts of a cluster are anybody's: they are shown as they are and do nothing.
func testHostile(t *testing.T, browser *chromium.Browser) {
	t.Helper()
	const evil = `"><img src=x onerror="window.pwned=1"><script>window.pwned=1</script><a href="javascript:window.pwned=1">&amp;</a>'`
	w := ui.World{
		Cluster: evil, Zones: map[string]string{evil: evil}, Notes: []string{evil}, TopologyProblem: evil, BalancerProblem: evil, TenantProblem: evil, JournalProblems: []string{evil},
		Machines: []agreement.Row{{
			Machine: evil, HasNode: true, Droplet: evil, Node: evil, CalicoNode: evil, Reflector: evil, Verdict: finding.Disagree,
			Findings: []finding.Verdict{{State: finding.Disagree, What: evil, Next: evil}},
		}},
		Topologies: []topology.Map{{Name: evil, Phase: evil, WaitingFor: evil, Groups: []topology.Group{{
			Name: evil, Reflectors: []topology.Reflector{{Node: evil, Zone: evil, Role: evil}}, Zones: []topology.Zone{{Name: evil, Clients: []string{evil}}},
		}}}},
		Balancers: []ui.Balancer{{ID: evil, Verdict: finding.Verdict{State: finding.Disagree, What: evil, Next: evil}, Service: corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: evil, Name: evil},
			Spec:       corev1.ServiceSpec{LoadBalancerClass: new(evil), Ports: []corev1.ServicePort{{Protocol: evil, Port: 1}}},
			Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{Hostname: evil}}}},
		}}},
		Tenants: []ui.Tenant{tenant(object{"metadata": object{"name": evil}, "status": object{
			"proxies": evil, "usage": object{"keys": 1},
			"conditions": []metav1.Condition{{Type: "Ready", Status: metav1.ConditionFalse, Reason: evil, Message: evil}},
		}})},
		Waits: []finding.Verdict{{State: finding.Held, What: evil, On: evil, Why: evil, Stale: evil, Next: evil, Answer: evil}}, WaitProblem: evil, CheckedAt: time.Now(),
		Findings: []finding.Finding{{Check: evil, Severity: finding.Problem, What: evil, Why: evil, Do: evil}},
		Entries:  []finding.Event{{Source: evil, About: evil, Reason: evil, Text: evil, Count: 2}},
	}
	server := serve(t, &source{world: w}, clock.RealClock{})
	p := browser.Open(1440, 900)
	defer p.Close()
	p.Go(server.URL())
	drawn(p)
	p.Click(".tile")
	var state struct {
		Pwned, Scripts, Links, Images int
		Tile, Body                    string
	}
	err := p.Eval(`({Pwned: window.pwned || 0, Scripts: document.scripts.length, Links: document.querySelectorAll("main a, dialog a").length, Images: document.images.length,
		Tile: document.querySelector(".tile").textContent, Body: document.querySelector("dialog").textContent})`, &state)
	if err != nil {
		t.Fatal(err)
	}
	if state.Pwned != 0 || state.Scripts != 1 || state.Links != 0 || state.Images != 2 || state.Tile != evil || strings.Count(state.Body, evil) < 6 {
		t.Errorf("the page has %+v", state)
	}
	quiet(t, p, server.URL())
	// Should a mistake ever make markup of a text, the browser refuses.
	var refused bool
	if err := p.Eval(`(() => { try { document.querySelector("#summary").innerHTML = "<b>x</b>"; return false } catch { return true } })()`, &refused); err != nil || !refused {
		t.Errorf("markup from a text is not refused (%v)", err)
	}
}
