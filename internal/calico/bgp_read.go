// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"context"
	"encoding/json"
	"fmt"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
)

// Peers lists the BGPPeers as the API server has them; see [NormalizeBGP]. It is for commands that look once: controllers have informers.
// The error is one sentence.
func (b *BGPKubernetes) Peers(ctx context.Context) ([]apiv3.BGPPeer, error) {
	return listBGP[apiv3.BGPPeer](ctx, b, "bgppeers")
}

// Configurations lists the BGPConfigurations, in the same way. The one called default says whether the mesh is on.
func (b *BGPKubernetes) Configurations(ctx context.Context) ([]apiv3.BGPConfiguration, error) {
	return listBGP[apiv3.BGPConfiguration](ctx, b, "bgpconfigurations")
}

// listBGP lists the objects of a kind by its name in paths.
func listBGP[T any](ctx context.Context, b *BGPKubernetes, resource string) ([]T, error) {
	answer, err := do(ctx, b.client.Get().Resource(resource))
	if err != nil {
		return nil, fmt.Errorf("listing %s of %s: %w", resource, b.group, reason(err))
	}
	var all struct {
		Items []T `json:"items"`
	}
	if err := json.Unmarshal(answer, &all); err != nil {
		return nil, fmt.Errorf("listing %s of %s: %w", resource, b.group, err)
	}
	return all.Items, nil
}
