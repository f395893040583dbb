// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"context"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// Identity is the service that says what the driver is.
type Identity struct {
	spec.UnsafeIdentityServer

	// Name and Version are the driver's.
	Name, Version string
}

// GetPluginInfo names the driver.
func (i *Identity) GetPluginInfo(context.Context, *spec.GetPluginInfoRequest) (*spec.GetPluginInfoResponse, error) {
	return &spec.GetPluginInfoResponse{Name: i.Name, VendorVersion: i.Version}, nil
}

// GetPluginCapabilities returns what it can do.
func (i *Identity) GetPluginCapabilities(context.Context, *spec.GetPluginCapabilitiesRequest) (*spec.GetPluginCapabilitiesResponse, error) {
	r := &spec.GetPluginCapabilitiesResponse{}
	for _, kind := range []spec.PluginCapability_Service_Type{ // of the driver as a whole: the node plugin has a controller too, elsewhere
		spec.PluginCapability_Service_CONTROLLER_SERVICE, spec.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS,
	} {
		r.Capabilities = append(r.Capabilities, &spec.PluginCapability{
			Type: &spec.PluginCapability_Service_{Service: &spec.PluginCapability_Service{Type: kind}},
		})
	}
	r.Capabilities = append(r.Capabilities, &spec.PluginCapability{
		Type: &spec.PluginCapability_VolumeExpansion_{VolumeExpansion: &spec.PluginCapability_VolumeExpansion{Type: spec.PluginCapability_VolumeExpansion_ONLINE}},
	})
	return r, nil
}

// Probe answers that the driver serves. Whether DigitalOcean does too is told by each request: a restart would not help.
func (i *Identity) Probe(context.Context, *spec.ProbeRequest) (*spec.ProbeResponse, error) {
	return &spec.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
