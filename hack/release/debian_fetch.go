// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// debianMirrorDefault is Debian's own mirror network, and debianSnapshots its archive of all that mirrors ever held.
	debianMirrorDefault = "https://deb.debian.org"
	debianSnapshots     = "https://snapshot.debian.org"
	// debianMirrorVariable is the environment variable with another mirror.
	debianMirrorVariable = "DEBIAN_MIRROR"
	// debianCache keeps packages by their SHA-256, so that they are fetched once.
	debianCache = "bin/debian"
	// longestDownload bounds how long one package may take.
	longestDownload = 5 * time.Minute
)

// debianSource is where packages come from: the cache, then the mirror, then the archive of snapshots, since mirrors forget old versions.
type debianSource struct {
	mirror, archive, cache string
	// day is that of the list.
	day time.Time
}

// get returns the file of a package, which is the one that the list names. An error is one sentence.
func (d debianSource) get(ctx context.Context, p debianPackage) ([]byte, error) {
	kept := filepath.Join(d.cache, p.sum+".deb")
	if content, err := os.ReadFile(kept); err == nil && p.verify(content) == nil {
		return content, nil
	}
	var failures []string
	for _, url := range []string{strings.TrimSuffix(d.mirror, "/") + "/" + p.path, p.permanent(d.archive, d.day)} {
		content, err := download(ctx, url, p.size)
		if err != nil {
			failures = append(failures, err.Error())
			continue
		}
		if err := p.verify(content); err != nil {
			return nil, fmt.Errorf("%s is not the package %s that hack/release/debian.txt names: %w: set %s to another mirror", url, p, err, debianMirrorVariable)
		}
		if err := os.MkdirAll(d.cache, 0o755); err != nil {
			return nil, fmt.Errorf("making the folder of Debian's packages: %w", err)
		}
		return content, replace(kept, content)
	}
	return nil, fmt.Errorf("the package %s cannot be fetched (%s): set %s to a mirror that this machine reaches, or put the file there as %s",
		p, strings.Join(failures, "; "), debianMirrorVariable, kept)
}

// verify compares a file with the list.
func (p debianPackage) verify(content []byte) error {
	if int64(len(content)) != p.size {
		return fmt.Errorf("it is not %d bytes long", p.size)
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != p.sum {
		return fmt.Errorf("its SHA-256 is %x, not %s", sum, p.sum)
	}
	return nil
}

// permanent is the URL of the package that stays (https://snapshot.debian.org/: archive/NAME/TIME/PATH is what mirrors had at the last snapshot before a time).
// The time is the end of a day, since what mirrors had during the day may be in no snapshot before.
func (p debianPackage) permanent(archive string, day time.Time) string {
	name, path, _ := strings.Cut(p.path, "/")
	return archive + "/archive/" + name + "/" + day.AddDate(0, 0, 1).Format("20060102T150405Z") + "/" + path
}

// download fetches a file of a size; of a longer one it reads one byte more.
func download(ctx context.Context, url string, size int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, longestDownload)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s responds with %s", url, response.Status)
	}
	return io.ReadAll(io.LimitReader(response.Body, size+1))
}
