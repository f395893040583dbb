// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package balancertest_test

import (
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean"
	"github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/cloud"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

const certificateRoute = "POST /v2/certificates"

// never is how long a certificate is pending that a test sets to verified itself.
const never = 1000 * time.Hour

func slowly(o *digitalocean.Options) { o.Certificates.VerifiedAfter = never }

// secured are the annotations of a Service whose port 80 is HTTPS with a certificate for domains.
func secured(domains string) []string {
	return []string{"protocol", "https", "certificate-domains", domains}
}

// certificate waits until the account has one certificate for domains, and returns it.
func (w *world) certificate(domains ...string) digitalocean.Certificate {
	w.T.Helper()
	var found digitalocean.Certificate
	name := loadbalancer.ManagedName(domains)
	testkit.Eventually(w.T, "certificate "+name, func() string {
		for _, c := range w.Account.Certificates() {
			if c.Name == name {
				found = c
				return ""
			}
		}
		return "it is not there; " + w.Story()
	})
	if found.Type != "lets_encrypt" || !slices.Equal(found.DNSNames, domains) {
		w.T.Errorf("%+v", found)
	}
	return found
}

func (w *world) usesCertificate(service, id string) {
	w.T.Helper()
	testkit.Eventually(w.T, "service "+service+" to have certificate "+id, func() string {
		lb, err := w.Account.LoadBalancer(w.Service(service).Annotations[annotation.LoadBalancerID])
		if err != nil || len(lb.ForwardingRules) != 1 || lb.ForwardingRules[0].CertificateID != id {
			return fmt.Sprintf("%v, %+v; %s", err, lb.ForwardingRules, w.Story())
		}
		return ""
	})
}

// An author gets certificates for the domains that an administrator allows the namespace, and no others: neither one that is ordered, nor one that the
// account has, by domains or by the name that the program gives them. What a load balancer uses it keeps.
func TestCertificatesAreForAllowedDomains(t *testing.T) {
	both(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		w.domains = nil
		theirs := must.Get(w.Account.CreateCertificate(digitalocean.CertificateSpec{
			Name: loadbalancer.ManagedName([]string{"shop.example"}), DNSNames: []string{"shop.example"},
		})).Or(w.T)
		w.run()
		for name, pairs := range map[string][]string{
			"ordered": secured("www.example.com"), "one-of-two": secured("shop.example,www.example.com"), "theirs": secured("shop.example"),
			"by-name": {"protocol", "https", "certificate-name", theirs.Name},
		} {
			w.create(name, pairs...)
			w.Reported(name, "LoadBalancerConfigError", "namespace "+w.Name+" may not have certificates for ", "kubectl annotate namespace "+w.Name+" "+loadbalancer.DomainsAnnotation+"=")
		}
		w.resyncs()
		if lbs, certificates := w.Account.LoadBalancers(), w.Account.Certificates(); len(lbs) > 0 || len(certificates) != 1 {
			t.Fatalf("load balancers %+v, certificates %+v", lbs, certificates)
		}
		allow := func(value any) {
			t.Helper()
			patch := w.JSON(map[string]any{"metadata": map[string]any{"annotations": map[string]any{loadbalancer.DomainsAnnotation: value}}})
			_, err := w.Client.CoreV1().Namespaces().Patch(t.Context(), w.Name, types.MergePatchType, patch, metav1.PatchOptions{})
			must.Do(w.T, err)
		}
		allow("other.example, *.Example.com")
		w.usesCertificate("ordered", w.certificate("www.example.com").ID)
		allow(nil)
		mark := w.Sim.Mark()
		w.annotate("ordered", "enable-backend-keepalive", "true")
		w.eventually("the load balancer to follow its Service", w.balancer("ordered").ID, func(lb digitalocean.LoadBalancer) bool { return lb.EnableBackendKeepalive })
		if n := w.Writes(mark)[certificateRoute]; n > 0 || len(w.Account.LoadBalancers()) != 1 {
			t.Errorf("%d certificates were ordered, load balancers %+v", n, w.Account.LoadBalancers())
		}
	})
}

// A certificate is made once for all who ask for the same domains, waited for with one event, and used when it is verified.
func TestManagedCertificateIsMadeAndAwaited(t *testing.T) {
	both(t, with(slowly), func(t *testing.T, w *world) {
		w.run()
		w.create("web", secured("www.example.com,example.com")...)
		w.create("other", secured("example.com,WWW.example.com")...)
		c := w.certificate("example.com", "www.example.com")
		for _, name := range []string{"web", "other"} {
			w.ReportedOnce(name, "LoadBalancerCertificatePending", c.Name, "example.com, www.example.com is being issued", "DigitalOcean's DNS", "no load balancer is made until then")
		}
		w.resyncs()
		if n := len(w.Account.LoadBalancers()); n != 0 {
			t.Errorf("%d load balancers without a certificate", n)
		}
		if failed := w.events("SyncLoadBalancerFailed"); len(failed) > 0 {
			t.Errorf("waiting is not failing: %s", w.Story())
		}
		must.Do(w.T, w.Account.SetCertificateState(c.ID, "verified"))
		w.balancer("web")
		w.usesCertificate("web", c.ID)
		w.usesCertificate("other", c.ID)
		// Two that ask at the same moment both look and find none: the name, which is the same for both, sees to it that there is one.
		if n := w.Writes(0)[certificateRoute]; n < 1 || n > 2 || len(w.Account.Certificates()) != 1 {
			t.Errorf("%d POSTs, %+v", n, w.Account.Certificates())
		}

		renewed := must.Get(w.Account.RotateCertificate(c.ID)).Or(w.T)
		mark := w.Sim.Mark()
		w.resyncs()
		w.usesCertificate("web", renewed.ID)
		if writes := w.Writes(mark); len(writes) > 0 {
			t.Errorf("a renewal made writes: %v", writes)
		}
		if _, written := w.Service("web").Annotations[annotation.CertificateID]; written {
			t.Error("an ID was written on a Service that names domains")
		}
		w.remove("web")
		w.remove("other")
		if len(w.Account.Certificates()) != 1 {
			t.Errorf("certificates are never deleted: %+v", w.Account.Certificates())
		}
	})
}

// A load balancer that serves goes on with what it has: Nodes come and go, and the old certificate stays until the new one is verified.
func TestTheOldCertificateServesUntilTheNewOneCan(t *testing.T) {
	t.Parallel()
	simulated(t, with(slowly), func(_ *testing.T, w *world) {
		w.run()
		old, err := w.Account.CreateCertificate(digitalocean.CertificateSpec{Name: "old", DNSNames: []string{"old.example.com"}})
		must.Do(w.T, err)
		must.Do(w.T, w.Account.SetCertificateState(old.ID, "verified"))
		w.create("web", "protocol", "https", "certificate-name", "old")
		lb := w.balancer("web")
		w.annotateWith("web", map[string]any{annotation.CertificateName: nil, annotation.CertificateDomains: "example.com"})
		c := w.certificate("example.com")
		w.ReportedOnce("web", "LoadBalancerCertificatePending", c.Name, "the load balancer keeps its forwarding rules until then")
		id := w.node("late")
		w.eventually("the new Node to be a target meanwhile", lb.ID, func(lb digitalocean.LoadBalancer) bool { return w.hasTarget(lb, id) })
		w.usesCertificate("web", old.ID)

		must.Do(w.T, w.Account.SetCertificateState(c.ID, "error"))
		w.ReportedOnce("web", "LoadBalancerCertificateFailed", c.Name, "could not be issued", "delete the certificate there", "keeps its forwarding rules")
		w.usesCertificate("web", old.ID)
		must.Do(w.T, w.Account.DeleteCertificate(c.ID))
		again := w.certificate("example.com")
		must.Do(w.T, w.Account.SetCertificateState(again.ID, "verified"))
		w.usesCertificate("web", again.ID)
	})
}

// annotateWith sets annotations of a Service by their full names; nil removes one.
func (w *world) annotateWith(name string, values map[string]any) {
	w.T.Helper()
	w.PatchService(name, map[string]any{"metadata": map[string]any{"annotations": values}})
}

// However the POST of a certificate ends, there is one certificate.
func TestPostOfACertificateThatWasCutMakesNoDuplicate(t *testing.T) {
	t.Parallel()
	for _, kind := range []fault.Kind{fault.CutAfterApply, fault.ErrorAfterApply, fault.TruncatedJSON} {
		for name, consistency := range map[string]digitalocean.Consistency{"": {}, "-late": {List: 2 * time.Second}} {
			t.Run(string(kind)+name, func(t *testing.T) {
				t.Parallel()
				simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
					w.Sim.SetConsistency(consistency)
					must.Do(w.T, w.Sim.Inject(fault.Rule{Route: certificateRoute, Kind: kind, Nth: 1}))
					w.run()
					w.create("web", secured("example.com")...)
					c := w.certificate("example.com")
					w.balancer("web")
					w.usesCertificate("web", c.ID)
					if all := w.Account.Certificates(); len(all) != 1 {
						t.Errorf("%+v", all)
					}
				})
			})
		}
	}
}

// The program dies before and after the POST of a certificate; the next one goes on where it was.
func TestCrashAroundThePostOfACertificate(t *testing.T) {
	t.Parallel()
	for _, after := range []bool{false, true} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				crashed := make(chan struct{})
				var once sync.Once
				w.API.Set(func(r *http.Request, served bool) error {
					select {
					case <-crashed:
						return cloud.ErrCut
					default:
					}
					if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/v2/certificates") && served == after {
						once.Do(func() { close(crashed) })
						return cloud.ErrCut
					}
					return nil
				})
				w.run()
				w.create("web", secured("example.com")...)
				<-crashed
				w.Stop()
				w.API.Set(nil)
				w.run()
				c := w.certificate("example.com")
				w.balancer("web")
				w.usesCertificate("web", c.ID)
				if all := w.Account.Certificates(); len(all) != 1 {
					t.Errorf("%+v", all)
				}
			})
		})
	}
}

// What DigitalOcean refuses is told in its words, and keeps no load balancer that is there from being kept as it must be.
func TestCertificateThatIsRefused(t *testing.T) {
	t.Parallel()
	simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
		must.Do(w.T, w.Sim.Inject(fault.Rule{Route: certificateRoute, Kind: fault.Error, Status: http.StatusUnprocessableEntity, Nth: 1, Times: -1}))
		w.run()
		w.create("web")
		lb := w.balancer("web")
		w.annotate("web", secured("example.com")...)
		testkit.Eventually(t, "the refusal to be told", func() string {
			for _, e := range w.events("LoadBalancerCertificateFailed") {
				if strings.Contains(e.Message, `DigitalOcean refuses certificate "`+loadbalancer.ManagedName([]string{"example.com"})+`" for example.com: `) {
					return ""
				}
			}
			return w.Story()
		})
		id := w.node("late")
		w.eventually("the new Node to be a target all the same", lb.ID, func(lb digitalocean.LoadBalancer) bool { return w.hasTarget(lb, id) })
		if len(w.Account.Certificates()) != 0 {
			t.Errorf("%+v", w.Account.Certificates())
		}
		w.Sim.ClearFaults()
		c := w.certificate("example.com")
		w.usesCertificate("web", c.ID)
	})
}

// The cluster's defaults reach load balancers, and the project is asked for and kept.
func TestDefaultsAndProjects(t *testing.T) {
	t.Parallel()
	const mine, theirs = "4de7ac8b-495b-4884-9a69-1050c6793cd6", "11111111-495b-4884-9a69-1050c6793cd6"
	simulated(t, with(func(o *digitalocean.Options) {
		o.Accounts = []digitalocean.AccountOptions{{Projects: []string{mine, theirs}}}
	}), func(t *testing.T, w *world) {
		d, _, err := annotation.NewDefaults(annotations([]string{"project-id", mine, "enable-proxy-protocol", "true", "http-idle-timeout-seconds", "90"}))
		must.Do(w.T, err)
		w.cluster.Defaults = d
		w.run()
		w.create("web")
		w.create("own", "project-id", "", "enable-proxy-protocol", "false")
		web, own := w.balancer("web"), w.balancer("own")
		if web.ProjectID != mine || !web.EnableProxyProtocol || web.HTTPIdleTimeoutSeconds != 90 {
			t.Errorf("by default: %+v", web)
		}
		if own.ProjectID != digitalocean.DefaultProject || own.EnableProxyProtocol || own.HTTPIdleTimeoutSeconds != 90 {
			t.Errorf("with its own word: %+v", own)
		}
		mark := w.Sim.Mark()
		w.resyncs()
		if writes := w.Writes(mark); len(writes) > 0 {
			t.Errorf("nothing differs, and yet %v", writes)
		}
		if have := w.Service("web").Annotations; len(have) != 2 {
			t.Errorf("annotations %q, want the ID and the type only", have)
		}
		w.annotate("web", "project-id", theirs)
		w.eventually("another project", web.ID, func(lb digitalocean.LoadBalancer) bool { return lb.ProjectID == theirs })
		w.annotate("own", "http-idle-timeout-seconds", "120")
		w.eventually("its own timeout", own.ID, func(lb digitalocean.LoadBalancer) bool {
			return lb.HTTPIdleTimeoutSeconds == 120 && lb.ProjectID == digitalocean.DefaultProject
		})
	})
}

// No certificate of the account is changed or deleted, whoever made it, whatever it is called and whatever becomes of the
// Services that ask for its domains, also after another process took over: the program only makes what is missing.
func TestCertificatesOfOthersAreLeftAlone(t *testing.T) {
	t.Parallel()
	domains := []string{"example.com"}
	our := loadbalancer.ManagedName(domains)
	for who, tt := range map[string]struct {
		spec  digitalocean.CertificateSpec
		state string
		used  bool
	}{
		"a person's of another name":                   {digitalocean.CertificateSpec{Name: "hand-made", DNSNames: domains}, "verified", true},
		"a person's or another cluster's of our name":  {digitalocean.CertificateSpec{Name: our, DNSNames: domains}, "verified", true},
		"one of our name for other domains":            {digitalocean.CertificateSpec{Name: our, DNSNames: []string{"other.example"}}, "verified", false},
		"one of our name that was uploaded":            {digitalocean.CertificateSpec{Name: our, Custom: true}, "verified", false},
		"one of our name that could not be issued":     {digitalocean.CertificateSpec{Name: our, DNSNames: domains}, "error", false},
		"a person's that could not be issued, with it": {digitalocean.CertificateSpec{Name: "hand-made", DNSNames: domains}, "error", false},
	} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			simulated(t, digitalocean.Options{}, func(t *testing.T, w *world) {
				theirs := must.Get(w.Account.CreateCertificate(tt.spec)).Or(w.T)
				must.Do(w.T, w.Account.SetCertificateState(theirs.ID, tt.state))
				theirs.State = tt.state
				w.run()
				w.create("web", secured("example.com")...)
				switch {
				case tt.used:
					w.usesCertificate("web", theirs.ID)
				case tt.spec.Name == our:
					w.Reported("web", "LoadBalancerCertificateFailed", our)
				default:
					w.usesCertificate("web", w.certificate(domains...).ID)
				}
				w.Stop()
				w.run() // after a failover
				w.remove("web")
				i := slices.IndexFunc(w.Account.Certificates(), func(c digitalocean.Certificate) bool { return c.ID == theirs.ID })
				if i < 0 || !reflect.DeepEqual(w.Account.Certificates()[i], theirs) {
					t.Errorf("it is %+v now, was %+v", w.Account.Certificates(), theirs)
				}
				for route, n := range w.Writes(0) {
					if strings.Contains(route, "certificates") && route != certificateRoute {
						t.Errorf("%s ×%d", route, n)
					}
				}
			})
		})
	}
}
