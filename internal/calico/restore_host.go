// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"encoding/json"
	"strings"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
)

// IsOf reports whether an object of the journal is about the host alone, by its key and by what it says itself. What is IPAM's, which is never restored as an
// object, is about any.
func (o Object) IsOf(host string) bool {
	var value struct {
		Metadata struct{ Name string }
		Spec     struct{ Node string }
	}
	if IsIPAM(o.Key) {
		return true
	}
	if json.Unmarshal([]byte(o.Value), &value) != nil || host == "" {
		return false
	}
	if name, ok := strings.CutPrefix(o.Key, nodePrefix); ok {
		return name == host && value.Metadata.Name == host
	}
	if strings.HasPrefix(o.Key, endpointPrefix) {
		return endpointHost(o.Key) == host && value.Spec.Node == host
	}
	kind, name := resourceOf(o.Key)
	switch kind {
	case "":
		return false
	case apiv3.KindFelixConfiguration, apiv3.KindBGPConfiguration:
		return configuredHost(name) == host
	}
	return value.Spec.Node == host
}

// resourceOf returns kind and name of the key of a resource that can be about one host alone, in either datastore; "" for any other key.
func resourceOf(key string) (kind, name string) {
	if kind, name, err := restorable(key); err == nil {
		return kind, name
	}
	for kind, prefix := range resourcePrefixes() {
		if name, ok := strings.CutPrefix(key, prefix); ok {
			return kind, name
		}
	}
	return "", ""
}

// IsOf reports whether the address was assigned to the host.
func (a HeldAddress) IsOf(host string) bool {
	return host != "" && a.Attributes[model.IPAMBlockAttributeNode] == host
}
