// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package loadbalancer_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

func TestSources(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		ranges []string
		allow  string
		want   string // or the beginning of an error
	}{
		"none":                       {nil, "", "[]"},
		"ranges":                     {[]string{"2001:db8::1/32", " 192.0.2.7/24 ", "192.0.2.0/24"}, "", "[192.0.2.0/24 2001:db8::/32]"},
		"ranges win":                 {[]string{"10.0.0.0/8"}, "ip:192.0.2.1", "[10.0.0.0/8]"},
		"rules":                      {nil, "ip:192.0.2.1, cidr:198.51.100.0/24,ip:192.0.2.1", "[192.0.2.1/32 198.51.100.0/24]"},
		"an IPv6 address in a rule":  {nil, "ip:2001:db8::1", "[2001:db8::1/128]"},
		"an IPv4 address as IPv6":    {nil, "ip:::ffff:192.0.2.1", "[192.0.2.1/32]"},
		"a range that is an address": {[]string{"192.0.2.1"}, "", `spec.loadBalancerSourceRanges is "192.0.2.1"`},
		"a rule without its kind":    {nil, "192.0.2.1", "annotation " + annotation.AllowRules + ` is "192.0.2.1", where "192.0.2.1" is neither`},
		"a zone":                     {nil, "ip:fe80::1%eth0", "annotation " + annotation.AllowRules},
	} {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{annotation.AllowRules: tt.allow}},
			Spec:       corev1.ServiceSpec{LoadBalancerSourceRanges: tt.ranges},
		}
		settings, _, err := annotation.Parse(s.Annotations, annotation.Options{})
		must.Do(t, err)
		sources, err := loadbalancer.Sources(s, settings)
		got := fmt.Sprint(sources)
		if err != nil {
			got = err.Error()
		}
		if !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
}

// A tag is what allows a load balancer to be deleted, so that it is put on none that could not be.
func TestUntagged(t *testing.T) {
	t.Parallel()
	service := func(name, id string, pairs ...string) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "n", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{annotation.LoadBalancerID: id},
				CreationTimestamp: metav1.NewTime(time.Unix(int64(len(name)), 0)),
			},
			Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
			Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "of " + id}}}},
		}
		for i := 0; i < len(pairs); i += 2 {
			s.Annotations[pairs[i]] = pairs[i+1]
		}
		return s
	}
	class, now := "x", metav1.NewTime(time.Unix(9, 0))
	other := service("class", "class")
	other.Spec.LoadBalancerClass = &class
	going := service("going", "going")
	going.DeletionTimestamp = &now
	nodePort := service("nodeport", "nodeport")
	nodePort.Spec.Type = corev1.ServiceTypeNodePort
	claimed := service("claimed", "claimed") // its status shows nothing: anybody may write that it has it
	claimed.Status = corev1.ServiceStatus{}
	services := []*corev1.Service{
		claimed,
		service("z", "plain"), service("unknown", "unknown"), service("tagged", "tagged"), service("case", "case"), service("foreign", "foreign"),
		service("elsewhere", "elsewhere"), service("gone", "gone"), service("disowned", "disowned", annotation.Disown, "true"), service("both", "both"),
		service("copied", "both"), service("noid", ""), other, going, nodePort,
	}
	balancer := func(id string, tags []string, droplets ...int) loadbalancer.Observed {
		return loadbalancer.Observed{ID: id, IP: "of " + id, Name: id, Tags: tags, DropletIDs: droplets}
	}
	list := []loadbalancer.Observed{
		balancer("plain", []string{}, 1), balancer("unknown", nil, 1), balancer("tagged", []string{"k8s:c1"}, 1), balancer("case", []string{"K8S:C1"}, 1),
		balancer("foreign", []string{"k8s:c2"}, 1), balancer("elsewhere", []string{}, 9), balancer("disowned", []string{}, 1), balancer("both", []string{"a"}, 2),
		balancer("class", []string{}, 1), balancer("going", []string{}, 1), balancer("nodeport", []string{}, 1), balancer("nobodys", []string{}, 1), balancer("claimed", []string{}, 1), balancer("", []string{}, 1),
	}
	var got []string
	for _, lb := range loadbalancer.Untagged(services, list, "c1", []int{1, 2}) {
		got = append(got, lb.ID)
	}
	if fmt.Sprint(got) != "[both plain unknown]" {
		t.Errorf("%v are to be tagged", got)
	}
	if left := loadbalancer.Untagged(services, list, "", []int{1, 2}); len(left) > 0 {
		t.Errorf("a cluster without an ID tags %v", left)
	}
}
