// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package providerid

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	// Provider is the cloud provider's name as Kubernetes knows it. It MUST not be changed: kubelets are started with it, and manifests name it.
	Provider = "digitalocean"
	// Prefix begins every provider ID of a droplet. It MUST not be changed: Nodes of existing clusters carry it, and a Node's provider ID is
	// immutable.
	Prefix = Provider + "://"
)

// What can be wrong with a provider ID; an error of [Parse] is one of these, with the ID in its sentence.
var (
	// ErrEmpty means that the Node has no provider ID yet. It says nothing about the machine.
	ErrEmpty = errors.New("the node has no provider ID yet")
	// ErrForeign means that the Node is a machine of another provider.
	ErrForeign = errors.New("the provider ID is not one of DigitalOcean")
	// ErrMalformed means that the ID begins as one of DigitalOcean and names no droplet.
	ErrMalformed = errors.New("the provider ID names no droplet")
)

// Format returns the provider ID of a droplet.
func Format(droplet int) string { return Prefix + strconv.Itoa(droplet) }

// Parse returns the ID of the droplet that a provider ID names. Only what [Format] writes is accepted, so that one droplet has one provider
// ID: no sign, no leading zero, no blank. Errors wrap [ErrEmpty], [ErrForeign] or [ErrMalformed].
func Parse(id string) (droplet int, err error) {
	if id == "" {
		return 0, ErrEmpty
	}
	digits, ok := strings.CutPrefix(id, Prefix)
	if !ok {
		return 0, fmt.Errorf("%w: %q does not begin with %s", ErrForeign, id, Prefix)
	}
	droplet, err = strconv.Atoi(digits)
	if err != nil || droplet <= 0 || Format(droplet) != id {
		return 0, fmt.Errorf("%w: %q must be %s and a positive number", ErrMalformed, id, Prefix)
	}
	return droplet, nil
}
