// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package observe

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mooring-dev/mooring/api/bgp/v1alpha1"
	etcdv1alpha1 "github.com/mooring-dev/mooring/api/etcd/v1alpha1"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/doctor"
	"github.com/mooring-dev/mooring/internal/platform/finding"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Page is how many objects one answer of the API server holds.
const Page = 1000

// Cluster reads the cluster of the kubeconfig. It writes nothing but the annotations of a confirmation that a person has given, or of a request.
type Cluster struct {
	// Name is what people call it.
	Name    string
	Config  *rest.Config
	Typed   kubernetes.Interface
	Dynamic dynamic.Interface
	// Namespaces are those of the components: what is written there is believed.
	Namespaces []string
	// ahead is by how much the API server's clock is ahead of this machine's.
	ahead atomic.Int64
	clock clock.PassiveClock
	// responseTime is what --request-timeout says, 0 for nothing.
	responseTime time.Duration
}

// ServerTime is a moment of this machine's clock by the clock of the API server, as far as a response had its time.
func (c *Cluster) ServerTime(local time.Time) time.Time {
	return local.Add(time.Duration(c.ahead.Load()))
}

// dated notes the API server's clock, which each response has in whole seconds: a difference below two is none.
func (c *Cluster) dated(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil {
			return nil, err
		}
		if at, err := http.ParseTime(response.Header.Get("Date")); err == nil {
			ahead := at.Sub(c.clock.Now())
			if ahead.Abs() < 2*time.Second {
				ahead = 0
			}
			c.ahead.Store(int64(ahead))
		}
		return response, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Cluster makes the clients; nothing is asked yet.
func (e *Env) Cluster() (*Cluster, error) {
	config, err := e.RESTConfig()
	if err != nil {
		return nil, err
	}
	name := config.Host
	raw, _ := e.loader().RawConfig() // an error would have shown before
	if used := cmp.Or(e.overrides.CurrentContext, raw.CurrentContext); used != "" {
		name = used + " at " + name
	}
	c := &Cluster{
		Name: name, Config: config, Namespaces: e.namespaces, clock: clock.RealClock{}, responseTime: config.Timeout,
	}
	config.Timeout = 0
	config.Wrap(c.dated)
	config.Wrap(c.patient)
	config.Wrap(remembering)
	if c.Typed, err = Typed(config); err == nil {
		c.Dynamic, err = dynamic.NewForConfig(config)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	return c, nil
}

// Typed makes a client of Kubernetes' own kinds. It accepts protobuf before JSON: for lists of thousands of objects that takes the API server and this
// program a fraction of the time. Custom resources have only JSON.
func Typed(config *rest.Config) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client of the API server: %w", err)
	}
	return client, nil
}

// Version is Kubernetes' own, which everybody may read, so that an error tells that the API server does not respond.
func (c *Cluster) Version(ctx context.Context) (string, error) {
	v, err := c.Typed.Discovery().ServerVersionWithContext(ctx)
	if err != nil {
		return "", fmt.Errorf("reading the version of the API server: %w", err)
	}
	return v.GitVersion, nil
}

// Nodes lists all of them.
func (c *Cluster) Nodes(ctx context.Context) ([]*corev1.Node, error) {
	return All[corev1.Node](ctx, "Nodes", c.Typed.CoreV1().Nodes().List)
}

// IsReady reports whether a Node is Ready.
func IsReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// Topologies lists the RouteReflectorTopologies; served reports whether the cluster has the kind at all.
func (c *Cluster) Topologies(ctx context.Context) (list []v1alpha1.RouteReflectorTopology, served bool, err error) {
	all, served, err := c.List(ctx, v1alpha1.GroupVersion.WithResource("routereflectortopologies"))
	if err != nil {
		return nil, served, fmt.Errorf("listing RouteReflectorTopologies: %w", err)
	}
	list = make([]v1alpha1.RouteReflectorTopology, len(all))
	for i, o := range all {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &list[i]); err != nil {
			return nil, true, fmt.Errorf("decoding RouteReflectorTopology %s: %w", o.GetName(), err)
		}
	}
	return list, served, nil
}

// Storages lists the EtcdStorages; served reports whether the cluster has the kind at all. What of them cannot be read is a
// side.
func (c *Cluster) Storages(ctx context.Context) (list []etcdv1alpha1.EtcdStorage, served bool, unread []finding.Side) {
	all, served, err := c.List(ctx, EtcdStorages())
	if err != nil {
		unread = append(unread, finding.Side{Name: "EtcdStorages", Problem: OneLine(err)})
	}
	for _, o := range all {
		var s etcdv1alpha1.EtcdStorage
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &s); err != nil {
			unread = append(unread, finding.Side{Name: "EtcdStorage " + o.GetName(), Problem: OneLine(err)})
			continue
		}
		list = append(list, s)
	}
	return list, served, unread
}

// InNamespace is the cluster with the namespace that flag or context name.
func (e *Env) InNamespace() (*Cluster, string, error) {
	c, err := e.Cluster()
	if err != nil {
		return nil, "", err
	}
	namespace, _, err := e.Namespace()
	return c, namespace, err
}

// List reads all objects of a kind; served reports whether the API server serves it at all.
func (c *Cluster) List(ctx context.Context, resource schema.GroupVersionResource) (all []*unstructured.Unstructured, served bool, err error) {
	all, err = All[unstructured.Unstructured](ctx, "", c.Dynamic.Resource(resource).List)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return all, err == nil, err
}

// PageOf is one answer to a list: of Nodes, say.
type PageOf interface {
	metav1.ListInterface
	runtime.Object
}

// All reads a list page by page, what the options choose of it if there are any. Of a list that cannot be read to its
// end nothing may be used. The error has what is listed in front, unless that is "".
func All[T any, L PageOf](
	ctx context.Context, what string, list func(context.Context, metav1.ListOptions) (L, error), choosing ...metav1.ListOptions,
) (all []*T, err error) {
	var options metav1.ListOptions
	if len(choosing) > 0 {
		options = choosing[0]
	}
	for options.Limit = Page; ; {
		page, err := list(ctx, options)
		if err == nil {
			err = apimeta.EachListItem(page, func(object runtime.Object) error {
				all = append(all, any(object).(*T)) // the items of a list of Nodes are Nodes
				return nil
			})
		}
		switch {
		case err != nil && what != "":
			return nil, fmt.Errorf("listing %s: %w", what, err)
		case err != nil:
			return nil, err
		}
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return all, nil
		}
	}
}

// OneLine is an error in one line, "" for none.
func OneLine(err error) string {
	if err == nil {
		return ""
	}
	return strings.Join(strings.Fields(err.Error()), " ")
}

// APIServices is the path of APIServices, of which there is one for each group and version that is served.
func APIServices() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "apiregistration.k8s.io", Version: "v1", Resource: "apiservices"}
}

// EtcdStorages is the path of EtcdStorages.
func EtcdStorages() schema.GroupVersionResource {
	return etcdv1alpha1.GroupVersion.WithResource("etcdstorages")
}

// LeaseOf is what the doctor judges a Lease by, with the health of the token that it records.
func LeaseOf(l *coordinationv1.Lease) doctor.Lease {
	out := doctor.LeaseOf(l)
	var token metav1.Condition
	if text := l.Annotations[tokenAnnotation]; text != "" && json.Unmarshal([]byte(text), &token) == nil &&
		token.Type == instance.ConditionTokenHealthy && token.Status == metav1.ConditionFalse {
		out.Token = &token
	}
	return out
}

// SideOf is what became of a side that could not be read, in one line; a side that was read if nothing went wrong.
func SideOf(err error) finding.Side {
	if errors.Is(err, context.DeadlineExceeded) {
		return finding.Side{Problem: "no response in time"}
	}
	return finding.Side{Problem: OneLine(err)}
}
