// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package assumed is the one table of what Mooring assumes about systems of others: DigitalOcean, SCSI disks, the Container Storage Interface, Calico and BIRD.
//
// Code and simulators take these constants from here, so that each has one definition. That alone would let both be wrong together, as they were about
// seven volumes for each droplet. So each row of [Table] names its source, the date on which somebody read it, and the test that fails when the outside
// differs. What DigitalOcean's OpenAPI description states is a [Statement] that a test evaluates on the description itself. What nobody outside knows
// is a row with variants, all of which the simulators and the test of the row run.
//
// A limit in this package never refuses a request that the API may accept: it tells Kubernetes' scheduler what to expect, or paces calls.
package assumed
