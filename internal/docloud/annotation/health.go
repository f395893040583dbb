// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package annotation

import (
	"slices"
	"strconv"
	"strings"
)

func (r *reader) healthCheck() {
	h := &r.s.HealthCheck
	for _, n := range []struct {
		name string
		def  int
		into *int
	}{
		{HealthCheckInterval, DefaultHealthCheckInterval, &h.Interval},
		{HealthCheckTimeout, DefaultHealthCheckTimeout, &h.Timeout},
		{HealthCheckUnhealthyThreshold, DefaultHealthCheckUnhealthyThreshold, &h.UnhealthyThreshold},
		{HealthCheckHealthyThreshold, DefaultHealthCheckHealthyThreshold, &h.HealthyThreshold},
	} {
		*n.into = r.number(n.name, n.def)
		switch {
		case *n.into == 0: // an omitted field gets the default of the API, which is another than ours
			r.doubt(n.name, NotSent)
		case FormOf(n.name).outside(int64(*n.into)):
			r.doubt(n.name, FormOf(n.name).Doubt)
		}
	}
	value, present := r.values[OverrideHealthCheck]
	if h.Override = present; !present {
		r.withoutOverride()
		return
	}
	if off(value) {
		r.idle(OverrideHealthCheck, "which does not turn it off: the annotation's presence counts, remove it for the default health check")
	}
	r.overridden(h)
}

// off reports that a value was meant to say no.
func off(value string) bool {
	b, err := strconv.ParseBool(value)
	return err == nil && !b || slices.Contains([]string{"no", "off", "n", "disabled", "none"}, strings.ToLower(value))
}

// withoutOverride warns of what is ignored because the health check is the default one.
func (r *reader) withoutOverride() {
	for _, name := range []string{HealthCheckPort, HealthCheckPath, HealthCheckProtocol} {
		if _, ok := r.values[name]; ok {
			r.idle(name, "which has no effect without "+OverrideHealthCheck)
		}
	}
}

// overridden reads what counts with the override. The protocol follows the path.
func (r *reader) overridden(h *HealthCheck) {
	if ports := r.ports(HealthCheckPort); len(ports) > 1 {
		r.fail(HealthCheckPort, "")
	} else if len(ports) == 1 {
		h.Port = &ports[0]
	}
	h.Path = r.values[HealthCheckPath]
	def := ProtocolTCP
	if h.Path != "" {
		def = ProtocolHTTP
	}
	h.Protocol = r.choice(HealthCheckProtocol, def)
	if h.Protocol == ProtocolTCP && h.Path != "" {
		r.idle(HealthCheckPath, "which has no effect while "+HealthCheckProtocol+" is "+ProtocolTCP)
	} else if h.Path != "" && !strings.HasPrefix(h.Path, "/") {
		r.doubt(HealthCheckPath, "which is sent unchanged: a path begins with a slash")
	}
}
