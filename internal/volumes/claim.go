// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volumes

// RowOf is the row of a claim that is bound to that volume, or to none: a PersistentVolume of an earlier claim of the same name is not its volume.
func RowOf(rows []Row, claim, volume string) *Row {
	var bound *Row
	for i, r := range rows {
		switch {
		case r.Claim != claim:
		case r.Volume == volume, r.Volume == "":
			return &rows[i]
		case volume == "" && r.State != Released:
			bound = &rows[i] // since the claim was read
		}
	}
	return bound
}
