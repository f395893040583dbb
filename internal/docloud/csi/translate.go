// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strconv"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/mooring-dev/mooring/internal/docloud/volume"
)

// capability translates one; what is missing is unknown.
func capability(c *spec.VolumeCapability) volume.Capability {
	out := volume.Capability{Block: c.GetBlock() != nil, FileSystem: c.GetMount().GetFsType()}
	switch c.GetAccessMode().GetMode() {
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER,
		spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case spec.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		out.ReadOnly = true
	case spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, spec.VolumeCapability_AccessMode_MULTI_NODE_SINGLE_WRITER,
		spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER:
		out.Shared = true
	default:
		out.Unknown = true
	}
	return out
}

// checkCapabilities checks those of a request.
func checkCapabilities(all ...*spec.VolumeCapability) error {
	var translated []volume.Capability
	for _, c := range all {
		if c == nil {
			return invalid("the request has no volume capability")
		}
		if c.GetBlock() == nil && c.GetMount() == nil {
			return invalid("the volume capability is neither a block device nor a mount")
		}
		translated = append(translated, capability(c))
	}
	if err := volume.CheckCapabilities(translated); err != nil {
		return invalid("%v", err)
	}
	return nil
}

func sizes(r *spec.CapacityRange) volume.Range {
	return volume.Range{Required: r.GetRequiredBytes(), Limit: r.GetLimitBytes()}
}

// node reads a node ID, which is the ID of a droplet.
func node(id string) (int, error) {
	n, err := strconv.Atoi(id)
	if err != nil || n <= 0 {
		return 0, status.Errorf(codes.NotFound, "there is no node %q: a node's ID is that of its droplet, a number", id)
	}
	return n, nil
}

// shown is a volume as the interface has it.
func (c *Controller) shown(v volume.Observed, source *spec.VolumeContentSource) *spec.Volume {
	return &spec.Volume{
		VolumeId: v.ID, CapacityBytes: v.Bytes(), ContentSource: source,
		AccessibleTopology: []*spec.Topology{{Segments: map[string]string{RegionKey: v.Region}}},
	}
}

func publishedTo(v volume.Observed) []string {
	var ids []string
	for _, droplet := range v.Droplets {
		ids = append(ids, strconv.Itoa(droplet))
	}
	return ids
}

func shownSnapshot(s volume.Snapshot) *spec.Snapshot {
	return &spec.Snapshot{
		SnapshotId: s.ID, SourceVolumeId: s.Volume, SizeBytes: int64(s.MinSize) * volume.GiB, CreationTime: timestamppb.New(s.Created), ReadyToUse: true,
	}
}

// page cuts one page out of entries that are sorted by their keys. The token is the key of the last entry of the page before, so that a list
// which changes meanwhile leaves nothing out that stays.
func page[T any](all []T, key func(T) string, token string, most int32) (entries []T, next string, err error) {
	if most < 0 {
		return nil, "", invalid("max_entries is %d: it must not be negative", most)
	}
	if token != "" {
		if !validToken(token) {
			return nil, "", status.Errorf(codes.Aborted, "starting_token is %q, which no response had: begin the list again", token)
		}
		rest := 0
		for rest < len(all) && key(all[rest]) <= token {
			rest++
		}
		all = all[rest:]
	}
	if most > 0 && len(all) > int(most) {
		all = all[:most]
		next = key(all[most-1])
	}
	return all, next, nil
}

// entryKey sorts by time of creation, then by ID; its beginning marks it as a token.
func entryKey(unix int64, id string) string { return "at" + leftPad(unix) + "." + id }

func leftPad(n int64) string {
	text := strconv.FormatInt(max(n, 0), 10)
	for len(text) < 12 {
		text = "0" + text
	}
	return text
}

func validToken(token string) bool {
	const shortest = len("at") + 12 + len(".")
	if len(token) <= shortest || token[:2] != "at" || token[shortest-1] != '.' {
		return false
	}
	_, err := strconv.ParseInt(token[2:shortest-1], 10, 64)
	return err == nil
}
