// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package transfer saves one tenant's keys and values in a stream that can be kept and carried elsewhere, and loads them again.
//
// A stream is text: one JSON object with one field on each line, keys and values in base64. It knows nothing of prefixes, of lease IDs, or of anybody
// else.
//
//	{"mooringTenantStream":{"version":1,"tenant":"team-a","revision":4711}}    the first line
//	{"lease":{"id":1,"ttl":3600}}                                             before the first key that holds on it
//	{"kv":{"key":"L3JlZ2lzdHJ5L2E=","value":"…","lease":1}}                    in the order of the keys
//	{"page":{"keys":100,"sha256":"…"}}                                        what was told so far, and the sum of all bytes before this line
//	{"end":{"keys":117,"leases":1,"sha256":"…"}}                              the last line
//
// [Export] reads all keys as they were at one revision. When that revision is compacted away meanwhile, it begins again at a newer one.
// [Import] writes page by page, each in one transaction that holds only if none of its keys is there. What is there with the same value already is
// passed over, so an import that was interrupted is finished by doing it again. Nothing is ever overwritten or deleted.
package transfer
