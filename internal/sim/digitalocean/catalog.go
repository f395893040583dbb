// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package digitalocean

import "strings"

// catalog is what DigitalOcean sells: regions and sizes, as far as a cluster asks. It never changes.
type catalog struct {
	regions  []*Region
	byRegion map[string]*Region
	sizes    []*Size
	bySize   map[string]*Size
	image    *Image
}

func newCatalog() *catalog {
	c := &catalog{byRegion: map[string]*Region{}, bySize: map[string]*Size{}}
	slugs := []string{"ams3", "blr1", "fra1", "lon1", "nyc1", "nyc2", "nyc3", "sfo2", "sfo3", "sgp1", "syd1", "tor1"}
	cities := map[string]string{
		"ams": "Amsterdam", "blr": "Bangalore", "fra": "Frankfurt", "lon": "London", "nyc": "New York", "sfo": "San Francisco",
		"sgp": "Singapore", "syd": "Sydney", "tor": "Toronto",
	}
	c.sizes = []*Size{
		size("s-1vcpu-1gb", 1024, 1, 25, 6), size("s-1vcpu-2gb", 2048, 1, 50, 12), size("s-2vcpu-2gb", 2048, 2, 60, 18),
		size("s-2vcpu-4gb", 4096, 2, 80, 24), size("s-4vcpu-8gb", 8192, 4, 160, 48), size("s-8vcpu-16gb", 16384, 8, 320, 96),
		size("c-2", 4096, 2, 25, 42), size("g-2vcpu-8gb", 8192, 2, 25, 63),
		size("gpu-h100x1-80gb", 245760, 20, 720, 2500),
	}
	var names []string
	for _, s := range c.sizes {
		s.Regions = slugs
		if strings.HasPrefix(s.Slug, "gpu-") {
			s.GPUInfo = &GPUInfo{Count: 1, Model: "nvidia_h100"}
		}
		c.bySize[s.Slug] = s
		names = append(names, s.Slug)
	}
	for _, slug := range slugs {
		r := &Region{
			Name: cities[slug[:3]] + " " + slug[3:], Slug: slug, Available: true, Sizes: names,
			Features: []string{"backups", "ipv6", "metadata", "install_agent", "storage", "image_transfer"},
		}
		c.regions = append(c.regions, r)
		c.byRegion[slug] = r
	}
	c.image = &Image{
		ID: 63663980, Name: "24.04 (LTS) x64", Type: "base", Distribution: "Ubuntu", Slug: "ubuntu-24-04-x64", Public: true,
		Regions: slugs, CreatedAt: "2024-05-15T05:47:50Z", MinDiskSize: 7, SizeGigabytes: 2.36, Tags: []string{}, Status: "available",
	}
	return c
}

func size(slug string, memory, cpus, disk int, monthly float64) *Size {
	return &Size{
		Slug: slug, Memory: memory, VCPUs: cpus, Disk: disk, Transfer: float64(cpus), PriceMonthly: monthly,
		PriceHourly: monthly / 672, Available: true, Description: "Basic",
	}
}

// isGPU reports whether droplets of a size are left out of the default list.
func (s *Size) isGPU() bool { return s.GPUInfo != nil }
