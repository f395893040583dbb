// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package digitalocean holds the DigitalOcean simulator against DigitalOcean's OpenAPI description. The folder below it holds the pure packages
// and the plan command against vectors of what the upstream project sends.
//
// The description and the vectors are not part of the repository (see testkit.Shared); without them the tests are skipped.
package digitalocean
