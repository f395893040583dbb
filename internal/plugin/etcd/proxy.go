// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

// proxyAccess is what a client of a tenant's proxies needs.
type proxyAccess struct {
	endpoint      string
	ca, cert, key []byte
}

// proxy is what the flags say, completed with what the cluster has. If nothing is missing, or the endpoint is plaintext, no cluster is asked.
func (f *access) proxy(ctx context.Context, env *observe.Env, name string) (proxyAccess, error) {
	p := proxyAccess{endpoint: f.endpoint}
	if (f.cert == "") != (f.key == "") {
		return p, errors.New("--cert and --key go together")
	}
	files, err := readNamed(f.ca, f.cert, f.key)
	if err != nil {
		return p, err
	}
	p.ca, p.cert, p.key = files[0], files[1], files[2]
	plain := len(p.endpoint) > 5 && p.endpoint[:5] == "http:"
	if plain || p.endpoint != "" && p.ca != nil && p.cert != nil {
		return p, nil
	}
	c, err := env.Cluster()
	if err != nil {
		return p, err
	}
	return p, p.complete(ctx, c.Dynamic, name)
}

// complete fills in what is missing.
func (p *proxyAccess) complete(ctx context.Context, client dynamic.Interface, name string) error {
	object, err := client.Resource(observe.EtcdStorages()).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("the cluster has no EtcdStorage %q; give --endpoint, --cacert, --cert and --key, or --core-endpoint", name)
	}
	var storage v1alpha1.EtcdStorage
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &storage)
	}
	if err != nil {
		return fmt.Errorf("reading EtcdStorage %s: %w", name, err)
	}
	if p.endpoint = cmp.Or(p.endpoint, storage.Status.Endpoint); p.endpoint == "" {
		return fmt.Errorf("EtcdStorage %s has no endpoint yet: see `kubectl describe etcdstorages.%s %s`", name, v1alpha1.GroupVersion.Group, name)
	}
	if p.ca == nil {
		values, err := delivered(ctx, client, name, "configmaps", "caCertConfigMap", "--cacert", storage.Spec.CACertConfigMaps, v1alpha1.ServingCAKey)
		if err != nil {
			return err
		}
		p.ca = values[0]
	}
	if p.cert == nil {
		values, err := delivered(ctx, client, name, "secrets", "clientCertSecret", "--cert and --key", storage.Spec.ClientCertSecrets, "tls.crt", "tls.key")
		if err != nil {
			return err
		}
		p.cert, p.key = values[0], values[1]
	}
	return nil
}

// delivered reads keys of the first ConfigMap or Secret that an EtcdStorage names.
func delivered(
	ctx context.Context, client dynamic.Interface, name, resource, field, flags string, destinations []v1alpha1.Destination, keys ...string,
) ([][]byte, error) {
	if len(destinations) == 0 {
		return nil, fmt.Errorf("EtcdStorage %s names none in spec.%s: give %s", name, field, flags)
	}
	d := destinations[0]
	object, err := client.Resource(schema.GroupVersionResource{Version: "v1", Resource: resource}).Namespace(d.Namespace).Get(ctx, d.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading %s %s/%s, which EtcdStorage %s names; give %s if you may not: %w", resource, d.Namespace, d.Name, name, flags, err)
	}
	var out [][]byte
	for _, key := range keys {
		text, _, _ := unstructured.NestedString(object.Object, "data", key)
		value := []byte(text)
		if resource == "secrets" {
			if value, err = base64.StdEncoding.DecodeString(text); err != nil {
				return nil, fmt.Errorf("reading %s of %s %s/%s: %w", key, resource, d.Namespace, d.Name, err)
			}
		}
		if len(value) == 0 {
			return nil, fmt.Errorf("%s %s/%s has no %s yet: see `kubectl describe etcdstorages.%s %s`", resource, d.Namespace, d.Name, key, v1alpha1.GroupVersion.Group, name)
		}
		out = append(out, value)
	}
	return out, nil
}
