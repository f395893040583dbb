// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/lab/internal/storage"
)

// applyVolumes installs the volume driver and what it needs. Pods of it start once there are machines.
func applyVolumes(ctx context.Context, api client.Client, site storage.Site) error {
	objects, err := storage.Objects(site)
	if err != nil {
		return err
	}
	if err := waitNamespace(ctx, api, systemNamespace); err != nil {
		return err
	}
	for _, object := range objects {
		if err := apply(ctx, api, object); err != nil {
			return err
		}
	}
	return nil
}
