// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/mooring-dev/mooring/internal/assumed"
)

// File systems that can be asked for; "" is [DefaultFileSystem].
const (
	Ext4              = "ext4"
	XFS               = "xfs"
	DefaultFileSystem = Ext4
)

// Capability is a way in which a volume is to be used.
type Capability struct {
	// Block is a device instead of a file system.
	Block bool
	// FileSystem is what is asked for, "" for the default.
	FileSystem string
	// ReadOnly is one node that only reads; Shared is more than one node, in any mode.
	ReadOnly, Shared bool
	// Unknown is an access mode that is missing or not known.
	Unknown bool
}

// Check returns an error that is one sentence if a volume cannot be used so.
func (c Capability) Check() error {
	switch {
	case c.Unknown:
		return fmt.Errorf("the access mode is missing or not known: use ReadWriteOnce or ReadWriteOncePod")
	case c.Shared:
		return fmt.Errorf("DigitalOcean attaches a volume to one droplet at a time: use the access mode ReadWriteOnce or ReadWriteOncePod, not ReadOnlyMany or ReadWriteMany")
	case c.Block && c.FileSystem != "":
		return fmt.Errorf("a raw block volume has no file system, and %q is asked for", c.FileSystem)
	case c.FileSystem != "" && c.FileSystem != Ext4 && c.FileSystem != XFS:
		return fmt.Errorf("the file system %q is not supported: use %s or %s", c.FileSystem, Ext4, XFS)
	}
	return nil
}

// CheckCapabilities checks all of a request: there must be some.
func CheckCapabilities(all []Capability) error {
	if len(all) == 0 {
		return fmt.Errorf("the request has no volume capability")
	}
	for _, c := range all {
		if err := c.Check(); err != nil {
			return err
		}
	}
	return nil
}

// CheckParameters returns an error for what a StorageClass asks for and cannot have. What is not known is ignored, as csi-digitalocean does.
func CheckParameters(parameters map[string]string) error {
	for name := range parameters {
		if strings.Contains(strings.ToLower(name), "luks") || strings.Contains(strings.ToLower(name), "encrypt") {
			return fmt.Errorf("the parameter %q asks for encryption by LUKS, which this driver does not have: DigitalOcean encrypts volumes at rest by itself", name)
		}
	}
	return nil
}

// TagsParameter is the one parameter of a VolumeAttributesClass: tags, separated by commas. It MUST NOT change.
const TagsParameter = "tags"

// ParseTags reads [TagsParameter]. An error is one sentence.
func ParseTags(parameters map[string]string) ([]string, error) {
	for name := range parameters {
		if name != TagsParameter {
			return nil, fmt.Errorf("the parameter %q cannot be changed: DigitalOcean can change only a volume's %q", name, TagsParameter)
		}
	}
	var tags []string
	for tag := range strings.SplitSeq(parameters[TagsParameter], ",") {
		tag = strings.TrimSpace(tag)
		if tag == "" {
			continue
		}
		if err := CheckTag(tag); err != nil {
			return nil, err
		}
		if !slices.Contains(tags, tag) {
			tags = append(tags, tag)
		}
	}
	return tags, nil
}

var tagNames = regexp.MustCompile(assumed.TagPattern)

// CheckTag returns an error that is one sentence if DigitalOcean does not take a tag.
func CheckTag(tag string) error {
	if len(tag) > assumed.TagLength || !tagNames.MatchString(tag) {
		return fmt.Errorf("the tag %q is not possible at DigitalOcean: use letters, digits, _, - and :, at most %d", tag, assumed.TagLength)
	}
	return nil
}
