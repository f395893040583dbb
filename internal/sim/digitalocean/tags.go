// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// tagName is OpenAPI's pattern of a tag.
var tagName = regexp.MustCompile(assumed.TagPattern)

// ensureTag creates a tag if it is not there. Tags are told apart without regard to case; the first spelling stays.
func (a *account) ensureTag(name string, now time.Time) string {
	key := strings.ToLower(name)
	if existing, found := a.tags.get(key); found {
		return existing
	}
	a.tags.put(key, name, now)
	return name
}

// showTags counts what carries each tag, for all tags in one go.
func (c *call) showTags(when time.Time) func(name string) any {
	droplets, balancers := map[string][]int{}, map[string]int{}
	for d := range c.account.droplets.valuesAt(when) {
		for _, tag := range d.tags {
			droplets[strings.ToLower(tag)] = append(droplets[strings.ToLower(tag)], d.id)
		}
	}
	for lb := range c.account.balancers.valuesAt(when) {
		for _, tag := range lb.shown.Tags {
			balancers[strings.ToLower(tag)]++
		}
	}
	return func(name string) any {
		key := strings.ToLower(name)
		tag := Tag{Name: name, Resources: TagResources{Count: len(droplets[key]) + balancers[key]}}
		if c.can("droplet:read") {
			tag.Resources.Droplets = &TagCount{Count: len(droplets[key])}
			if ids := droplets[key]; len(ids) > 0 {
				tag.Resources.Droplets.LastTaggedURI = fmt.Sprintf("%s/v2/droplets/%d", c.base, ids[len(ids)-1])
				tag.Resources.LastTaggedURI = tag.Resources.Droplets.LastTaggedURI
			}
		}
		return tag
	}
}

func listTags(c *call) result {
	when := c.whenListed()
	return listing(c, "tags", c.account.tags.valuesAt(when), c.showTags(when))
}

func getTag(c *call) result {
	when := c.whenSeenByGet()
	name, found := c.account.tags.getAt(strings.ToLower(c.params["tag_id"]), when)
	if !found {
		return notFound().result()
	}
	return ok(map[string]any{"tag": c.showTags(when)(name)})
}

// createTag responds with 201 also for a tag that exists (assumed), and 400 in a form of its own for one that is not valid (OpenAPI).
func createTag(c *call) result {
	var request struct {
		Name string `json:"name"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	if len(request.Name) > assumed.TagLength || !tagName.MatchString(request.Name) {
		message := fmt.Sprintf("Error validating resource tag: %q contains invalid characters", request.Name)
		refused := refuse(http.StatusBadRequest, "%s", message)
		refused.body = map[string]any{"error": message, "messages": nil, "root_causes": []string{message}}
		return refused.result()
	}
	name := c.account.ensureTag(request.Name, c.now)
	return result{status: http.StatusCreated, body: map[string]any{"tag": c.showTags(c.now)(name)}}
}

// deleteTag takes the tag off everything that carries it.
func deleteTag(c *call) result {
	name, found := c.account.tags.get(strings.ToLower(c.params["tag_id"]))
	if !found {
		return notFound().result()
	}
	c.account.deleteTag(name, c.now)
	return noContent()
}

func (a *account) deleteTag(name string, now time.Time) {
	a.tags.remove(strings.ToLower(name), now)
	is := func(tag string) bool { return strings.EqualFold(tag, name) }
	without := func(tags []string) []string { return slices.DeleteFunc(slices.Clone(tags), is) }
	for d := range a.droplets.values() {
		if d.hasTag(name) {
			a.changeDroplet(d, now, func(d *droplet) { d.tags = without(d.tags) })
		}
	}
	for lb := range a.balancers.values() {
		if slices.ContainsFunc(lb.shown.Tags, is) {
			a.changeBalancer(lb, now, func(lb *loadBalancer) { lb.shown.Tags = without(lb.shown.Tags) })
		}
	}
	for v := range a.volumes.values() {
		if slices.ContainsFunc(v.shown.Tags, is) {
			a.changeVolume(v, now, func(v *volume) { v.shown.Tags = without(v.shown.Tags) })
		}
	}
	for f := range a.firewalls.values() {
		if slices.ContainsFunc(f.tags, is) {
			changed := f.clone()
			changed.tags = without(f.tags)
			a.firewalls.put(f.id, changed, now)
		}
	}
}

// tagChange finds the resources of a request to tag or untag, and returns how to change each. Nothing is changed if one of
// them is not there.
func (c *call) tagChange(change func(tags []string, name string) []string) result {
	name, found := c.account.tags.get(strings.ToLower(c.params["tag_id"]))
	if !found {
		return notFound().result()
	}
	var request struct {
		Resources []struct {
			ID   string `json:"resource_id"`
			Type string `json:"resource_type"`
		} `json:"resources"`
	}
	if refused := c.decode(&request); refused != nil {
		return refused.result()
	}
	var changes []func()
	for _, resource := range request.Resources {
		var apply func()
		switch resource.Type {
		case "droplet":
			apply = c.tagDroplet(resource.ID, name, change)
		case "load_balancer": // not in the description; upstream tags load balancers so
			apply = c.tagBalancer(resource.ID, name, change)
		case "volume":
			apply = c.tagVolume(resource.ID, name, change)
		default:
			return invalid("resource_type %q is not simulated", resource.Type).result()
		}
		if !c.can(scopeOfTagging(resource.Type)) {
			return forbidden().result()
		}
		if apply == nil {
			return notFound().result()
		}
		changes = append(changes, apply)
	}
	for _, apply := range changes {
		apply()
	}
	return noContent()
}

// scopeOfTagging is what a token needs to tag a resource; volumes belong to block storage.
func scopeOfTagging(kind string) string {
	if kind == "volume" {
		return "block_storage:update"
	}
	return kind + ":update"
}

// tagVolume returns nil if there is no such volume.
func (c *call) tagVolume(id, tag string, change func([]string, string) []string) func() {
	if _, found := c.account.volumes.get(id); !found {
		return nil
	}
	return func() {
		v, _ := c.account.volumes.get(id)
		c.account.changeVolume(v, c.now, func(v *volume) { v.shown.Tags = change(v.shown.Tags, tag) })
	}
}

// tagDroplet returns nil if there is no such droplet.
func (c *call) tagDroplet(resource, tag string, change func([]string, string) []string) func() {
	id, err := strconv.Atoi(resource)
	if err != nil {
		return nil
	}
	if _, found := c.account.droplets.get(id); !found {
		return nil
	}
	return func() {
		d, _ := c.account.droplets.get(id)
		c.account.changeDroplet(d, c.now, func(d *droplet) { d.tags = change(d.tags, tag) })
	}
}

// tagBalancer returns nil if there is no such load balancer.
func (c *call) tagBalancer(id, tag string, change func([]string, string) []string) func() {
	if _, found := c.account.balancers.get(id); !found {
		return nil
	}
	return func() {
		lb, _ := c.account.balancers.get(id)
		c.account.changeBalancer(lb, c.now, func(lb *loadBalancer) { lb.shown.Tags = change(lb.shown.Tags, tag) })
	}
}

func tagResources(c *call) result {
	return c.tagChange(func(tags []string, name string) []string {
		if slices.ContainsFunc(tags, func(tag string) bool { return strings.EqualFold(tag, name) }) {
			return tags
		}
		return sortedUnique(append(slices.Clone(tags), name))
	})
}

func untagResources(c *call) result {
	return c.tagChange(func(tags []string, name string) []string {
		return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool { return strings.EqualFold(tag, name) })
	})
}
