// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"github.com/mooring-dev/mooring/internal/docloud/admission"
	"github.com/mooring-dev/mooring/internal/docloud/annotation"
)

// bits32 are as many as a port number has in Kubernetes; the controller cuts listed ports to them, as the upstream project does.
const bits32 = 1 << 32

// variables are those of one side. The last of them, Problems, is what is wrong with the Service.
func (s side) variables() []admissionregistrationv1.Variable {
	name := func(name, expression string) admissionregistrationv1.Variable {
		return admissionregistrationv1.Variable{Name: s.name + name, Expression: expression}
	}
	return []admissionregistrationv1.Variable{
		name("Annotations", s.onlyOurs(s.object+`.metadata.?annotations.orValue({})`, "{}")),
		name("Ports", s.onlyOurs(s.object+`.spec.?ports.orValue([])`, "[]")),
		name("Regional", s.regional()),
		name("HTTPPorts", s.numbers(annotation.HTTPPorts)),
		name("TLSPorts", s.numbers(annotation.TLSPorts)),
		name("HTTP2Ports", s.numbers(annotation.HTTP2Ports)),
		name("Certificate", s.value(annotation.CertificateID)+` != "" || `+s.value(annotation.CertificateName)+` != "" || `+s.value(annotation.CertificateDomains)+` != ""`),
		name("Passthrough", s.value(annotation.TLSPassthrough)+" in "+list(yes())),
		name("Wrong", sum(append(s.forms(), s.domains(), s.sharedPorts(), s.sizes(), s.sticky())...)),
		name("Secure", s.secure()),
		name("Problems", s.onlyOurs(sum(s.variable("Wrong"), s.stack(), s.sctp(),
			"(size("+s.variable("Wrong")+") > 0 ? [] :\n"+sum(s.tls(), s.http3(), s.healthCheck())+")"), "[]")),
	}
}

// onlyOurs is an expression, and another one for a Service that was none of ours before. The one that is to be is ours by the match conditions.
func (s side) onlyOurs(expression, otherwise string) string {
	if s.name == "new" {
		return expression
	}
	return "!variables.oldOurs ? " + otherwise + " :\n" + expression
}

func yes() []string { yes, _ := annotation.Booleans(); return yes }

// regional reports whether the Service is to have a load balancer of the type REGIONAL.
func (s side) regional() string {
	return fmt.Sprintf("%[1]s == %[2]s || !(%[1]s in %[3]s) && variables.defaultType == %[2]s",
		s.value(annotation.Type), lit(annotation.TypeRegional), list(annotation.FormOf(annotation.Type).Choices))
}

// forms are the lists of values that do not have their form: one list for the annotations that share form and words.
func (s side) forms() []string {
	var lists []string
	taken := map[string]bool{}
	for _, first := range annotation.Table() {
		form := annotation.FormOf(first.Name)
		if form.Kind == annotation.KindText || taken[first.Name] {
			continue
		}
		var names []string
		for _, e := range annotation.Table() {
			if alike(annotation.FormOf(e.Name), form) && e.Values == first.Values && e.RegionalNetwork == first.RegionalNetwork {
				names, taken[e.Name] = append(names, e.Name), true
			}
		}
		condition := ""
		if !first.RegionalNetwork {
			condition = s.variable("Regional")
		}
		if form.Override {
			condition = s.has(annotation.OverrideHealthCheck)
		}
		value := s.variable("Annotations") + "[n]"
		from := list(names)
		if condition != "" {
			from = "(" + condition + " ? " + from + " : [])"
		}
		lists = append(lists, fmt.Sprintf("%s.filter(n, n in %s && !(%s)).map(n, %s)",
			from, s.variable("Annotations"), right(form, value), wrong("n", value, "it must be "+first.Values)))
	}
	return lists
}

func alike(a, b annotation.Form) bool {
	return a.Kind == b.Kind && a.Blank == b.Blank && a.Override == b.Override && slices.Equal(a.Choices, b.Choices)
}

// numbers are the ports of a list, none for one that is wrong or not looked at.
func (s side) numbers(name string) string {
	value := s.value(name)
	return fmt.Sprintf(`%s && %s && %s && (%s) ? %s.split(",").map(w, int(w)) : []`,
		s.variable("Regional"), s.has(name), short(value), right(annotation.FormOf(name), value), value)
}

// listed is a list of ports: its annotation and the side's variable with its numbers.
type listed struct{ annotation, variable string }

// sharedPorts refuses a port that stands twice: the one that stands first, by its next place.
func (s side) sharedPorts() string {
	lists := []listed{
		{annotation.HTTPPorts, s.variable("HTTPPorts")}, {annotation.TLSPorts, s.variable("TLSPorts")}, {annotation.HTTP2Ports, s.variable("HTTP2Ports")},
	}
	out := "[]"
	for i, l := range slices.Backward(lists) {
		twice := fmt.Sprintf("%[1]s.indexOf(p) != %[1]s.lastIndexOf(p)", l.variable)
		condition, sentence := twice, s.about(l.annotation, ", where port ", " is listed twice")
		if later := s.elsewhere(l, lists[i+1:]); later != "" {
			sentence = twice + " ? " + sentence + " : " + later
		}
		for _, later := range lists[i+1:] {
			condition += " || p in " + later.variable
		}
		found := fmt.Sprintf("%s.filter(p, %s)", l.variable, condition)
		out = fmt.Sprintf("(size(%[1]s) > 0 ? [%[1]s[0]].map(p, %[2]s) : %[3]s)", found, sentence, out)
	}
	return out
}

// elsewhere is the sentence about port p of a list that stands in one of the others too, empty if there are no others.
func (s side) elsewhere(l listed, others []listed) string {
	if len(others) == 0 {
		return ""
	}
	sentence := s.about(others[0].annotation, ", but port ", " is in "+l.annotation+" as well: it can have one protocol only")
	if rest := s.elsewhere(l, others[1:]); rest != "" {
		return "p in " + others[0].variable + " ? " + sentence + " : " + rest
	}
	return sentence
}

// about is a sentence about port p in the value of an annotation.
func (s side) about(name, before, after string) string {
	return fmt.Sprintf(`%s + %s + %s + string(p) + %s`, lit("annotation "+name+" is "), quoted(s.value(name)), lit(before), lit(after))
}

// domains refuses a certificate by domains alongside one by ID or by name.
func (s side) domains() string {
	value := s.value(annotation.CertificateDomains)
	beside := func(name, otherwise string) string {
		return fmt.Sprintf(`(%[1]s != "" ? [%[2]s + %[3]s + %[4]s + %[5]s + ": give one of them"] : %[6]s)`, s.value(name),
			lit("annotation "+annotation.CertificateDomains+" is "), quoted(value), lit(", but "+name+" is "), quoted(s.value(name)), otherwise)
	}
	return fmt.Sprintf(`(%s && %s != "" && %s && (%s) ? %s : [])`, s.variable("Regional"), value, short(value),
		right(annotation.FormOf(annotation.CertificateDomains), value), beside(annotation.CertificateID, beside(annotation.CertificateName, "[]")))
}

// supplied reports whether the cluster's defaults give a Service one of these annotations.
func supplied(names ...string) string { return list(names) + ".exists(n, n in variables.defaulted)" }

// sizes refuses a size in words alongside one in units.
func (s side) sizes() string {
	unit, slug := s.value(annotation.SizeUnit), s.value(annotation.SizeSlug)
	condition := fmt.Sprintf(`%s in %s && %s != "" && %s && (%s) && int(%s) %% %d > 0`, slug, list(annotation.FormOf(annotation.SizeSlug).Choices),
		unit, short(unit), right(annotation.FormOf(annotation.SizeUnit), unit), unit, bits32)
	return when(condition, fmt.Sprintf(`%s + %s + %s + strings.quote(%s) + ": give one of them"`,
		lit("annotation "+annotation.SizeUnit+" is "), quoted(unit), lit(", but "+annotation.SizeSlug+" is "), slug))
}

// inherited reports whether a Service has this annotation from the cluster's defaults: one of its own wins, even if empty.
func (s side) inherited(name string) string {
	return "(" + supplied(name) + " && !(" + s.has(name) + "))"
}

// sticky refuses sticky sessions without a cookie and its time.
func (s side) sticky() string {
	ttl := s.value(annotation.StickySessionsCookieTTL)
	since := ", since " + annotation.StickySessionsType + " is " + annotation.StickyCookies
	return fmt.Sprintf("(%s != %s ? [] : %s)", s.value(annotation.StickySessionsType), lit(annotation.StickyCookies), sum(
		when(s.value(annotation.StickySessionsCookieName)+` == "" && !`+s.inherited(annotation.StickySessionsCookieName), s.wrong(annotation.StickySessionsCookieName, "it must be the name of a cookie"+since)),
		when(short(ttl)+" && !"+integer(ttl)+" && !"+s.inherited(annotation.StickySessionsCookieTTL), s.wrong(annotation.StickySessionsCookieTTL, "it must be a whole number of seconds"+since))))
}

// stack refuses two stacks where there is one.
func (s side) stack() string {
	return when(fmt.Sprintf("%s == %s && %s == %s", s.value(annotation.Network), lit(annotation.NetworkInternal), s.value(annotation.NetworkStack), lit(annotation.StackDual)),
		s.wrong(annotation.NetworkStack, "but the load balancer is "+annotation.NetworkInternal+": it must be "+annotation.StackIPv4))
}

// sctp refuses what no load balancer forwards.
func (s side) sctp() string {
	return s.variable("Ports") + `.filter(p, !(p.protocol in ["TCP", "UDP"])).map(p, "the protocol of port " + string(p.port) + " is " + strings.quote(p.protocol) + ", it must be TCP or UDP")`
}

// secure are the ports that end TLS or pass it on, each with its protocol: a later list wins over an earlier one, and all over the default.
func (s side) secure() string {
	in := func(ports string) string {
		return fmt.Sprintf("%s.exists(x, (x %% %d - p.port) %% %d == 0)", ports, bits32, bits32)
	}
	tls := fmt.Sprintf("(size(%[1]s) == 0 && (%[2]s || %[3]s) ? [443] : %[1]s)", s.variable("TLSPorts"), s.variable("Certificate"), s.variable("Passthrough"))
	return fmt.Sprintf(`%s.filter(p, %s && p.protocol != "UDP").map(p, [string(p.port), %s ? "http2" : %s ? "https" : %s ? "http" : %s]).filter(x, x[1] in ["https", "http2"])`,
		s.variable("Ports"), s.variable("Regional"), in(s.variable("HTTP2Ports")), in(tls), in(s.variable("HTTPPorts")), s.value(annotation.Protocol))
}

// tls refuses such a port without a certificate or passthrough, and with both. It is said of the first one.
func (s side) tls() string {
	port := fmt.Sprintf(`"port " + %[1]s[0][0] + " has the protocol " + %[1]s[0][1] + `, s.variable("Secure"))
	some := "size(" + s.variable("Secure") + ") > 0 && "
	certificate, passthrough := s.variable("Certificate"), s.variable("Passthrough")
	by := func(name string) string {
		return fmt.Sprintf(`%s + strings.quote(%s)`, lit(name+" is "), s.value(name))
	}
	named := fmt.Sprintf(`(%s != "" ? %s : %s != "" ? %s : %s)`, s.value(annotation.CertificateID), by(annotation.CertificateID),
		s.value(annotation.CertificateDomains), by(annotation.CertificateDomains), by(annotation.CertificateName))
	return sum(
		when(some+"!"+certificate+" && !"+passthrough+" && !"+supplied(annotation.CertificateName, annotation.CertificateDomains, annotation.TLSPassthrough), port+lit(fmt.Sprintf(", so that it needs %s, %s or %s: set one of them",
			annotation.CertificateID, annotation.CertificateName, annotation.TLSPassthrough))),
		when(some+certificate+" && "+passthrough, port+`", but annotation " + `+named+" + "+lit(" and "+annotation.TLSPassthrough+" is ")+" + strings.quote("+
			s.value(annotation.TLSPassthrough)+`) + ": remove one of them"`))
}

// http3 refuses HTTP/3 without a certificate, and with passthrough.
func (s side) http3() string {
	value := s.value(annotation.HTTP3Port)
	asked := fmt.Sprintf("%s && %s && %s && int(%s) != -1 && ", s.variable("Regional"), s.has(annotation.HTTP3Port), short(value), value)
	passed := fmt.Sprintf(`%s + %s + %s + strings.quote(%s) + ": TLS cannot be passed through for HTTP/3, remove one of them"`,
		lit("annotation "+annotation.HTTP3Port+" is "), quoted(value), lit(", but "+annotation.TLSPassthrough+" is "), s.value(annotation.TLSPassthrough))
	return sum(
		when(asked+s.variable("Passthrough"), passed),
		when(asked+"!"+s.variable("Passthrough")+" && !"+s.variable("Certificate")+" && !"+supplied(annotation.CertificateName, annotation.CertificateDomains), s.wrong(annotation.HTTP3Port,
			fmt.Sprintf("so that it needs %s or %s: set one of them", annotation.CertificateID, annotation.CertificateName))))
}

// healthCheck refuses the check of a port that the Service does not have, or not over TCP.
func (s side) healthCheck() string {
	value, ports := s.value(annotation.HealthCheckPort), s.variable("Ports")
	asked := s.has(annotation.HealthCheckPort)
	tcp := ports + `.filter(p, p.protocol == "TCP")`
	found := fmt.Sprintf("%s.filter(p, p.port == int(%s))", ports, value)
	missing := fmt.Sprintf(`(size(%s) == 0 ? %s : %s + %s.map(p, string(p.port)).join(", "))`, tcp,
		s.wrong(annotation.HealthCheckPort, "but the Service has no such port, and no TCP port at all"),
		s.wrong(annotation.HealthCheckPort, "but the Service has no such port: its TCP ports are "), tcp)
	return fmt.Sprintf("(!(%s) || !(%s) ? [] : %s)", s.has(annotation.OverrideHealthCheck), short(value), sum(
		when("!("+asked+") && size("+tcp+") == 0", s.wrong(annotation.OverrideHealthCheck, "but the Service has no TCP port that could be checked")),
		fmt.Sprintf("(!(%s) ? [] : size(%s) == 0 ? [%s] : %s)", asked, found, missing,
			when(found+`[0].protocol == "UDP"`, s.wrong(annotation.HealthCheckPort, "but that is a UDP port, which cannot be checked")))))
}

// fixed refuses another type for a load balancer that exists.
func fixed() string {
	before := `oldObject.metadata.?annotations`
	id, is := before+"[?"+lit(annotation.LoadBalancerID)+`].orValue("")`, before+"[?"+lit(annotation.Type)+`].orValue("")`
	s := sides()[0]
	asked := s.value(annotation.Type)
	condition := fmt.Sprintf(`oldObject != null && %s != "" && %s == %s && %s != "" && %s != %s && %s in %s`,
		id, s.value(annotation.LoadBalancerID), id, is, asked, is, asked, list(annotation.FormOf(annotation.Type).Choices))
	const mark = "TYPE"
	problem := lit(admission.TypeStays(mark))
	return when(condition, fmt.Sprintf(`%s + %s + ", " + %s`, lit("annotation "+annotation.Type+" is "), quoted(asked), spliced(problem, lit(mark), is)))
}
