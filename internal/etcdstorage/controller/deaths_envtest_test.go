// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/mooring-dev/mooring/internal/etcdstorage/operator"
	"github.com/mooring-dev/mooring/internal/etcdstorage/pki"
	"github.com/mooring-dev/mooring/internal/testkit/cases"
	"github.com/mooring-dev/mooring/internal/testkit/cluster"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// act is one thing that happens in a story.
type act func(m *deathStage, name, ns string, due time.Duration)

// story is what happens to one tenant.
type story struct {
	// spec is more of the spec than where to deliver. settled says that the tenant is served when the story begins.
	spec    string
	settled bool
	// acts are what happens, one after the other, each when the operator is done with the one before; due is the time until something is due.
	acts []act
	// end checks the outcome.
	end func(m *deathStage, name, ns string)
}

// Stories that a core with authentication tells, and those of one without.
func storiesWithUsers() map[string]story {
	turn := func(m *deathStage, _, _ string, due time.Duration) { m.clock.Step(due) }
	rollOut := func(m *deathStage, name, _ string, _ time.Duration) { m.deployed(name) }
	return map[string]story{
		"creation": {acts: []act{nothing}, end: served},
		"rotation": {
			spec: ", signingCertificateValidity: 24h, servingCertificateValidity: 12h, clientCertificateValidity: 9h", settled: true,
			acts: slices.Repeat([]act{turn}, 14), end: rotated,
		},
		"rotation of the user": {
			settled: true, end: served,
			acts: []act{
				rollOut, func(m *deathStage, _, _ string, _ time.Duration) { m.clock.Step(m.r.Settings.UserRotation) }, rollOut,
			},
		},
		"deletion of data": {spec: ", deletionPolicy: Delete", settled: true, acts: []act{(*deathStage).leave}, end: nothingOf},
	}
}

func stories() map[string]story {
	change := func(m *deathStage, name, ns string, _ time.Duration) {
		m.patch(name, fmt.Sprintf(`{"spec":{"replicas":2,"servingCertificateValidity":"1h","networkPolicy":{"enabled":false},"quota":{"keys":1000},`+
			`"clientCertSecret":[{"name":"client","namespace":%[1]q},{"name":"client-2","namespace":%[1]q}],`+
			`"caCertConfigMap":[{"name":"ca","namespace":%[1]q},{"name":"ca-2","namespace":%[1]q}]}}`, ns))
		m.r.Settings.ProxyImage = "proxy:next"
	}
	name := func(secrets string) act {
		return func(m *deathStage, name, ns string, _ time.Duration) {
			m.patch(name, fmt.Sprintf(`{"spec":{"clientCertSecret":%s}}`, strings.ReplaceAll(secrets, "NS", strconv.Quote(ns))))
		}
	}
	return map[string]story{
		"revocation":              {settled: true, acts: []act{name("[]")}, end: revoked},
		"a client named again":    {settled: true, acts: []act{name("[]"), name(`[{"name":"client","namespace":NS}]`)}, end: renamed},
		"loss of the CAs":         {settled: true, acts: []act{loseCAs}, end: recovered},
		"upgrade":                 {settled: true, acts: []act{(*deathStage).unbind}, end: served},
		"creation":                {acts: []act{nothing}, end: created},
		"change":                  {settled: true, acts: []act{change}, end: changed},
		"deletion, data retained": {settled: true, acts: []act{(*deathStage).leave}, end: retained},
	}
}

func nothing(*deathStage, string, string, time.Duration) {}

// loseCAs deletes the Secret with the CAs.
func loseCAs(m *deathStage, name, _ string, _ time.Duration) {
	m.t.Helper()
	m.certificate = string(m.secret(m.namespace, operator.ServingName(name)).Data["tls.crt"])
	must.Do(m.t, m.admin.Delete(m.t.Context(), m.secret(m.namespace, operator.SignersName(name))))
}

// recovered: what was issued is in use as before, and bundles trust its CA alongside the one that signs from now on.
func recovered(m *deathStage, name, ns string) {
	m.t.Helper()
	if string(m.secret(m.namespace, operator.ServingName(name)).Data["tls.crt"]) != m.certificate {
		m.t.Error("the certificate of the proxies was replaced")
	}
	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		if signers, _ := pki.ParseSigners(purpose, m.secret(m.namespace, operator.SignersName(name)).Data); len(signers) != 2 || signers[0].KeyPEM != nil || signers[1].KeyPEM == nil {
			m.t.Errorf("%d CAs of purpose %s", len(signers), purpose)
		}
	}
	if n := strings.Count(m.configMap(ns, "ca").Data["serving-ca.crt"], "BEGIN"); n != 2 {
		m.t.Errorf("%d CAs in the bundle", n)
	}
	m.expect(name, "RotationInProgress", "True", "Overlap", "generation 2 signs")
}

// unbind makes the tenant one of a version that did not keep which core it is bound to.
func (m *deathStage) unbind(name, _ string, _ time.Duration) {
	m.t.Helper()
	owner := m.recordOf(name)
	owner.Core = ""
	value := must.Get(json.Marshal(owner)).Or(m.t)
	must.Get(m.root.Put(m.t.Context(), operator.OwnersPrefix+name, string(value))).Or(m.t)
	if err := m.admin.Status().Patch(m.t.Context(), m.get(name), client.RawPatch(types.MergePatchType, []byte(`{"status":{"core":null}}`))); err != nil {
		m.t.Fatal(err)
	}
}

// leave fills the tenant with data, and deletes it.
func (m *deathStage) leave(name, _ string, _ time.Duration) {
	m.t.Helper()
	owner := m.recordOf(name)
	for page := range 6 {
		var ops []clientv3.Op
		for i := range 100 {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("%skey-%d-%d", owner.Prefix, page, i), "x"))
		}
		must.Get(m.root.Txn(m.t.Context()).Then(ops...).Commit()).Or(m.t)
	}
	m.put(operator.SystemPrefix(name)+"compact-revision", operator.SystemPrefix("other")+"compact-revision", "/others/"+name)
	if m.others == nil {
		m.grantLease(7, "/other/leased")
		m.others = m.leases()
	}
	m.grantLease(leaseOf(m.t, owner), owner.Prefix+"leased")
	must.Do(m.t, m.admin.Delete(m.t.Context(), m.get(name)))
}

// leaseOf is one lease of a tenant.
func leaseOf(t *testing.T, o operator.Owner) int64 {
	t.Helper()
	space := must.Get(strconv.ParseInt(o.LeaseSpace, 10, 64)).Or(t)
	return space<<32 | 7
}

// recordOf is the tenant's record, zero if there is none.
func (m *deathStage) recordOf(name string) operator.Owner {
	m.t.Helper()
	owners := must.Get(m.ownersNow(m.t.Context())).Or(m.t)
	if i := slices.IndexFunc(owners, func(o operator.Owner) bool { return o.Tenant == name }); i >= 0 {
		return owners[i]
	}
	return operator.Owner{}
}

// signersOf are the tenant's CAs.
func (m *deathStage) signersOf(name string, purpose pki.Purpose) pki.Signers {
	m.t.Helper()
	signers, problems := pki.ParseSigners(purpose, m.secret(m.namespace, operator.SignersName(name)).Data)
	if len(problems) > 0 {
		m.t.Errorf("%v", problems)
	}
	return signers
}

// served: one CA of each purpose was made and no more, one user at most is left, and certificates are as they should be.
func served(m *deathStage, name, _ string) {
	m.t.Helper()
	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		if signers := m.signersOf(name, purpose); len(signers) != 1 || signers[0].Generation != 1 {
			m.t.Errorf("%d CAs of purpose %s", len(signers), purpose)
		}
	}
	if c := m.conditions(name); !strings.Contains(c, "CertificatesReady=True") {
		m.t.Error(c)
	}
	owner := m.recordOf(name)
	if owner.UID != string(m.get(name).UID) || owner.Released {
		m.t.Errorf("%+v", owner)
	}
	if core, here := m.get(name).Status.Core, m.clusterID(m.root); core == nil || core.ClusterID != here || owner.Core != here {
		m.t.Errorf("bound to %+v, by the record to %q, want %s", core, owner.Core, here)
	}
	if m.r.AdminSecret == "" {
		return
	}
	users := slices.DeleteFunc(m.users(), func(u string) bool { return !strings.HasPrefix(u, operator.EtcdRole(name)+"/") })
	if passwords := m.secret(m.namespace, operator.UserSecretName(name)).Data; len(users) != 1 || len(passwords) != 2 {
		m.t.Errorf("users %v, %d values in the Secret", users, len(passwords))
	}
}

// created: served, with one key and certificate of each purpose and nothing else in the Secret of the CAs.
func created(m *deathStage, name, ns string) {
	m.t.Helper()
	served(m, name, ns)
	want := []string{"client-1.crt", "client-1.key", "client-1.published", "clients", "serving-1.crt", "serving-1.key", "serving-1.published"}
	if got := slices.Sorted(maps.Keys(m.secret(m.namespace, operator.SignersName(name)).Data)); !slices.Equal(got, want) {
		m.t.Errorf("the Secret of the CAs has %v", got)
	}
}

// rotated: a later CA of each purpose signs, the first is gone, and there are no more than two.
func rotated(m *deathStage, name, ns string) {
	m.t.Helper()
	for _, purpose := range []pki.Purpose{pki.Serving, pki.Client} {
		if signers := m.signersOf(name, purpose); len(signers) > 3 || signers[0].Generation < 2 {
			m.t.Errorf("%d CAs of purpose %s, the first is number %d", len(signers), purpose, signers[0].Generation)
		}
	}
	if n := strings.Count(m.configMap(ns, "ca").Data["serving-ca.crt"], "BEGIN"); n > 3 {
		m.t.Errorf("%d CAs in the bundle", n)
	}
}

// changed: all that the spec says now has come, and the CAs are the same.
func changed(m *deathStage, name, ns string) {
	m.t.Helper()
	served(m, name, ns)
	args := m.args(name)
	if !slices.Contains(args, "--quota-keys=1000") {
		m.t.Errorf("%v", args)
	}
	if len(m.secret(ns, "client-2").Data["tls.crt"]) == 0 || len(m.configMap(ns, "ca-2").Data["serving-ca.crt"]) == 0 {
		m.t.Error("the new destinations got nothing")
	}
	if strings.Contains(m.state(name), "NetworkPolicyList "+m.namespace+"/"+operator.ProxyName(name)+" ") {
		m.t.Error("the NetworkPolicy is still there")
	}
}

// revoked: what was issued is gone from the tenant's Secret, where nothing else was touched, and proxies refuse it.
func revoked(m *deathStage, name, ns string) {
	m.t.Helper()
	if data := m.secret(ns, "client").Data; len(data) != 1 || string(data["other"]) != "kept" {
		m.t.Errorf("the Secret that is named no more has %d keys", len(data))
	}
	client := "uri:urn:mooring:etcd-client:" + ns + "/client/1\n"
	if list := m.configMap(m.namespace, operator.ClientCAName(name)).Data["revoked-clients"]; !strings.Contains(list, client) {
		m.t.Errorf("proxies read that these are revoked: %s", list)
	}
	if args := m.args(name); !slices.Contains(args, "--revoked-clients-file=/etc/etcd-storage/client-ca/revoked-clients") {
		m.t.Errorf("%v", args)
	}
}

// renamed: the Secret has a certificate of a client that is not the one which was revoked.
func renamed(m *deathStage, name, ns string) {
	m.t.Helper()
	block, _ := pem.Decode(m.secret(ns, "client").Data["tls.crt"])
	if block == nil {
		m.t.Fatal("the Secret has no certificate")
	}
	cert := must.Get(x509.ParseCertificate(block.Bytes)).Or(m.t)
	list := m.configMap(m.namespace, operator.ClientCAName(name)).Data["revoked-clients"]
	client := "urn:mooring:etcd-client:" + ns + "/client/"
	if got := cert.URIs[1].String(); got != client+"2" || strings.Contains(list, "\nuri:"+got) || !strings.Contains(list, "uri:"+client+"1\n") {
		m.t.Errorf("the client %s, and these are revoked: %s", got, list)
	}
}

// nothingOf: nothing of the tenant is left, in Kubernetes or in the core, and what is alongside it is.
func nothingOf(m *deathStage, name, ns string) {
	m.t.Helper()
	if owner := m.recordOf(name); owner != (operator.Owner{}) {
		m.t.Errorf("the record is left: %+v", owner)
	}
	for _, prefix := range []string{"/" + name + "/", operator.SystemPrefix(name)} {
		if left := m.keys(prefix); len(left) > 0 {
			m.t.Errorf("%d keys under %s are left", len(left), prefix)
		}
	}
	if left := m.leases(); !slices.Equal(left, m.others) {
		m.t.Errorf("leases %v are left, want those of others, %v", left, m.others)
	}
	if left := m.keys(operator.SystemPrefix("other")); len(left) != 1 {
		m.t.Errorf("records of others: %v", left)
	}
	if users := m.users(); m.r.AdminSecret != "" && slices.ContainsFunc(users, func(u string) bool { return strings.HasPrefix(u, operator.EtcdRole(name)+"/") }) {
		m.t.Errorf("users %v", users)
	}
	objectsGone(m, name, ns)
}

// retained: the data is as it was, its record says whose it was, and nothing of it is left in Kubernetes.
func retained(m *deathStage, name, ns string) {
	m.t.Helper()
	if owner := m.recordOf(name); !owner.Released {
		m.t.Errorf("%+v", owner)
	}
	if keys := m.keys("/" + name + "/"); len(keys) != 601 {
		m.t.Errorf("%d keys are left of 601", len(keys))
	}
	if keys := m.keys(operator.SystemPrefix(name)); len(keys) != 1 {
		m.t.Errorf("%d records of proxies are left of 1", len(keys))
	}
	objectsGone(m, name, ns)
}

func objectsGone(m *deathStage, name, ns string) {
	m.t.Helper()
	if !m.gone(name) {
		m.t.Errorf("it is still there: %s", m.conditions(name))
	}
	if left := m.keys("/others/" + name); len(left) != 1 {
		m.t.Errorf("what is alongside it: %v", left)
	}
	for _, ref := range operator.Refs(name) {
		o, err := m.r.get(m.t.Context(), schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind), m.namespace, ref.Name)
		if err != nil || o != nil {
			m.t.Errorf("%s is left, %v", ref, err)
		}
	}
	if data := m.secret(ns, "client").Data; len(data) != 1 || string(data["other"]) != "kept" {
		m.t.Errorf("the tenant's Secret has %d keys", len(data))
	}
	if data := m.configMap(ns, "ca").Data; len(data) != 1 || data["other"] != "kept" {
		m.t.Errorf("the tenant's ConfigMap has %v", data)
	}
}

// play tells a story with an operator that dies as f says, and returns what it wrote if it did not die at all.
func (m *deathStage) play(t *testing.T, name string, s story, f fate) (writes []string, died int) {
	t.Helper()
	m.faults = nil
	ns := m.tenantOf()
	m.storage(name, toTenant(ns, s.spec))
	if s.settled {
		m.start(cluster.Death{})
		none := 0
		m.settle(name, &none, nil)
	}
	m.start(f(0))
	m.watch(name)
	due := time.Duration(0)
	for _, act := range s.acts {
		act(m, name, ns, due)
		due = m.settle(name, &died, f)
	}
	writes = m.program.Load().Done()
	if !m.gone(name) {
		m.quiet(name)
	}
	m.start(cluster.Death{})
	s.end(m, name, ns)
	for i, fault := range m.faults {
		if i < 5 {
			t.Error(fault)
		}
	}
	return writes, died
}

// undying is the fate of an operator that goes on for as long as the story does.
func undying(int) cluster.Death { return cluster.Death{} }

// tell plays a story on a cluster: undisturbed, and with an operator that dies after each of its writes, which leaves the same as one that dies before each
// second one. On simulated clusters it plays it with one that dies once, before or after one of the writes: in CI at a few of them, at night at each.
func tell(t *testing.T, on *cluster.Cluster, stem string, s story, start func(*cluster.Cluster) *deathStage) {
	t.Helper()
	m := start(on)
	writes, _ := m.play(t, stem+"-0", s, undying)
	t.Logf("%d writes:\n%s", len(writes), strings.Join(writes, "\n"))
	always := func(int) cluster.Death { return cluster.Death{Write: 1, After: true} }
	if _, died := m.play(t, stem+"-every", s, always); died < len(writes)/2 {
		t.Errorf("%d deaths, though there are %d writes", died, len(writes))
	}
	points := cases.Rand(t).Perm(2 * len(writes))
	points = points[:min(cases.Number(t, 0, 3, math.MaxInt), len(points))]
	if len(points) > 0 && !on.Simulated() {
		m = start(cluster.New(t, definition(t)))
	}
	for _, point := range points {
		death := cluster.Death{Write: 1 + point/2, After: point%2 == 1}
		name := fmt.Sprintf("%s-at-%d-%t", stem, death.Write, death.After)
		_, died := m.play(t, name, s, func(program int) cluster.Death {
			if program > 0 {
				return cluster.Death{}
			}
			return death
		})
		if died != 1 {
			t.Errorf("%s: %d deaths", name, died)
		}
		if t.Failed() {
			t.Fatalf("it died %s, which is %s undisturbed", death, writes[death.Write-1])
		}
	}
}

// The operator dies before and after each of its writes to Kubernetes and to the core, and each time a new one goes on: in the end all is as
// if nothing had happened, a second look writes nothing, and at no instant is a pair published that a published bundle does not trust, or a
// prefix anybody else's.
func TestDeathAtAnyWrite(t *testing.T) {
	t.Parallel()
	all := stories()
	for name, s := range storiesWithUsers() {
		all[name+withUsers] = s
	}
	for name, s := range all {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tell(t, server(t), stem(name), s, func(c *cluster.Cluster) *deathStage {
				return newDeathStage(t, c, strings.HasSuffix(name, withUsers))
			})
		})
	}
	if cases.Number(t, 1, 0, 0) == 1 {
		name := cases.Sample(t, 1, slices.Sorted(maps.Keys(all))...)[0]
		t.Run(name+", on a real API server", func(t *testing.T) {
			t.Parallel()
			m := newDeathStage(t, realServer(t), strings.HasSuffix(name, withUsers))
			m.play(t, stem(name)+"-real", all[name], undying)
		})
	}
}

// withUsers ends the names of the stories that a core with authentication tells.
const withUsers = ", with users"

// stem makes a name of a story's.
func stem(story string) string {
	return "story-" + strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' {
			return r
		}
		return '-'
	}, story), "-")
}
