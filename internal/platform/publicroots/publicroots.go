// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package publicroots gives a program the public certificate authorities, those of Mozilla's list as golang.org/x/crypto carries it, for where the
// system has none: an image that holds one binary and nothing else. A store of the system's, or the one that SSL_CERT_FILE and SSL_CERT_DIR name,
// wins, and then the embedded ones count for nothing.
//
// Only main packages import it, for its effect on the whole process, and only those of programs that may meet a certificate of a public authority:
// DigitalOcean's API, and Calico's etcd when no ETCD_CA_CERT_FILE is set. internal/archtest keeps it out of the others.
package publicroots

import _ "golang.org/x/crypto/x509roots/fallback" // the import is the package
