// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/mooring-dev/mooring/internal/docloud/annotation"
	"github.com/mooring-dev/mooring/internal/docloud/loadbalancer"
	sim "github.com/mooring-dev/mooring/internal/sim/digitalocean"
	simfault "github.com/mooring-dev/mooring/internal/sim/digitalocean/fault"
)

// tokenFaults are those of the cloud component's own token, which it records on a Lease.
func tokenFaults() (all []fault) {
	for reason, message := range map[string]string{
		"Refused":      "DigitalOcean refuses the token: 401 Unauthorized",
		"OtherAccount": "the token is one of another account",
		"RateLimited":  "the hour's requests are used up",
	} {
		all = append(all, fault{
			name:   cloud + ": its token: " + reason,
			broken: broken{part: part{"component", cloud}, affects: keeps(cloud)},
			make: func(w *world) {
				at := w.now.Add(-10 * time.Minute).UTC().Format(time.RFC3339)
				w.leaseOf(system, account).Annotations["cloud.mooring.dev/token-healthy"] = `{"type":"TokenHealthy","status":"False",` +
					`"reason":"` + reason + `","message":"` + message + `","lastTransitionTime":"` + at + `"}`
			},
		})
	}
	return all
}

// cloudFaults are those of DigitalOcean's API as the person's own token sees it.
func cloudFaults() (all []fault) {
	machines := []part{{"machine", "w2"}, {"machine", "w3"}, {"claim", "shop/data"}, {"service", "shop/front"}}
	add := func(name string, of part, affects []part, change func(w *world)) {
		all = append(all, fault{name: "DigitalOcean: " + name, broken: broken{part: of, affects: affects}, make: change})
	}
	w1 := part{"machine", "w1"}
	add("the person's token is refused", w1, machines, func(w *world) { w.token = "wrong" })
	add("the person's token is of another account", w1, machines, func(w *world) {
		w.leaseOf(system, account).Annotations = map[string]string{
			"cloud.mooring.dev/account": "00000000-0000-4000-8000-000000000000", "cloud.mooring.dev/team": "another",
		}
	})
	add("there is no token", part{"claim", "shop/data"}, nil, func(w *world) { w.token = "" })
	fails := func(route string) func(w *world) {
		return func(w *world) {
			rule := simfault.Rule{Route: route, Kind: simfault.Error, Status: http.StatusForbidden, Nth: 1, Times: -1}
			w.must(w.cloud.Inject(rule))
		}
	}
	add("droplets cannot be listed", w1, machines[:2], fails("GET /v2/droplets"))
	add("volumes cannot be listed", part{"claim", "shop/data"}, nil, fails("GET /v2/volumes"))
	add("load balancers cannot be read", part{"service", "shop/front"}, nil, func(w *world) {
		fails("GET /v2/load_balancers")(w)
		fails("GET /v2/load_balancers/{lb_id}")(w)
	})
	return all
}

// event records one about a Service.
func (w *world) event(name, source, kind, reason, text string, age time.Duration) {
	w.Helper()
	at := w.ago(age)
	w.put(&corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "front", UID: "7c9e6679-7425-40de-944b-e07fc1f90ae7"},
		Source:         corev1.EventSource{Component: source}, ReportingController: source, Type: kind, Reason: reason, Message: text,
		FirstTimestamp: at, LastTimestamp: at, Count: 1,
	})
}

func balancerFaults() (all []fault) {
	front := func(w *world) *corev1.Service { return of[corev1.Service](w, "shop", "front") }
	add := func(name string, change func(w *world)) {
		all = append(all, fault{name: "load balancer: " + name, broken: broken{part: part{"service", "shop/front"}}, make: change})
	}
	add("errored at DigitalOcean", func(w *world) { w.must(w.account.SetLoadBalancerStatus(w.balancer, "errored")) })
	add("gone at DigitalOcean", func(w *world) { w.must(w.account.DeleteLoadBalancer(w.balancer)) })
	add("its targets are taken away at DigitalOcean", func(w *world) {
		w.must(w.account.EditLoadBalancer(w.balancer, func(lb *sim.LoadBalancer) { lb.DropletIDs = nil }))
	})
	condition := func(kind, reason string) func(w *world) {
		return func(w *world) {
			front(w).Status.Conditions = append(front(w).Status.Conditions, metav1.Condition{
				Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: "because", LastTransitionTime: w.ago(time.Hour),
			})
		}
	}
	add("changed at DigitalOcean, and not repaired (condition LoadBalancerSynced)", func(w *world) {
		w.must(w.account.EditLoadBalancer(w.balancer, func(lb *sim.LoadBalancer) { lb.RedirectHTTPToHTTPS = true }))
		condition(loadbalancer.ConditionSynced, loadbalancer.ReasonFailed)(w)
	})
	add("another's (condition LoadBalancerOwned)", condition(loadbalancer.ConditionOwned, "LoadBalancerForeign"))
	add("its firewall is closed (condition FirewallOpen)", condition("cloud.mooring.dev/FirewallOpen", "Refused"))
	warned := func(reason string, age time.Duration) func(w *world) {
		return func(w *world) {
			w.event("ensured", "service-controller", "Normal", loadbalancer.ReasonEnsured, "Ensured load balancer", age+time.Minute)
			w.event("failed", cloud, "Warning", reason, "it is refused", age)
		}
	}
	add("refused, reported a minute ago", warned(loadbalancer.ReasonFailed, time.Minute))
	add("refused, reported 50 minutes ago", warned(loadbalancer.ReasonConfig, 50*time.Minute))
	add("the hour of its Events is over, and it has no address", func(w *world) { front(w).Status.LoadBalancer.Ingress = nil })
	add("an annotation that is refused", func(w *world) { front(w).Annotations[annotation.SizeUnit] = "-1" })
	add("its deletion hangs for an hour", func(w *world) {
		at := w.ago(time.Hour)
		front(w).DeletionTimestamp, front(w).Finalizers = &at, []string{"service.kubernetes.io/load-balancer-cleanup"}
	})
	return all
}

// loseVolume deletes the volume at DigitalOcean, as a person does.
func (w *world) loseVolume() {
	w.Helper()
	w.must(w.account.AttachVolume(w.volume, 0))
	w.must(w.account.DeleteVolume(w.volume))
}

func volumeFaults() (all []fault) {
	data := part{"claim", "shop/data"}
	claim := func(w *world) *corev1.PersistentVolumeClaim {
		return of[corev1.PersistentVolumeClaim](w, "shop", "data")
	}
	volume := func(w *world) *corev1.PersistentVolume { return of[corev1.PersistentVolume](w, "", "pvc-data") }
	attachment := func(w *world) *storagev1.VolumeAttachment {
		return of[storagev1.VolumeAttachment](w, "", "attachment-data")
	}
	add := func(name string, change func(w *world), may ...part) {
		all = append(all, fault{name: "volume: " + name, broken: broken{part: data, may: may}, make: change})
	}
	w1 := part{"machine", "w1"}
	pending := func(w *world) {
		w.loseVolume()
		claim(w).Spec.VolumeName, claim(w).Status.Phase = "", corev1.ClaimPending
		claim(w).CreationTimestamp = w.ago(time.Hour)
		drop[corev1.PersistentVolume](w, "", "pvc-data")
		drop[storagev1.VolumeAttachment](w, "", "attachment-data")
	}
	add("the claim is pending for an hour", pending, w1)
	add("the claim of a Pod with a machine is pending for an hour", func(w *world) {
		pending(w)
		wait := storagev1.VolumeBindingWaitForFirstConsumer
		of[storagev1.StorageClass](w, "", "do-block-storage-retain").VolumeBindingMode = &wait
		class := "do-block-storage-retain"
		claim(w).Spec.StorageClassName = &class
		claim(w).Annotations = map[string]string{"volume.kubernetes.io/selected-node": "w1"}
	}, w1, part{"component", driver})
	add("gone at DigitalOcean", func(w *world) { w.loseVolume() }, w1)
	add("its PersistentVolume is gone", func(w *world) {
		claim(w).Status.Phase = corev1.ClaimLost
		drop[corev1.PersistentVolume](w, "", "pvc-data")
		drop[storagev1.VolumeAttachment](w, "", "attachment-data")
	}, w1)
	add("it cannot be attached", func(w *world) {
		attachment(w).Status = storagev1.VolumeAttachmentStatus{AttachError: &storagev1.VolumeError{
			Time: w.ago(20 * time.Minute), Message: "DigitalOcean responded with 422",
		}}
	}, w1)
	add("its Pod is on another machine", func(w *world) { of[corev1.Pod](w, "shop", "db").Spec.NodeName = "w2" }, w1, part{"machine", "w2"})
	add("Kubernetes does not know that it is attached", func(w *world) {
		drop[storagev1.VolumeAttachment](w, "", "attachment-data")
	}, w1)
	add("no Pod uses it, and it stays attached", func(w *world) { drop[corev1.Pod](w, "shop", "db") }, w1)
	add("its claim is gone, and the volume is kept", func(w *world) {
		drop[corev1.PersistentVolumeClaim](w, "shop", "data")
		volume(w).Status.Phase = corev1.VolumeReleased
		volume(w).Spec.PersistentVolumeReclaimPolicy = corev1.PersistentVolumeReclaimRetain
	}, w1)
	all[len(all)-1].blind = map[string]string{"explain": "there is no claim to explain"}
	add("its deletion hangs for an hour", func(w *world) {
		at := w.ago(time.Hour)
		volume(w).DeletionTimestamp, volume(w).Finalizers = &at, []string{"kubernetes.io/pv-protection"}
	})
	return all
}
