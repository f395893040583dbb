// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Kind is which of Calico's two datastores is meant.
type Kind string

// The kinds, spelled as Calico's DATASTORE_TYPE is.
const (
	EtcdV3     Kind = "etcdv3"
	Kubernetes Kind = "kubernetes"
)

// Config says where Calico's datastore is. It comes from Resolve.
type Config struct {
	Kind Kind
	Etcd EtcdConfig
}

// EtcdConfig is how to reach etcd: endpoints are URLs of one scheme; the files are PEM.
type EtcdConfig struct {
	Endpoints  []string
	Username   string
	Password   string
	CACertFile string
	CertFile   string
	KeyFile    string
}

// Resolve works out the datastore from the --datastore-type flag and the environment, by the names that calico-node and calicoctl
// read (libcalico-go, lib/apiconfig): each variable X may also be written CALICO_X.
//
// The choice is explicit: the flag or DATASTORE_TYPE, or etcd endpoints, which mean etcdv3. Unlike libcalico-go it never falls back to
// another datastore when something was forgotten, and contradictions are errors. Each error is one sentence for the person who set it.
func Resolve(flag string, lookup func(string) (string, bool)) (Config, error) {
	env := environment{lookup: lookup}
	kind, err := resolveKind(flag, env.get("DATASTORE_TYPE"), env.get("ETCD_ENDPOINTS"))
	if err != nil {
		if env.get("ETCD_AUTHORITY") != "" { // which Calico has not read since version 3, and which may be what was meant
			err = fmt.Errorf("%w; ETCD_AUTHORITY, which is set, is not read: ETCD_ENDPOINTS replaces it and ETCD_SCHEME", err)
		}
		return Config{}, errors.Join(env.err, err)
	}
	c := Config{Kind: kind}
	if kind == EtcdV3 {
		c.Etcd = EtcdConfig{
			Endpoints: splitList(env.get("ETCD_ENDPOINTS")),
			Username:  env.get("ETCD_USERNAME"), Password: env.get("ETCD_PASSWORD"),
			CACertFile: env.get("ETCD_CA_CERT_FILE"), CertFile: env.get("ETCD_CERT_FILE"), KeyFile: env.get("ETCD_KEY_FILE"),
		}
		if srv := env.get("ETCD_DISCOVERY_SRV"); srv != "" {
			return Config{}, errors.New("ETCD_DISCOVERY_SRV is set, which is not supported: list the endpoints in ETCD_ENDPOINTS")
		}
	}
	if env.err != nil {
		return Config{}, env.err
	}
	if kind == EtcdV3 {
		return c, c.Etcd.validate()
	}
	return c, nil
}

// ResolveOrKubernetes is [Resolve] for what may run without a datastore being named, which is kubernetes then: the route reflectors' operator and its
// tools. incluster means kubernetes as well: calico-route-reflector-operator by mhmxs called it so.
func ResolveOrKubernetes(flag string, lookup func(string) (string, bool)) (Config, error) {
	const inCluster = "incluster"
	named := flag != ""
	for _, name := range []string{"DATASTORE_TYPE", "CALICO_DATASTORE_TYPE", "ETCD_ENDPOINTS", "CALICO_ETCD_ENDPOINTS"} {
		value, _ := lookup(name)
		named = named || value != ""
	}
	if flag == inCluster || !named {
		flag = string(Kubernetes)
	}
	return Resolve(flag, func(name string) (string, bool) {
		value, set := lookup(name)
		if value == inCluster && (name == "DATASTORE_TYPE" || name == "CALICO_DATASTORE_TYPE") {
			value = string(Kubernetes)
		}
		return value, set
	})
}

func resolveKind(flag, variable, endpoints string) (Kind, error) {
	if flag != "" && variable != "" && flag != variable {
		return "", fmt.Errorf("--datastore-type says %q and DATASTORE_TYPE says %q: set one of them, or both alike", flag, variable)
	}
	kind := flag
	if kind == "" {
		kind = variable
	}
	switch {
	case kind == "" && endpoints == "":
		return "", errors.New("no datastore is named: set --datastore-type (or DATASTORE_TYPE) to etcdv3 or kubernetes, " +
			"or ETCD_ENDPOINTS to Calico's etcd")
	case kind == "":
		return EtcdV3, nil
	case kind == string(EtcdV3) && endpoints == "":
		return "", errors.New("the datastore is etcdv3 but no endpoint is named: set ETCD_ENDPOINTS (or CALICO_ETCD_ENDPOINTS) " +
			"to Calico's etcd, such as https://10.0.0.1:2379")
	case kind == string(Kubernetes) && endpoints != "":
		return "", errors.New("the datastore is kubernetes but ETCD_ENDPOINTS is set as well: unset one of them, " +
			"since guessing wrong would clean the wrong datastore")
	case kind == string(EtcdV3), kind == string(Kubernetes):
		return Kind(kind), nil
	}
	return "", fmt.Errorf("datastore type %q is unknown: it must be etcdv3 or kubernetes", kind)
}

// environment reads X and CALICO_X, which must not contradict each other.
type environment struct {
	lookup func(string) (string, bool)
	err    error
}

func (e *environment) get(name string) string {
	plain, _ := e.lookup(name)
	prefixed, _ := e.lookup("CALICO_" + name)
	if plain != "" && prefixed != "" && plain != prefixed && e.err == nil {
		e.err = fmt.Errorf("%s and CALICO_%s are both set and differ: unset one of them", name, name)
	}
	if prefixed != "" {
		return prefixed
	}
	return plain
}

func splitList(s string) []string {
	var out []string
	for part := range strings.SplitSeq(s, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func (c EtcdConfig) validate() error {
	scheme, err := c.scheme()
	if err != nil {
		return err
	}
	if scheme == "http" && (c.CACertFile != "" || c.CertFile != "" || c.KeyFile != "") {
		return errors.New("etcd certificates are set but ETCD_ENDPOINTS is http: use https, or unset the certificates")
	}
	if (c.CertFile == "") != (c.KeyFile == "") {
		return errors.New("only one of ETCD_CERT_FILE and ETCD_KEY_FILE is set: a client certificate needs both")
	}
	if (c.Username == "") != (c.Password == "") {
		return errors.New("only one of ETCD_USERNAME and ETCD_PASSWORD is set: set both or none")
	}
	return c.validateFiles()
}

// scheme is the one scheme of all endpoints.
func (c EtcdConfig) scheme() (string, error) {
	if len(c.Endpoints) == 0 {
		return "", errors.New("ETCD_ENDPOINTS holds no endpoint: set it to Calico's etcd, such as https://10.0.0.1:2379")
	}
	scheme := ""
	for _, endpoint := range c.Endpoints {
		u, err := url.Parse(endpoint)
		switch {
		case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
			return "", fmt.Errorf("ETCD_ENDPOINTS holds %q, which is not a URL such as https://10.0.0.1:2379: correct it", endpoint)
		case u.User != nil:
			return "", errors.New("ETCD_ENDPOINTS holds a user name, which would appear in every log: use ETCD_USERNAME and ETCD_PASSWORD")
		case scheme != "" && scheme != u.Scheme:
			return "", errors.New("ETCD_ENDPOINTS mixes http and https: use one of them for all endpoints")
		}
		scheme = u.Scheme
	}
	return scheme, nil
}

func (c EtcdConfig) validateFiles() error {
	if c.CACertFile != "" {
		if err := readableCA(c.CACertFile); err != nil {
			return err
		}
	}
	for name, file := range map[string]string{"ETCD_CERT_FILE": c.CertFile, "ETCD_KEY_FILE": c.KeyFile} {
		if file == "" {
			continue
		}
		if _, err := os.ReadFile(file); err != nil {
			return fmt.Errorf("%s cannot be read: %w", name, err)
		}
	}
	return nil
}

func readableCA(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("ETCD_CA_CERT_FILE cannot be read: %w", err)
	}
	for len(data) > 0 {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		if _, err := x509.ParseCertificate(block.Bytes); block.Type == "CERTIFICATE" && err == nil {
			return nil
		}
	}
	return fmt.Errorf("ETCD_CA_CERT_FILE %s holds no certificate: it must be a PEM file with the CA of Calico's etcd", file)
}
