// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"iter"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// listDroplets: name is compared without regard to case; GPU droplets are listed with type=gpus only; tag_name cannot be
// combined with name or type, and lists droplets of both types (assumed).
func listDroplets(c *call) result {
	name, tag, kind := c.query.Get("name"), c.query.Get("tag_name"), c.query.Get("type")
	if tag != "" && (name != "" || kind != "") {
		return invalid("tag_name cannot be combined with name or type").result()
	}
	if kind != "" && kind != "droplets" && kind != "gpus" {
		return invalid("type must be droplets or gpus, not %q", kind).result()
	}
	wanted := func(d *droplet) bool {
		if tag != "" {
			return d.hasTag(tag)
		}
		return d.size.isGPU() == (kind == "gpus") && (name == "" || strings.EqualFold(d.name, name))
	}
	when := c.whenListed()
	return listing(c, "droplets", filter(c.account.droplets.valuesAt(when), wanted), func(d *droplet) any {
		return c.showDroplet(d, when)
	})
}

func filter[V any](values iter.Seq[V], wanted func(V) bool) iter.Seq[V] {
	return func(yield func(V) bool) {
		for value := range values {
			if wanted(value) && !yield(value) {
				return
			}
		}
	}
}

// showDroplet leaves out what the token may not see; DigitalOcean does so without a word.
func (c *call) showDroplet(d *droplet, when time.Time) Droplet {
	shown := d.show(when, c.sim.catalog.image)
	if !c.can("image:read") {
		shown.Image = nil
	}
	if !c.can("block_storage:read") {
		shown.VolumeIDs = nil
	}
	if !c.can("tag:read") {
		shown.Tags = nil
	}
	if !c.can("vpc:read") {
		shown.VPCUUID = ""
	}
	return shown
}

// dropletAt returns the droplet that the path names, as it was at a time.
func (c *call) dropletAt(when time.Time) (*droplet, *refusal) {
	id, err := strconv.Atoi(c.params["droplet_id"])
	if err != nil {
		return nil, notFound()
	}
	d, found := c.account.droplets.getAt(id, when)
	if !found {
		return nil, notFound()
	}
	return d, nil
}

func getDroplet(c *call) result {
	when := c.whenSeenByGet()
	d, refused := c.dropletAt(when)
	if refused != nil {
		return refused.result()
	}
	return ok(map[string]any{"droplet": c.showDroplet(d, when)})
}

// createDroplets creates one droplet (name) or up to ten (names), all or none.
func createDroplets(c *call) result {
	var request struct {
		Name             string   `json:"name"`
		Names            []string `json:"names"`
		Region           string   `json:"region"`
		Size             string   `json:"size"`
		Image            any      `json:"image"`
		IPv6             bool     `json:"ipv6"`
		PublicNetworking *bool    `json:"public_networking"`
		Tags             []string `json:"tags"`
		VPCUUID          string   `json:"vpc_uuid"`
		UserData         string   `json:"user_data"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	switch {
	case (request.Name == "") == (len(request.Names) == 0):
		return invalid("one of name and names is needed").result()
	case len(request.Names) > 10:
		return invalid("at most ten droplets can be created at a time").result()
	case request.Size == "" || request.Image == nil:
		return invalid("size and image are needed").result()
	case len(request.Tags) > 0 && !c.can("tag:create"), request.VPCUUID != "" && !c.can("vpc:read"):
		return forbidden().result()
	}
	names := request.Names
	if request.Name != "" {
		names = []string{request.Name}
	}
	var created []*droplet
	for _, name := range names {
		d, refused := c.account.createDroplet(DropletSpec{
			Name: name, Region: request.Region, Size: request.Size, Tags: request.Tags, VPCUUID: request.VPCUUID, IPv6: request.IPv6,
			NoPublicNetwork: request.PublicNetworking != nil && !*request.PublicNetworking, UserData: request.UserData,
		}, c.now)
		if refused != nil {
			for _, d := range created {
				c.account.deleteDroplet(d, c.now)
			}
			return refused.result()
		}
		created = append(created, d)
	}
	return c.dropletsCreated(created, request.Name != "")
}

// dropletsCreated shows new droplets. They are new in this answer even if they boot in no time.
func (c *call) dropletsCreated(created []*droplet, single bool) result {
	var shown []Droplet
	var actions []map[string]any
	for _, d := range created {
		show := c.showDroplet(d, c.now)
		show.Status = statusNew
		show.Networks = Networks{V4: []NetworkV4{}, V6: []NetworkV6{}}
		shown = append(shown, show)
		action := c.account.act(d, "create", c.now)
		actions = append(actions, map[string]any{
			"id": action.ID, "rel": "create", "href": c.base + "/v2/actions/" + strconv.Itoa(action.ID),
		})
	}
	body := map[string]any{"links": map[string]any{"actions": actions}}
	if single {
		body["droplet"] = shown[0]
	} else {
		body["droplets"] = shown
	}
	return result{status: http.StatusAccepted, body: body}
}

func deleteDroplet(c *call) result {
	d, refused := c.dropletAt(c.now)
	if refused != nil {
		return refused.result()
	}
	c.account.deleteDroplet(d, c.now)
	return noContent()
}

func deleteDropletsByTag(c *call) result {
	tag := c.query.Get("tag_name")
	if tag == "" {
		return invalid("tag_name is needed").result()
	}
	var doomed []*droplet
	for d := range c.account.droplets.values() {
		if d.hasTag(tag) {
			doomed = append(doomed, d)
		}
	}
	for _, d := range doomed {
		c.account.deleteDroplet(d, c.now)
	}
	return noContent()
}

// actOnDroplet does the actions that change what a cluster sees of a machine. They are completed at once (assumed: DigitalOcean
// takes seconds, in which nothing can be observed but the action's own status).
func actOnDroplet(c *call) result {
	var request struct {
		Type string `json:"type"`
		Name string `json:"name"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	d, refused := c.dropletAt(c.now)
	if refused != nil {
		return refused.result()
	}
	switch request.Type {
	case "power_off", "shutdown":
		d = c.account.changeDroplet(d, c.now, func(d *droplet) { d.power = statusOff })
	case "power_on":
		d = c.account.changeDroplet(d, c.now, func(d *droplet) { d.power = statusActive })
	case "reboot", "power_cycle":
	case "rename":
		if len(request.Name) > 255 || !hostname.MatchString(request.Name) {
			return invalid("Only valid hostname characters are allowed. (a-z, A-Z, 0-9, . and -)").result()
		}
		d = c.account.changeDroplet(d, c.now, func(d *droplet) { d.name = request.Name })
	default:
		return invalid("action %q is not simulated", request.Type).result()
	}
	return result{status: http.StatusCreated, body: map[string]any{"action": c.account.act(d, request.Type, c.now)}}
}

// act records an action. The last thousand are kept.
func (a *account) act(d *droplet, kind string, now time.Time) *Action {
	action := &Action{
		ID: a.sim.nextAction, Status: "completed", Type: kind, StartedAt: rfc3339(now), CompletedAt: new(rfc3339(now)), ResourceID: new(d.id),
		ResourceType: "droplet", Region: d.region, RegionSlug: d.region.Slug,
	}
	a.sim.nextAction++
	a.keepAction(action)
	return action
}

func getDropletAction(c *call) result {
	id, err := strconv.Atoi(c.params["action_id"])
	if err != nil {
		return notFound().result()
	}
	action, found := c.account.actions[id]
	if !found || action.ResourceID == nil || strconv.Itoa(*action.ResourceID) != c.params["droplet_id"] {
		return notFound().result()
	}
	return ok(map[string]any{"action": action})
}
