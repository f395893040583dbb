// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package calico

import (
	"strings"
	"testing"
)

// The datastore is what the flag or the environment names, kubernetes if neither does; contradictions are refused.
func TestResolveOrKubernetes(t *testing.T) {
	t.Parallel()
	const endpoint = "http://192.0.2.1:2379"
	for name, c := range map[string]struct {
		flag        string
		environment map[string]string
		want        Kind
		refused     string
	}{
		"nothing":                 {want: Kubernetes},
		"kubernetes":              {flag: "kubernetes", want: Kubernetes},
		"incluster, as before":    {environment: map[string]string{"DATASTORE_TYPE": "incluster"}, want: Kubernetes},
		"incluster by the flag":   {flag: "incluster", want: Kubernetes},
		"etcdv3":                  {environment: map[string]string{"DATASTORE_TYPE": "etcdv3", "ETCD_ENDPOINTS": endpoint}, want: EtcdV3},
		"etcdv3 by the flag":      {flag: "etcdv3", environment: map[string]string{"CALICO_ETCD_ENDPOINTS": endpoint}, want: EtcdV3},
		"endpoints alone":         {environment: map[string]string{"ETCD_ENDPOINTS": endpoint}, want: EtcdV3},
		"the other of the names":  {environment: map[string]string{"CALICO_DATASTORE_TYPE": "incluster"}, want: Kubernetes},
		"etcdv3 and no endpoints": {flag: "etcdv3", refused: "no endpoint is named: set ETCD_ENDPOINTS"},
		"both":                    {flag: "kubernetes", environment: map[string]string{"ETCD_ENDPOINTS": endpoint}, refused: "ETCD_ENDPOINTS is set as well"},
		"incluster and endpoints": {environment: map[string]string{"DATASTORE_TYPE": "incluster", "ETCD_ENDPOINTS": endpoint}, refused: "ETCD_ENDPOINTS is set as well"},
		"two answers":             {flag: "etcdv3", environment: map[string]string{"DATASTORE_TYPE": "kubernetes"}, refused: "--datastore-type says"},
		"another":                 {flag: "etcdv2", refused: `datastore type "etcdv2" is unknown`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ResolveOrKubernetes(c.flag, func(name string) (string, bool) { v, ok := c.environment[name]; return v, ok })
			switch {
			case c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)):
				t.Errorf("the error is %v, want %q", err, c.refused)
			case c.refused == "" && (err != nil || got.Kind != c.want):
				t.Errorf("it is %q, %v; want %q", got.Kind, err, c.want)
			case c.want == EtcdV3 && (len(got.Etcd.Endpoints) != 1 || got.Etcd.Endpoints[0] != endpoint):
				t.Errorf("the endpoints are %v", got.Etcd.Endpoints)
			}
		})
	}
}
