// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"crypto/tls"
	"encoding/json"
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

	judges "github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/nodesync/doctor"
	"github.com/mooring-dev/mooring/internal/platform/command"
)

// oneLine is an error in one line, "" for none.
func oneLine(err error) string {
	if err == nil {
		return ""
	}
	return command.OneLine(err.Error())
}

// gatherEtcd asks each endpoint how it is, and reads ClusterInformation as it is stored: what is broken in it is to be seen.
func (x *examination) gatherEtcd(ctx context.Context, e *doctor.Evidence) {
	config, err := x.config.Etcd.Client()
	var etcd *clientv3.Client
	if err == nil {
		etcd, err = clientv3.New(config)
	}
	if err != nil {
		e.ClusterInformation = failed[*apiv3.ClusterInformation](err)
		return
	}
	defer func() { _ = etcd.Close() }()
	e.Members = members(ctx, etcd, x.config.Etcd.Endpoints)
	if e.Datastore.Failure != "" {
		return
	}
	e.ClusterInformation = ask(ctx, func(ctx context.Context) (*apiv3.ClusterInformation, error) {
		key, err := model.KeyToDefaultPath(model.ResourceKey{Kind: apiv3.KindClusterInformation, Name: "default"})
		if err != nil {
			return nil, err
		}
		resp, err := etcd.Get(ctx, key)
		if err != nil || len(resp.Kvs) == 0 {
			return nil, err
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
func (x *examination) clusterInformation(ctx context.Context) (*apiv3.ClusterInformation, error) {
	data, err := x.api.Discovery().RESTClient().Get().AbsPath("/apis/crd.projectcalico.org/v1/clusterinformations/default").Do(ctx).Raw()
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseClusterInformation(data)
}

func parseClusterInformation(data []byte) (*apiv3.ClusterInformation, error) {
	var info apiv3.ClusterInformation
	if err := json.Unmarshal(data, &info); err != nil {
		return nil, fmt.Errorf("parsing ClusterInformation: %w", err)
	}
	return &info, nil
}

// gatherCertificates reads those that the settings and the kubeconfig name.
func (x *examination) gatherCertificates(e *doctor.Evidence) {
	add := func(name, file string, leaf bool, pem []byte, err error) {
		b := judges.Bundle{Where: name, PEM: pem, Leaf: leaf, Problem: oneLine(err)}
		if file != "" {
			b.Where += " (" + file + ")"
		}
		e.Certificates.Bundles = append(e.Certificates.Bundles, b)
	}
	etcd := x.config.Etcd
	if etcd.CACertFile != "" {
		authorities, err := os.ReadFile(etcd.CACertFile)
		add("ETCD_CA_CERT_FILE", etcd.CACertFile, false, authorities, err)
	}
	if etcd.CertFile != "" && etcd.KeyFile != "" {
		leaf, err := pair(rest.TLSClientConfig{CertFile: etcd.CertFile, KeyFile: etcd.KeyFile})
		add("ETCD_CERT_FILE", etcd.CertFile, true, leaf, err)
	}
	if x.cluster == nil {
		return
	}
	files := x.cluster.TLSClientConfig
	if len(files.CAData) > 0 || files.CAFile != "" {
		authorities, err := fileOr(files.CAData, files.CAFile)
		add("the CA of the API server", files.CAFile, false, authorities, err)
	}
	if len(files.CertData) > 0 || files.CertFile != "" {
		leaf, err := pair(files)
		add("the client certificate of --kubeconfig", files.CertFile, true, leaf, err)
	}
}

// pair is the certificate by which a client shows who it is, and an error if that is not of its key.
func pair(files rest.TLSClientConfig) ([]byte, error) {
	cert, err := fileOr(files.CertData, files.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := fileOr(files.KeyData, files.KeyFile)
	if err == nil {
		_, err = tls.X509KeyPair(cert, key)
	}
	return cert, err
}

func fileOr(data []byte, file string) ([]byte, error) {
	if len(data) > 0 {
		return data, nil
	}
	return os.ReadFile(file)
}
