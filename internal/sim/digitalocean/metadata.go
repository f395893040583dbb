// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Metadata serves /metadata/v1/..., which a droplet finds at 169.254.169.254. Where DigitalOcean knows the droplet by the wire,
// identify returns which one asks, by ID or name, and in which account (the first one if empty); false is 404.
func (s *Simulator) Metadata(identify func(*http.Request) (account, droplet string, ok bool)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		account, which, known := identify(r)
		path, below := strings.CutPrefix(r.URL.Path, "/metadata/")
		if !known || !below || r.Method != http.MethodGet {
			http.NotFound(w, r)
			return
		}
		document, err := s.metadata(account, which)
		if err != nil {
			http.NotFound(w, r)
			return
		}
		serveMetadata(w, r, document, path)
	})
}

// metadata returns the document that DigitalOcean's metadata service calls v1.json.
func (s *Simulator) metadata(name, which string) (map[string]any, error) {
	a, err := s.findAccount(name)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d, err := a.droplet(which)
	if err != nil {
		return nil, err
	}
	networks := d.show(s.clock.Now(), nil).Networks
	interfaces := map[string]any{}
	for _, kind := range []string{"public", "private"} {
		if of := interfacesOf(networks, kind); len(of) > 0 {
			interfaces[kind] = []any{of}
		}
	}
	tags := []any{}
	for _, tag := range d.tags {
		tags = append(tags, tag)
	}
	return map[string]any{
		"droplet_id": d.id, "id": d.id, "hostname": d.name, "region": d.region.Slug, "user_data": d.userData, "vendor_data": "",
		"public_keys": []any{}, "interfaces": interfaces, "tags": tags, "vpc_uuid": d.vpc,
		"dns": map[string]any{"nameservers": []any{"67.207.67.2", "67.207.67.3"}},
	}, nil
}

func interfacesOf(networks Networks, kind string) map[string]any {
	of := map[string]any{}
	for _, n := range networks.V4 {
		if n.Type == kind {
			of["ipv4"] = map[string]any{"ip_address": n.IPAddress, "netmask": n.Netmask, "gateway": n.Gateway}
			of["type"] = kind
		}
	}
	for _, n := range networks.V6 {
		if n.Type == kind {
			of["ipv6"] = map[string]any{"ip_address": n.IPAddress, "cidr": n.Netmask, "gateway": n.Gateway}
			of["type"] = kind
		}
	}
	return of
}

// serveMetadata answers v1.json with the document and v1/a/b with the value at a, b: text for a value, one name per line for
// what has values in it.
func serveMetadata(w http.ResponseWriter, r *http.Request, document map[string]any, path string) {
	if path == "v1.json" {
		delete(document, "id")
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(document)
		return
	}
	rest, below := strings.CutPrefix(path, "v1")
	if !below {
		http.NotFound(w, r)
		return
	}
	delete(document, "droplet_id")
	var value any = document
	for _, segment := range strings.FieldsFunc(rest, func(c rune) bool { return c == '/' }) {
		next, found := metadataChild(value, segment)
		if !found {
			http.NotFound(w, r)
			return
		}
		value = next
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(metadataText(value)))
}

// metadataChild finds a key of an object, with - for _ and address for ip_address as the paths have it, or an index of a list.
func metadataChild(value any, segment string) (any, bool) {
	switch value := value.(type) {
	case map[string]any:
		if segment == "address" {
			segment = "ip_address"
		}
		child, found := value[strings.ReplaceAll(segment, "-", "_")]
		return child, found
	case []any:
		index, err := strconv.Atoi(segment)
		if err != nil || index < 0 || index >= len(value) {
			return nil, false
		}
		return value[index], true
	}
	return nil, false
}

func metadataText(value any) string {
	switch value := value.(type) {
	case map[string]any:
		var names []string
		for name, child := range value {
			name = strings.ReplaceAll(name, "_", "-")
			switch child.(type) {
			case map[string]any, []any:
				name += "/"
			}
			names = append(names, name)
		}
		slices.Sort(names)
		return strings.Join(names, "\n")
	case []any:
		var lines []string
		for i, child := range value {
			if text, isText := child.(string); isText {
				lines = append(lines, text)
			} else {
				lines = append(lines, strconv.Itoa(i)+"/")
			}
		}
		return strings.Join(lines, "\n")
	case int:
		return strconv.Itoa(value)
	case string:
		return value
	}
	return ""
}
