// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"slices"

	"github.com/getkin/kin-openapi/openapi3"
)

// Deviation is one thing that DigitalOcean's API or its clients do and the public description does not say.
type Deviation struct {
	// Name is short and unique.
	Name string
	// Reason says who does it and why it passes.
	Reason string

	apply func(editor)
}

// Deviations returns all of them. A contract test fails if one of them is not needed any more.
func Deviations() []Deviation {
	return slices.Concat(balancerDeviations(), dropletDeviations(), otherDeviations())
}

func balancerDeviations() []Deviation {
	text := openapi3.NewStringSchema
	return []Deviation{
		{
			Name: "load-balancer-validate-only", Reason: "upstream's admission webhook sends validate_only with POST and PUT (godo)",
			apply: func(e editor) { e.addProperty("sticky_sessions", "validate_only", openapi3.NewBoolSchema()) },
		}, {
			Name: "load-balancer-subnet", Reason: "upstream sends subnet_uuid from an annotation; godo reads it back",
			apply: func(e editor) { e.addProperty("sticky_sessions", "subnet_uuid", text()) },
		}, {
			Name: "load-balancer-tags", Reason: "upstream sends tags k8s:<cluster>; godo reads them back",
			apply: func(e editor) {
				e.addProperty("sticky_sessions", "tags", openapi3.NewArraySchema().WithItems(text()))
			},
		}, {
			Name: "load-balancer-ip", Reason: "upstream sends ip with POST to bring an address (BYOIP); the description says read-only",
			apply: func(e editor) {
				e.change("sticky_sessions", func(s *openapi3.Schema) { s.Properties["ip"].Value.ReadOnly = false })
			},
		}, {
			Name: "load-balancer-proxy-check", Reason: "upstream sends health_check.proxy_protocol; godo reads it back",
			apply: func(e editor) { e.addProperty("unhealthy_threshold", "proxy_protocol", openapi3.NewBoolSchema()) },
		}, {
			Name:   "load-balancer-without-droplets",
			Reason: "godo leaves droplet_ids out if empty: upstream's webhook, and a cluster without nodes; the description demands it",
			apply: func(e editor) {
				e.each(func(s *openapi3.Schema) { // one of: droplet_ids and region, tag and region
					if len(s.OneOf) == 2 && slices.Contains(s.OneOf[0].Value.Required, "droplet_ids") {
						s.OneOf[0].Value.Required = []string{"region"}
						s.AnyOf, s.OneOf = s.OneOf, nil
					}
				})
			},
		}, {
			Name: "load-balancer-filters", Reason: "godo lists load balancers by names= and uuids=",
			apply: func(e editor) {
				e.addQuery("/v2/load_balancers", "names")
				e.addQuery("/v2/load_balancers", "uuids")
			},
		},
	}
}

func dropletDeviations() []Deviation {
	return []Deviation{
		{
			Name: "droplet-off", Reason: "the bundled description has the status off as the boolean false, as YAML 1.1 reads it",
			apply: func(e editor) {
				e.change("snapshot_ids", func(s *openapi3.Schema) {
					status := s.Properties["status"].Value
					status.Enum = append(status.Enum, "off")
				})
			},
		}, {
			Name: "droplet-backup-window", Reason: "next_backup_window is null without backups; half of the description's schema forbids it",
			apply: func(e editor) {
				e.change("snapshot_ids", func(s *openapi3.Schema) {
					for _, part := range s.Properties["next_backup_window"].Value.AllOf {
						part.Value.Nullable = true
					}
				})
			},
		}, {
			Name:   "droplet-scopes",
			Reason: "a token without tag:read, image:read or block_storage:read does not see fields that the description demands",
			apply:  func(e editor) { e.loosen("snapshot_ids", "tags", "image", "volume_ids") },
		},
	}
}

func otherDeviations() []Deviation {
	return []Deviation{
		{
			Name: "account-scopes", Reason: "a token without droplet:read or reserved_ip:read does not see limits that the description demands",
			apply: func(e editor) { e.loosen("droplet_limit", "droplet_limit", "floating_ip_limit") },
		}, {
			Name: "tag-load-balancer", Reason: "upstream's tag controller tags load balancers; the description lists other types only",
			apply: func(e editor) {
				e.change("resource_type", func(s *openapi3.Schema) {
					if kind := s.Properties["resource_type"].Value; len(kind.Enum) > 0 { // an action's is any text
						kind.Enum = append(kind.Enum, "load_balancer")
					}
				})
			},
		}, {
			Name: "tag-images", Reason: "the description misspells images as imgages; godo reads images",
			apply: func(e editor) {
				e.change("imgages", func(s *openapi3.Schema) { s.Properties["images"] = s.Properties["imgages"] })
			},
		}, {
			Name: "volume-snapshot", Reason: "godo sends volume_id and description with a snapshot of a volume",
			apply: func(e editor) {
				body := e.spec.Paths.Value("/v2/volumes/{volume_id}/snapshots").Post.RequestBody.Value.Content["application/json"].Schema.Value
				for _, name := range []string{"volume_id", "description"} {
					body.Properties[name] = openapi3.NewStringSchema().NewRef()
				}
			},
		}, {
			Name: "firewall-ports", Reason: "godo leaves ports out if empty, which means all, as upstream does for icmp",
			apply: func(e editor) { e.loosen("ports", "ports") },
		},
	}
}

// editor changes a description.
type editor struct{ spec *openapi3.T }

// each calls a function with every schema of every operation.
func (e editor) each(visit func(*openapi3.Schema)) {
	seen := map[*openapi3.Schema]bool{}
	for _, item := range e.spec.Paths.Map() {
		for _, op := range item.Operations() {
			if op.RequestBody != nil {
				visitContent(op.RequestBody.Value.Content, seen, visit)
			}
			for _, response := range op.Responses.Map() {
				visitContent(response.Value.Content, seen, visit)
			}
		}
	}
}

func visitContent(content openapi3.Content, seen map[*openapi3.Schema]bool, visit func(*openapi3.Schema)) {
	for _, media := range content {
		if media.Schema != nil {
			visitSchema(media.Schema.Value, seen, visit)
		}
	}
}

func visitSchema(s *openapi3.Schema, seen map[*openapi3.Schema]bool, visit func(*openapi3.Schema)) {
	if s == nil || seen[s] {
		return
	}
	seen[s] = true
	for _, parts := range []openapi3.SchemaRefs{s.AllOf, s.OneOf, s.AnyOf} {
		for _, part := range parts {
			visitSchema(part.Value, seen, visit)
		}
	}
	for _, property := range s.Properties {
		visitSchema(property.Value, seen, visit)
	}
	if s.Items != nil {
		visitSchema(s.Items.Value, seen, visit)
	}
	visit(s)
}

// change calls a function with every schema that has a property of this name: the objects of one kind.
func (e editor) change(mark string, change func(*openapi3.Schema)) {
	e.each(func(s *openapi3.Schema) {
		if s.Properties[mark] != nil {
			change(s)
		}
	})
}

func (e editor) addProperty(mark, name string, schema *openapi3.Schema) {
	e.change(mark, func(s *openapi3.Schema) { s.Properties[name] = schema.NewRef() })
}

// loosen makes properties optional.
func (e editor) loosen(mark string, names ...string) {
	e.change(mark, func(s *openapi3.Schema) {
		s.Required = slices.DeleteFunc(slices.Clone(s.Required), func(name string) bool { return slices.Contains(names, name) })
	})
}

func (e editor) addQuery(path, name string) {
	op := e.spec.Paths.Value(path).Get
	parameter := openapi3.NewQueryParameter(name).WithSchema(openapi3.NewArraySchema().WithItems(openapi3.NewStringSchema()))
	op.Parameters = append(op.Parameters, &openapi3.ParameterRef{Value: parameter})
}
