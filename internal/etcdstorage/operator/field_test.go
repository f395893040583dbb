// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package operator

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// leaves are the paths of a struct's fields as users write them; structs of the API's own package are gone into.
func leaves(prefix string, of reflect.Type, into map[string]bool) {
	for field := range of.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		if inner.Kind() == reflect.Struct && inner.PkgPath() == of.PkgPath() {
			leaves(prefix+name+".", inner, into)
			continue
		}
		into[prefix+name] = true
	}
}

// told is all that comes of a world, as text: what is refused, what is written until nothing remains, and what is done when the EtcdStorage goes.
func told(t *testing.T, w World) string {
	t.Helper()
	w, done := carryOut(t, w, 99, nil)
	out := fmt.Sprintln(MakePlan(w).Refusals)
	if _, found := w.own(KindNetworkPolicy, "etcd-a"); !found {
		out += "no NetworkPolicy\n"
	}
	_, exit := carryOut(t, exited(w), 99, nil)
	for _, s := range append(done, exit...) {
		content := WriteOf(s).Content
		if WriteOf(s).Ref.Kind == KindSecret {
			content = nil
		}
		raw := must.Get(json.Marshal(content)).Or(t)
		out += fmt.Sprintf("%s %s validity=%s owner=%s %s\n", Kind(s), s.What().Object, field[time.Duration](s, "Validity"), field[Owner](s, "Owner").Prefix, raw)
	}
	return out
}

// Each field of the spec does what it says: the text comes of the change, and does not come of the defaults. A field that is new needs a line here.
func TestEachFieldHasItsEffect(t *testing.T) {
	t.Parallel()
	type spec = v1alpha1.EtcdStorageSpec
	five, seven := int32(5), int64(7)
	memory := resource.MustParse("128Mi")
	bytes, no := resource.MustParse("1Gi"), false
	issuer := func(kind, group string) func(*spec) {
		return func(s *spec) { s.IssuerRef = &v1alpha1.IssuerRef{Name: "vault", Kind: kind, Group: group} }
	}
	deliver := func(s *spec) { s.CACertConfigMaps = []v1alpha1.Destination{{Name: "x", Namespace: "clients"}} }
	cases := map[string]struct {
		change func(*spec)
		want   string
	}{
		"caCertConfigMap":            {deliver, `"matchLabels":{"kubernetes.io/metadata.name":"clients"}`},
		"clientCertSecret":           {func(s *spec) { s.ClientCertSecrets = []v1alpha1.Destination{{Name: "x", Namespace: "users"}} }, `"matchLabels":{"kubernetes.io/metadata.name":"users"}`},
		"signingCertificateValidity": {func(s *spec) { s.SigningCertificateValidity.Duration = 4000 * time.Hour }, "MakeCA Secret/a-signers validity=4000h0m0s"},
		"servingCertificateValidity": {func(s *spec) { s.ServingCertificateValidity.Duration = time.Hour }, "IssueServing Secret/a-server-cert validity=1h0m0s"},
		"clientCertificateValidity":  {func(s *spec) { s.ClientCertificateValidity.Duration = time.Hour }, "DeliverClient Secret tenant/client-0 validity=1h0m0s"},
		"issuerRef.name":             {issuer("Issuer", "cert-manager.io"), `"issuerRef":{"group":"cert-manager.io","kind":"Issuer","name":"vault"}`},
		"issuerRef.kind":             {issuer("ClusterIssuer", "cert-manager.io"), `"kind":"ClusterIssuer","name":"vault"`},
		"issuerRef.group":            {issuer("Pool", "issuers.example"), `"issuerRef":{"group":"issuers.example"`},
		"prefix":                     {func(s *spec) { s.Prefix = "/else/" }, `"--prefix=/else/"`},
		"adoptExistingData":          {func(s *spec) { s.AdoptExistingData = true }, "Claim /.etcd.mooring.dev/owners/a"},
		"deletionPolicy":             {func(s *spec) { s.DeletionPolicy = v1alpha1.DeletionDelete }, "DeleteKeys 2500 keys under /a/"},
		"quota.bytes":                {func(s *spec) { s.Quota.Bytes = &bytes }, `"--quota-bytes=1073741824"`},
		"quota.keys":                 {func(s *spec) { s.Quota.Keys = &seven }, `"--quota-keys=7"`},
		"quota.historyBytes":         {func(s *spec) { s.Quota.HistoryBytes = &bytes }, `"--quota-history-bytes=1073741824"`},
		"quota.leases":               {func(s *spec) { s.Quota.Leases = &seven }, `"--quota-leases=7"`},
		"quota.watches":              {func(s *spec) { s.Quota.Watches = &five }, `"--quota-watches=5"`},
		"quota.unitsPerSecond":       {func(s *spec) { s.Quota.UnitsPerSecond = &five }, `"--max-units-per-second=5"`},
		"quota.listsInFlight":        {func(s *spec) { s.Quota.ListsInFlight = &five }, `"--max-lists-in-flight=5"`},
		"quota.keepAlivesPerSecond":  {func(s *spec) { s.Quota.KeepAlivesPerSecond = &five }, `"--max-keep-alives-per-second=5"`},
		"quota.watchMessagesPerSecond": {
			func(s *spec) { s.Quota.WatchMessagesPerSecond = &five }, `"--max-watch-messages-per-second=5"`,
		},
		"quota.streams":              {func(s *spec) { s.Quota.Streams = &five }, `"--max-streams=5"`},
		"quota.streamsPerConnection": {func(s *spec) { s.Quota.StreamsPerConnection = &five }, `"--max-streams-per-connection=5"`},
		"quota.connectionsPerIdentity": {
			func(s *spec) { s.Quota.ConnectionsPerIdentity = &five }, `"--max-connections-per-identity=5"`,
		},
		"priority":            {func(s *spec) { s.Priority = 100 }, `"--max-in-flight=32"`},
		"compaction.mode":     {func(s *spec) { s.Compaction.Mode = v1alpha1.CompactionPerReplica }, `"--system-prefix=","--replicas=`},
		"replicas":            {func(s *spec) { s.Replicas = 5 }, `"replicas":5`},
		"memory.request":      {func(s *spec) { s.Memory.Request = &memory }, `"requests":{"cpu":"50m","memory":"128Mi"}`},
		"memory.limit":        {func(s *spec) { s.Memory.Limit = &memory }, `"limits":{"memory":"128Mi"}`},
		"topologySpread.keys": {func(s *spec) { s.TopologySpread.Keys = []string{"rack"} }, `"topologyKey":"rack","whenUnsatisfiable":"ScheduleAnyway"`},
		"topologySpread.whenUnsatisfiable": {func(s *spec) { s.TopologySpread.WhenUnsatisfiable = corev1.DoNotSchedule },
			`"topologyKey":"kubernetes.io/hostname","whenUnsatisfiable":"DoNotSchedule"`},
		"networkPolicy.enabled":           {func(s *spec) { s.NetworkPolicy.Enabled = &no }, "no NetworkPolicy"},
		"networkPolicy.clientNamespaces":  {func(s *spec) { s.NetworkPolicy.ClientNamespaces = []string{"zone"} }, `{"kubernetes.io/metadata.name":"zone"}}}],"ports":[{"port":"etcd"`},
		"networkPolicy.clientCIDRs":       {func(s *spec) { s.NetworkPolicy.ClientCIDRs = []string{"10.0.0.0/8"} }, `{"ipBlock":{"cidr":"10.0.0.0/8"}}],"ports":[{"port":"etcd"`},
		"networkPolicy.metricsNamespaces": {func(s *spec) { s.NetworkPolicy.MetricsNamespaces = []string{"watch"} }, `{"kubernetes.io/metadata.name":"watch"}}}],"ports":[{"port":"metrics"`},
	}
	all := map[string]bool{}
	leaves("", reflect.TypeFor[spec](), all)
	if got, want := slices.Sorted(maps.Keys(cases)), slices.Sorted(maps.Keys(all)); !slices.Equal(got, want) {
		t.Errorf("fields with a case %v\nfields of the kind %v", got, want)
	}
	for field, c := range cases {
		w := world("a").delivering(1, 1)
		if field == "adoptExistingData" {
			w.Core.Keys = 3
		}
		before := told(t, w)
		c.change(&w.Storage.Spec)
		after := told(t, w)
		if strings.Contains(before, c.want) || !strings.Contains(after, c.want) {
			t.Errorf("%s: without the change %v, with it %v: %s", field, strings.Contains(before, c.want), strings.Contains(after, c.want), c.want)
		}
	}
}

// objectOf is one of the objects as its kind.
func objectOf[T any](t *testing.T, w World, kind, name string) *T {
	t.Helper()
	o, found := w.own(kind, name)
	if !found {
		t.Fatalf("there is no %s %s", kind, name)
	}
	out := new(T)
	must.Do(t, runtime.DefaultUnstructuredConverter.FromUnstructured(o.Content, out))
	return out
}

// Whatever is changed in the spec, the proxies are replaced one by one, each when its successor is ready, and an eviction takes one at a time. What
// cannot be changed in a Deployment is not.
func TestAChangeRollsTheProxiesWithoutAnOutage(t *testing.T) {
	t.Parallel()
	w, _ := carryOut(t, world("a"), 99, nil)
	before := objectOf[appsv1.Deployment](t, w, KindDeployment, "etcd-a")
	seven, five := int64(7), int32(5)
	s := &w.Storage.Spec
	s.Quota = v1alpha1.Quota{Keys: &seven, Watches: &five, UnitsPerSecond: &five}
	s.Priority, s.Replicas, s.Compaction.Mode = 1, 1, v1alpha1.CompactionPerReplica
	w, done := carryOut(t, w, 99, nil)
	if got := kinds(done); !slices.Equal(got, []string{"Apply Deployment/etcd-a"}) {
		t.Errorf("%v", got)
	}
	after := objectOf[appsv1.Deployment](t, w, KindDeployment, "etcd-a")
	if reflect.DeepEqual(before.Spec.Template, after.Spec.Template) || !reflect.DeepEqual(before.Spec.Selector, after.Spec.Selector) {
		t.Errorf("before %+v\nafter %+v", before.Spec, after.Spec)
	}
	for _, d := range []*appsv1.Deployment{before, after} {
		rolling, pod := d.Spec.Strategy.RollingUpdate, d.Spec.Template.Spec
		if d.Spec.Strategy.Type != appsv1.RollingUpdateDeploymentStrategyType || rolling.MaxUnavailable.IntValue() != 0 || rolling.MaxSurge.IntValue() != 1 {
			t.Errorf("%+v", d.Spec.Strategy)
		}
		if pod.Containers[0].ReadinessProbe.HTTPGet.Path != "/readyz" {
			t.Errorf("%+v", pod.Containers[0].ReadinessProbe)
		}
		var drain time.Duration
		for _, arg := range pod.Containers[0].Args {
			if text, found := strings.CutPrefix(arg, "--drain-"); found {
				_, text, _ = strings.Cut(text, "=")
				d, err := time.ParseDuration(text)
				if err != nil || d <= 0 {
					t.Errorf("%s: %v", arg, err)
				}
				drain += d
			}
		}
		if grace := time.Duration(*pod.TerminationGracePeriodSeconds) * time.Second; drain == 0 || grace <= drain {
			t.Errorf("killed after %s, while it may drain for %s", grace, drain)
		}
		for _, spread := range pod.TopologySpreadConstraints {
			if !slices.Equal(spread.MatchLabelKeys, []string{"pod-template-hash"}) || spread.MaxSkew != 1 || !reflect.DeepEqual(spread.LabelSelector, d.Spec.Selector) {
				t.Errorf("%+v", spread)
			}
		}
	}
	budget := objectOf[policyv1.PodDisruptionBudget](t, w, KindBudget, "etcd-a")
	if budget.Spec.MaxUnavailable.IntValue() != 1 || !reflect.DeepEqual(budget.Spec.Selector, after.Spec.Selector) {
		t.Errorf("%+v", budget.Spec)
	}
}

// The seats of a tenant are in proportion to its priority, and there is always one. They are a contract with users who chose a priority.
func TestSeats(t *testing.T) {
	t.Parallel()
	for priority, want := range map[int32]int32{1: 1, 3: 1, 4: 2, 25: 8, 50: 16, 51: 17, 100: 32} {
		if got := Seats(priority); got != want {
			t.Errorf("priority %d: %d, want %d", priority, got, want)
		}
	}
	w := world("a")
	if args := w.Args(Owner{}); !slices.Contains(args, "--max-in-flight=16") || !slices.Contains(args, "--max-answer-bytes=134217728") || slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--quota") || strings.Contains(a, "units") }) {
		t.Errorf("%v", args)
	}
}

// What answers may take follows from what the proxy may: an answer of half as much again as the flag passes alone, and leaves a quarter for all else.
func TestAnswersFitIntoTheMemory(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"64Mi", "256Mi", "1Gi", "1000M"} {
		w := world("a")
		memory := resource.MustParse(limit)
		w.Storage.Spec.Memory.Limit = &memory
		if want := fmt.Sprintf("--max-answer-bytes=%d", memory.Value()/2); !slices.Contains(w.Args(Owner{}), want) {
			t.Errorf("%s: %v, want %s", limit, w.Args(Owner{}), want)
		}
		limits := w.container(Owner{}, nil).Resources.Limits
		if got := limits.Memory(); got.Cmp(memory) != 0 {
			t.Errorf("the limit is %s, want %s", got, limit)
		}
	}
}

// The image of the proxies is pulled with the Secrets that the operator was told of. Without any, templates are as they were.
func TestPullSecrets(t *testing.T) {
	t.Parallel()
	w := world("a")
	w, _ = carryOut(t, w, 99, nil)
	if got := objectOf[appsv1.Deployment](t, w, KindDeployment, "etcd-a").Spec.Template.Spec.ImagePullSecrets; got != nil {
		t.Errorf("%v", got)
	}
	w.Settings.PullSecrets = []string{"one", "two"}
	w, done := carryOut(t, w, 99, nil)
	want := []corev1.LocalObjectReference{{Name: "one"}, {Name: "two"}}
	if got := objectOf[appsv1.Deployment](t, w, KindDeployment, "etcd-a").Spec.Template.Spec.ImagePullSecrets; !slices.Equal(got, want) || len(done) != 1 {
		t.Errorf("%v %v", got, kinds(done))
	}
}
