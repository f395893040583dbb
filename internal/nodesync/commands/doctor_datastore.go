// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	"github.com/projectcalico/calico/libcalico-go/lib/backend/model"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

func oneLine(err error) string { return command.OneLine(err.Error()) }

// gatherEtcd asks each endpoint how it is, and reads ClusterInformation as it is stored: what is broken in it is to be seen.
func (x *examination) gatherEtcd(ctx context.Context, e *doctor.Evidence) {
	config, err := x.config.Etcd.Client()
	var etcd *clientv3.Client
	if err == nil {
		etcd, err = clientv3.New(config)
	}
	if err != nil {
		e.ClusterInformation = failed[doctor.ClusterInformation](err)
		return
	}
	defer func() { _ = etcd.Close() }()
	e.Members = members(ctx, etcd, x.config.Etcd.Endpoints)
	if e.Datastore.Failure != "" {
		return
	}
	e.ClusterInformation = ask(ctx, func(ctx context.Context) (doctor.ClusterInformation, error) {
		key, err := model.KeyToDefaultPath(model.ResourceKey{Kind: apiv3.KindClusterInformation, Name: "default"})
		if err != nil {
			return doctor.ClusterInformation{}, err
		}
		resp, err := etcd.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return doctor.ClusterInformation{}, err
		}
		return parseClusterInformation(resp.Kvs[0].Value)
	})
}

// memberTimeout bounds the question to one endpoint; all are asked at once.
const memberTimeout = 3 * time.Second

func members(ctx context.Context, etcd *clientv3.Client, endpoints []string) []doctor.Member {
	out := make([]doctor.Member, len(endpoints))
	var asking sync.WaitGroup
	for i, endpoint := range endpoints {
		asking.Go(func() {
			status := askFor(ctx, memberTimeout, func(ctx context.Context) (*clientv3.StatusResponse, error) { return etcd.Status(ctx, endpoint) })
			if !status.Asked {
				return
			}
			out[i] = doctor.Member{Endpoint: endpoint, Failure: status.Failure}
			if status.Failure == "" {
				out[i].Version, out[i].Alarms = status.Value.Version, status.Value.Errors
			}
		})
	}
	asking.Wait()
	return slices.DeleteFunc(out, func(m doctor.Member) bool { return m.Endpoint == "" }) // cut short
}

// clusterInformation reads it in the kubernetes datastore.
func (x *examination) clusterInformation(ctx context.Context) (doctor.ClusterInformation, error) {
	data, err := x.api.Discovery().RESTClient().Get().AbsPath("/apis/crd.projectcalico.org/v1/clusterinformations/default").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return doctor.ClusterInformation{}, nil
	}
	if err != nil {
		return doctor.ClusterInformation{}, err
	}
	return parseClusterInformation(data)
}

func parseClusterInformation(data []byte) (doctor.ClusterInformation, error) {
	var info apiv3.ClusterInformation
	if err := json.Unmarshal(data, &info); err != nil {
		return doctor.ClusterInformation{}, fmt.Errorf("parsing ClusterInformation: %w", err)
	}
	return doctor.ClusterInformation{
		Exists: true, Ready: info.Spec.DatastoreReady != nil && *info.Spec.DatastoreReady, Version: info.Spec.CalicoVersion,
		BoundTo: info.Annotations[nodesync.BindingAnnotation],
	}, nil
}

// gatherCertificates reads those that the settings and the kubeconfig name.
func (x *examination) gatherCertificates(e *doctor.Evidence) {
	etcd := x.config.Etcd
	if etcd.CACertFile != "" {
		data, err := os.ReadFile(etcd.CACertFile)
		e.Certificates = append(e.Certificates, authority("ETCD_CA_CERT_FILE", etcd.CACertFile, data, err))
	}
	if etcd.CertFile != "" && etcd.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(etcd.CertFile, etcd.KeyFile)
		e.Certificates = append(e.Certificates, leaf("ETCD_CERT_FILE", etcd.CertFile, pair, err))
	}
	if x.cluster == nil {
		return
	}
	files := x.cluster.TLSClientConfig
	if len(files.CAData) > 0 || files.CAFile != "" {
		data, err := fileOr(files.CAData, files.CAFile)
		e.Certificates = append(e.Certificates, authority("the CA of the API server", files.CAFile, data, err))
	}
	if len(files.CertData) > 0 || files.CertFile != "" {
		pair, err := kubernetesPair(files)
		e.Certificates = append(e.Certificates, leaf("the client certificate of --kubeconfig", files.CertFile, pair, err))
	}
}

func kubernetesPair(files rest.TLSClientConfig) (tls.Certificate, error) {
	cert, err := fileOr(files.CertData, files.CertFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := fileOr(files.KeyData, files.KeyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}

func fileOr(data []byte, file string) ([]byte, error) {
	if len(data) > 0 {
		return data, nil
	}
	return os.ReadFile(file)
}

// leaf is the certificate by which a client shows who it is.
func leaf(name, file string, pair tls.Certificate, err error) doctor.Certificate {
	out := doctor.Certificate{Name: name, File: file}
	if err != nil {
		out.Failure = oneLine(err)
		return out
	}
	out.NotBefore, out.NotAfter = pair.Leaf.NotBefore, pair.Leaf.NotAfter
	return out
}

// authority is, of all certificates of a CA file, the one that ends last: a file may hold an old one alongside a new one.
func authority(name, file string, data []byte, err error) doctor.Certificate {
	out := doctor.Certificate{Name: name, File: file}
	for err == nil && len(data) > 0 {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			break
		}
		certificate, parseErr := x509.ParseCertificate(block.Bytes)
		if parseErr == nil && certificate.NotAfter.After(out.NotAfter) {
			out.NotBefore, out.NotAfter = certificate.NotBefore, certificate.NotAfter
		}
	}
	if err == nil && out.NotAfter.IsZero() {
		err = errors.New("it holds no certificate")
	}
	if err != nil {
		out.Failure = oneLine(err)
	}
	return out
}
