// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"net/http"
	"time"
)

func listFirewalls(c *call) result {
	when := c.whenListed()
	return listing(c, "firewalls", c.account.firewalls.valuesAt(when), func(f *firewall) any { return c.showFirewall(f, when) })
}

func getFirewall(c *call) result {
	when := c.whenSeenByGet()
	f, found := c.account.firewalls.getAt(c.params["firewall_id"], when)
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"firewall": c.showFirewall(f, when)})
}

// showFirewall leaves out what the token may not see.
func (c *call) showFirewall(f *firewall, when time.Time) Firewall {
	shown := c.account.showFirewall(f, when)
	if !c.can("droplet:read") {
		shown.DropletIDs = nil
	}
	if !c.can("tag:read") {
		shown.Tags = nil
	}
	return shown
}

func createFirewall(c *call) result {
	f, refused := c.plannedFirewall(nil)
	if refused != nil {
		return refused.result()
	}
	f.id = c.sim.newUUID()
	c.account.firewalls.put(f.id, f, c.now)
	shown := c.showFirewall(f, c.now)
	shown.Status = "waiting"
	return result{status: http.StatusAccepted, body: map[string]any{"firewall": shown}}
}

// updateFirewall replaces everything; what is left out is empty then.
func updateFirewall(c *call) result {
	old, found := c.account.firewalls.get(c.params["firewall_id"])
	if !found {
		return notFound().result()
	}
	f, refused := c.plannedFirewall(old)
	if refused != nil {
		return refused.result()
	}
	c.account.firewalls.put(f.id, f, c.now)
	return ok(map[string]any{"firewall": c.showFirewall(f, c.now)})
}

// plannedFirewall reads and checks a request. Tags need scopes of their own (OpenAPI: firewall.tags).
func (c *call) plannedFirewall(old *firewall) (*firewall, *refusal) {
	var request firewallRequest
	if refused := c.decode(&request); refused != nil {
		return nil, refused
	}
	if len(request.Tags) > 0 && (!c.can("tag:create") || !c.can("tag:read")) {
		return nil, forbidden()
	}
	return c.account.planFirewall(&request, old, c.now)
}

func deleteFirewall(c *call) result {
	f, found := c.account.firewalls.get(c.params["firewall_id"])
	if !found {
		return notFound().result()
	}
	c.account.firewalls.remove(f.id, c.now)
	return noContent()
}
