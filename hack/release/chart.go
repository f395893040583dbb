// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"sigs.k8s.io/yaml"
)

const (
	chartName = "mooring"
	// chartFolder is the folder of a registry with charts, and of the checkout.
	chartFolder = "charts"
	// chartArchiveEnd ends the name of the chart as an OCI archive.
	chartArchiveEnd = ".oci.tar"
	// defaultRegistry is what manifests and chart have before the images' names.
	defaultRegistry = "mooring"
)

// Helm's media types (https://helm.sh/docs/topics/registries/).
const (
	chartConfigType  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContentType types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// writeChart writes the chart as a package, as helm package does but for the times in it, and as an OCI archive.
func (s settings) writeChart(ctx context.Context, from source) error {
	files, err := s.chartFiles(ctx, from)
	if err != nil {
		return fmt.Errorf("the chart: %w", err)
	}
	content, err := zippedTar(files, from.time)
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(s.version, "v")
	if err := replace(filepath.Join(s.out, chartName+"-"+version+".tgz"), content); err != nil {
		return err
	}
	image, err := chartImage(files[0].content, content, s.annotationsOfChart(from, version))
	if err != nil {
		return err
	}
	return writeArchive(filepath.Join(s.out, chartName+"-"+version+chartArchiveEnd), from.time, func(to layout.Path) error {
		return to.AppendImage(image, layout.WithAnnotations(map[string]string{refName: version}))
	})
}

// annotationsOfChart are what registries show of it.
func (s settings) annotationsOfChart(from source, version string) map[string]string {
	out := annotations(about{source: from, binary: chartName, description: "Helm chart of Mooring"})
	out["org.opencontainers.image.version"] = version
	return out
}

// chartFiles are the files of the chart, Chart.yaml first, with the release's version and registry.
func (s settings) chartFiles(ctx context.Context, from source) ([]file, error) {
	list, err := from.output(ctx, "git", "ls-files", "--", chartFolder+"/"+chartName)
	if err != nil {
		return nil, err
	}
	var files []file
	for name := range strings.FieldsSeq(list) {
		content, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		inside := strings.TrimPrefix(name, chartFolder+"/")
		switch inside {
		case chartName + "/Chart.yaml":
			content, err = lines(content, map[string]string{"version": strings.TrimPrefix(s.version, "v"), "appVersion": s.version})
		case chartName + "/values.yaml":
			content, err = lines(content, map[string]string{"  imageRegistry": s.registry})
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		files = append(files, file{inside, content, 0o644})
	}
	first := slices.IndexFunc(files, func(f file) bool { return f.name == chartName+"/Chart.yaml" })
	if first < 0 {
		return nil, fmt.Errorf("there is no %s/%s/Chart.yaml", chartFolder, chartName)
	}
	chart := files[first]
	return append([]file{chart}, slices.Delete(files, first, first+1)...), nil
}

// lines sets keys of a YAML file that have a line of their own.
func lines(content []byte, values map[string]string) ([]byte, error) {
	for _, key := range sortedKeys(values) {
		line := regexp.MustCompile(`(?m)^` + key + `: .*$`)
		if n := len(line.FindAll(content, -1)); n != 1 {
			return nil, fmt.Errorf("%d lines with %q instead of one", n, key)
		}
		content = line.ReplaceAllLiteral(content, []byte(key+": "+values[key]))
	}
	return content, nil
}

// chartArtifact is a chart as registries hold it. Its configuration is Helm's, which the builder of images cannot write.
type chartArtifact struct {
	config, manifest []byte
	layer            v1.Layer
}

var _ partial.CompressedImageCore = chartArtifact{}

// RawConfigFile is Chart.yaml as JSON.
func (c chartArtifact) RawConfigFile() ([]byte, error) { return c.config, nil }

// MediaType is that of the manifest.
func (c chartArtifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest is the manifest.
func (c chartArtifact) RawManifest() ([]byte, error) { return c.manifest, nil }

// LayerByDigest is the package, the one layer.
func (c chartArtifact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return c.layer, nil }

// chartImage makes the artifact of a package.
func chartImage(chart, content []byte, annotations map[string]string) (v1.Image, error) {
	config, err := yaml.YAMLToJSON(chart)
	if err != nil {
		return nil, fmt.Errorf("reading Chart.yaml: %w", err)
	}
	layer := static.NewLayer(content, chartContentType)
	digest, err := layer.Digest()
	if err != nil {
		return nil, err
	}
	configDigest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: annotations,
		Config: v1.Descriptor{MediaType: chartConfigType, Digest: configDigest, Size: size},
		Layers: []v1.Descriptor{{MediaType: chartContentType, Digest: digest, Size: int64(len(content))}},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(chartArtifact{config, manifest, layer})
}
