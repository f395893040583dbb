// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi_test

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"testing"

	"github.com/mooring-dev/mooring/internal/docloud/csi"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/volume"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// Whatever the controller may ask of DigitalOcean that writes, it declares.
func TestEveryWriteIsDeclared(t *testing.T) {
	t.Parallel()
	sim := digitalocean.New(digitalocean.Options{})
	client := must.Get(doapi.New(doapi.Options{Token: doapi.StaticToken(digitalocean.DefaultToken), Transport: sim.Transport()})).Or(t)
	const id = "506f78a4-e098-11e5-ad9f-000f53306ae1"
	writes := map[string]func(ctx context.Context) error{
		"CreateVolume": func(ctx context.Context) error {
			_, err := client.CreateVolume(ctx, volume.Request{Name: "v", Region: "nyc1", Size: 1})
			return err
		},
		"DeleteVolume": func(ctx context.Context) error { return client.DeleteVolume(ctx, id) },
		"AttachVolume": func(ctx context.Context) error {
			_, err := client.AttachVolume(ctx, volume.Observed{ID: id, Region: "nyc1"}, 1)
			return err
		},
		"DetachVolume": func(ctx context.Context) error {
			_, err := client.DetachVolume(ctx, volume.Observed{ID: id, Region: "nyc1"}, 1)
			return err
		},
		"ResizeVolume": func(ctx context.Context) error {
			_, err := client.ResizeVolume(ctx, volume.Observed{ID: id, Region: "nyc1"}, 2)
			return err
		},
		"CreateSnapshot": func(ctx context.Context) error { _, err := client.CreateSnapshot(ctx, id, "s", nil); return err },
		"DeleteSnapshot": func(ctx context.Context) error { return client.DeleteSnapshot(ctx, id) },
		"CreateTag":      func(ctx context.Context) error { return client.CreateTag(ctx, "t") },
		"TagVolume":      func(ctx context.Context) error { return client.TagVolume(ctx, "t", id) },
	}
	reads := regexp.MustCompile("^(Epoch|Volume.*|.*Droplets?|.*Actions|Account.*)$")
	for api, i := reflect.TypeFor[csi.API](), 0; i < api.NumMethod(); i++ {
		name := api.Method(i).Name
		write, known := writes[name]
		if known == reads.MatchString(name) {
			t.Errorf("%s: is it a read or a write?", name)
		}
		if !known {
			continue
		}
		ctx := outputs.Decided(outputs.Within(t.Context(), "driver", csi.Writes()), client.Epoch())
		if err := write(ctx); errors.Is(err, outputs.ErrUndeclared) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
