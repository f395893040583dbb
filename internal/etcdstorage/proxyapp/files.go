// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/platform/certreload"
)

// fileFlags are the flags by which a set of TLS files was named, for messages.
type fileFlags struct{ cert, key, ca, extra string }

func listenFlags() fileFlags {
	return fileFlags{cert: "--tls-cert-file", key: "--tls-private-key-file", ca: "--client-ca-file", extra: "--revoked-clients-file"}
}

func coreFlags() fileFlags {
	return fileFlags{cert: "--core-cert-file", key: "--core-key-file", ca: "--core-ca-file"}
}

// openFiles reads a set of TLS files and keeps it current from then on, once its Run is called. usage is what the certificate is for, and
// now the time that it is held against.
func openFiles(files certreload.Files, flags fileFlags, usage x509.ExtKeyUsage, log logr.Logger, now func() time.Time) (*certreload.Reloader, error) {
	if err := readable(files, flags); err != nil {
		return nil, err
	}
	reloader, err := certreload.New(files, certreload.Options{
		OnReload: func(err error) {
			if err != nil {
				log.Error(err, "TLS files cannot be used, keeping the previous ones")
				return
			}
			log.Info("Loaded new TLS files")
		},
		Check: func(s *certreload.Snapshot, now time.Time) error { return checkSnapshot(s, files, usage, now) },
		Now:   now,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flags.mentioned(files, err), err)
	}
	warnOfOpenSecret(files.Key, log)
	return reloader, nil
}

// mentioned names the flags of the files that an error is about.
func (f fileFlags) mentioned(files certreload.Files, err error) string {
	var out []string
	for _, one := range f.each(files) {
		if strings.Contains(err.Error(), one.path) {
			out = append(out, one.flag)
		}
	}
	return strings.Join(out, " and ")
}

type namedFile struct{ flag, path string }

func (f fileFlags) each(files certreload.Files) []namedFile {
	return slices.DeleteFunc([]namedFile{{f.cert, files.Cert}, {f.key, files.Key}, {f.ca, files.CA}, {f.extra, files.Extra}}, func(n namedFile) bool { return n.path == "" })
}

// readable makes one sentence of each file that is not there or may not be read.
func readable(files certreload.Files, flags fileFlags) error {
	var errs []error
	for _, one := range flags.each(files) {
		errs = append(errs, readableFile(one.flag, one.path))
	}
	return errors.Join(errs...)
}

func readableFile(flag, path string) error {
	_, err := os.ReadFile(path)
	if err == nil {
		return nil
	}
	reason := err
	if inner, ok := errors.AsType[*fs.PathError](err); ok {
		reason = inner.Err
	}
	return fmt.Errorf("%s %q cannot be read: %w", flag, path, reason)
}

// warnOfOpenSecret tells of a private key or a password that every user of the machine may read. It is not an error: Kubernetes mounts Secrets
// so by default.
func warnOfOpenSecret(path string, log logr.Logger) {
	if path == "" {
		return
	}
	info, err := os.Stat(path)
	if err == nil && info.Mode().Perm()&0o007 != 0 {
		log.Info("A secret file can be read by every user: mount it with mode 0440, or chmod 0600", "file", path, "mode", info.Mode().Perm().String())
	}
}

// checkSnapshot refuses what parses well and could not work: it is called at the start and before new files are taken over.
func checkSnapshot(s *certreload.Snapshot, files certreload.Files, usage x509.ExtKeyUsage, now time.Time) error {
	if s.Certificate != nil {
		if err := checkLeaf(s.Certificate.Leaf, usage, now); err != nil {
			return fmt.Errorf("certificate file %s: %w", files.Cert, err)
		}
	}
	if err := checkBundle(s.Bundle, now); err != nil {
		return fmt.Errorf("CA bundle %s: %w", files.CA, err)
	}
	if _, err := parseRevoked(string(s.Extra)); err != nil {
		return fmt.Errorf("list of revoked clients %s: %w", files.Extra, err)
	}
	return nil
}

func checkLeaf(leaf *x509.Certificate, usage x509.ExtKeyUsage, now time.Time) error {
	purpose := "clients"
	if usage == x509.ExtKeyUsageServerAuth {
		purpose = "servers"
	}
	usable := func(u x509.ExtKeyUsage) bool { return u == usage || u == x509.ExtKeyUsageAny }
	switch {
	case now.Before(leaf.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s, and it is %s now", stamp(leaf.NotBefore), stamp(now))
	case now.After(leaf.NotAfter):
		return fmt.Errorf("the certificate expired at %s, and it is %s now", stamp(leaf.NotAfter), stamp(now))
	case len(leaf.ExtKeyUsage)+len(leaf.UnknownExtKeyUsage) > 0 && !slices.ContainsFunc(leaf.ExtKeyUsage, usable):
		return fmt.Errorf("the certificate is not for %s: its extended key usage must have %sAuth", purpose, strings.TrimSuffix(purpose, "s"))
	case usage == x509.ExtKeyUsageServerAuth && len(leaf.DNSNames)+len(leaf.IPAddresses) == 0:
		return errors.New("the certificate has no DNS name or IP address among its subject alternative names, so no client would accept it")
	}
	return nil
}

// checkBundle wants authorities only: a leaf among them would be trusted for itself, no matter who holds its key.
func checkBundle(bundle []*x509.Certificate, now time.Time) error {
	valid := len(bundle) == 0
	for _, ca := range bundle {
		if !ca.BasicConstraintsValid || !ca.IsCA {
			return fmt.Errorf("the certificate of %q in it is not a certificate authority", ca.Subject)
		}
		valid = valid || (!now.Before(ca.NotBefore) && !now.After(ca.NotAfter))
	}
	if !valid {
		return errors.New("every certificate authority in it has expired or is not valid yet")
	}
	return nil
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// passwordFile returns a reader of the password, which looks at the file each time: a rotated password is used at the next login.
func passwordFile(path string) func() (string, error) {
	return func() (string, error) {
		if err := readableFile("--core-password-file", path); err != nil {
			return "", err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("reading --core-password-file: %w", err)
		}
		password := strings.TrimRight(string(data), "\r\n")
		if password == "" {
			return "", fmt.Errorf("--core-password-file %q is empty", path)
		}
		return password, nil
	}
}
