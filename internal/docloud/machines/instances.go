// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/utils/clock"

	"github.com/mooring-dev/mooring/internal/docloud/budget"
	"github.com/mooring-dev/mooring/internal/docloud/doapi"
	"github.com/mooring-dev/mooring/internal/docloud/instance"
	"github.com/mooring-dev/mooring/internal/docloud/providerid"
	"github.com/mooring-dev/mooring/internal/platform/outputs"
)

// Config says how Instances works. Its zero value is not useful; see [DefaultConfig].
type Config struct {
	// Decision bounds what may be declared gone.
	Decision instance.Config
	// StatusAge is how old the list may be when a Node that is well is described, DoubtAge when one is not ready, PendingAge
	// when one is new, which is also how soon one that waits is looked at again.
	StatusAge, DoubtAge, PendingAge time.Duration
	// SettledAge is how old the list may be, for each call that it takes beyond the first, when a Node is described of
	// which nothing is expected to change, and SettledMost at most.
	SettledAge, SettledMost time.Duration
	// PageAge is how old the list must be for each call that it takes to read it again on behalf of a Node that is not ready, so that in no
	// hour there are more than 3600 s / PageAge such calls; on behalf of a new one it is half of that.
	PageAge time.Duration
	// AskBurst and AskEvery bound GETs by ID on behalf of Nodes that are not ready, for all of them together: so many at once, and one more in each
	// AskEvery. They go round among the Nodes.
	AskBurst int
	AskEvery time.Duration
	// RecordName is the name of the Lease with the account's record.
	RecordName string
	// EventEvery is how often the same event about the same Node is sent at most.
	EventEvery time.Duration
	// TokenEvery is how often it is looked whether the record says of the token what is known.
	TokenEvery time.Duration
	// Labels are the labels of Nodes that are made of their droplets' tags; none by default.
	Labels instance.TagLabels
	// Tag is the cluster's tag, empty for none. With RequireTag only droplets that have it are targets of load balancers.
	Tag        string
	RequireTag bool
	// Mode is whether Nodes are deleted that are given up: in mode report they are not, and not counted.
	Mode outputs.Mode
}

// DefaultConfig returns what the product uses: on behalf of Nodes that are not ready at most 240 calls in an hour for lists and 360 by ID,
// which is 600 in all.
func DefaultConfig() Config {
	return Config{
		Decision: instance.DefaultConfig(), StatusAge: time.Minute, DoubtAge: 15 * time.Second, PendingAge: 3 * time.Second, PageAge: 15 * time.Second,
		SettledAge: 7 * time.Minute, SettledMost: 28 * time.Minute,
		AskBurst: 110, AskEvery: 15 * time.Second, RecordName: RecordName, EventEvery: 10 * time.Minute, TokenEvery: 15 * time.Second,
	}
}

// Instances answers what Kubernetes' controllers of Nodes ask about droplets. It implements cloudprovider.InstancesV2.
//
// Everything is answered from one list of droplets that is shared by all who ask; a droplet is asked for by ID only when the list lacks it and
// its Node is not ready, or when it is about to become a Node for ever. Whether a Node's machine is gone is decided by package instance.
type Instances struct {
	api      API
	config   Config
	clock    clock.Clock
	snapshot *Snapshot
	guard    *guard
	reporter *reporter
	// seeking bounds the calls for the droplet of one new Node alone, listing those of lists on behalf of all: a Node that
	// has no droplet is asked for again and again.
	seeking, listing *rate.Limiter
	waiting          *waiting
	// departing returns why a Node whose machine is gone is to be kept for a while, nil for nobody who says so.
	departing func(*corev1.Node) error

	mu     sync.Mutex // guards all below
	client kubernetes.Interface
	lister corelisters.NodeLister
	synced cache.InformerSynced
	// givenUp are the Nodes that the framework is told to delete, by name, until it does.
	givenUp map[string]metav1.Preconditions
}

// New returns Instances that work once they are started and follow Nodes.
func New(api API, snapshot *Snapshot, config Config, clock clock.WithTicker, registry prometheus.Registerer) *Instances {
	m := &Instances{
		api: api, config: config, clock: clock, snapshot: snapshot, givenUp: map[string]metav1.Preconditions{},
	}
	m.seeking = rate.NewLimiter(rate.Every(config.AskEvery), seekBurst)
	m.listing = rate.NewLimiter(rate.Every(config.PageAge/2), listBurst)
	m.waiting = newWaiting(m, clock)
	m.guard = &guard{
		mu: make(latch, 1), api: api, snapshot: snapshot, clock: clock, config: config.Decision, nodes: m.nodes,
		turns: budget.NewTurns(clock.Now(), config.AskBurst, config.AskEvery, patience), ledger: &ledger{name: config.RecordName},
		missed:  map[int]missing{},
		answers: map[int]instance.Answer{}, shown: map[int]instance.Droplet{}, known: map[int]time.Time{},
	}
	m.reporter = newReporter(config.EventEvery, clock, snapshot, registry)
	registry.MustRegister(newTokenCollector(m))
	return m
}

// Start takes the client with which the record is written and the recorder of events, and records the token's health and
// looks at Nodes that wait until ctx ends.
func (m *Instances) Start(ctx context.Context, client kubernetes.Interface, events record.EventRecorder) {
	m.mu.Lock()
	m.client = client
	m.mu.Unlock()
	m.guard.mu.Lock()
	m.guard.ledger.leases = client.CoordinationV1().Leases(RecordNamespace)
	m.guard.mu.Unlock()
	m.reporter.start(events)
	m.waiting.loop.AddAfter(theToken, m.config.TokenEvery)
	m.waiting.loop.Start(ctx)
}

// Follow takes the informer of Nodes.
func (m *Instances) Follow(factory informers.SharedInformerFactory) {
	informer := factory.Core().V1().Nodes()
	synced := informer.Informer().HasSynced
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lister, m.synced = informer.Lister(), synced
}

// Again takes what makes the framework's controller of Nodes try a new Node again.
func (m *Instances) Again(again func(*corev1.Node)) {
	m.waiting.mu.Lock()
	defer m.waiting.mu.Unlock()
	m.waiting.again = again
}

// Wake tries now what waits after a failure: its cause may be over.
func (m *Instances) Wake() {
	m.snapshot.ordinary.Resume()
	m.snapshot.gpus.Resume()
	m.waiting.loop.Mark()
}

// Departing makes each Node whose machine is gone wait until departing returns nil for it as the API server has it; it is called before
// Start. Who waits bounds how long.
func (m *Instances) Departing(departing func(*corev1.Node) error) { m.departing = departing }

// Doubtful returns the list of droplets as new as a Node needs it that has not been ready since then: the one by which
// its existence is decided.
func (m *Instances) Doubtful(ctx context.Context, since time.Time) (*DropletList, error) {
	return m.doubt(ctx, since, 0)
}

const (
	// seekBurst is how many new Nodes may be looked for alone at once; it is quicker than a list that others need as well.
	seekBurst = 10
	// listBurst is how many calls lists may take at once on behalf of new Nodes.
	listBurst = 40
	// moment is how old a list may be by which a Node is described for ever, gpuPause how old that of droplets with GPUs
	// may be when a new Node's is in no other list.
	moment, gpuPause = 10 * time.Second, 20 * time.Second
)

// patience is how long a Node counts as waiting for its turn: the framework asks again every five seconds.
const patience = 15 * time.Second

// errNotSynced means that it is too early to say anything.
var errNotSynced = errors.New("the Nodes of the cluster have not been read yet")

// nodes returns all Nodes. Part of them would make the cluster look smaller than it is, so that is an error.
func (m *Instances) nodes() ([]*corev1.Node, error) {
	m.mu.Lock()
	lister, synced := m.lister, m.synced
	m.mu.Unlock()
	if lister == nil || !synced() {
		return nil, errNotSynced
	}
	return lister.List(labels.Everything())
}

// Trusted returns nil if what DigitalOcean answers is about this cluster, and otherwise one sentence that says why it cannot be relied on. While
// it is an error nothing may be deleted and nothing that seems to be missing may be made again.
func (m *Instances) Trusted(ctx context.Context) error {
	_, listErr := m.snapshot.Get(ctx, m.age(m.config.StatusAge, m.config.PageAge))
	d, err := m.guard.decide(ctx)
	if err != nil {
		return err
	}
	m.reporter.trust(d)
	if d.Trust == instance.Trusted {
		return nil
	}
	if listErr != nil && d.Trust == instance.Unverified {
		return fmt.Errorf("%s (%w)", d.Message, listErr)
	}
	return errors.New(d.Message)
}

// TrustedNow is Trusted after it was asked whose the token is at this moment; not to know that is an error.
func (m *Instances) TrustedNow(ctx context.Context) error {
	if err := m.guard.askAccount(ctx); err != nil {
		return fmt.Errorf("the account of the token could not be read: %w", err)
	}
	return m.Trusted(ctx)
}

// Since returns when the cluster was recorded as this account's, which is when this program ran first in the cluster. The
// zero time means that there is no record that can be relied on; [Instances.Trusted] makes one. It makes no call.
func (m *Instances) Since() time.Time {
	m.guard.mu.Lock()
	defer m.guard.mu.Unlock()
	if m.guard.recordErr != nil || m.guard.ledger.lease == nil {
		return time.Time{}
	}
	return m.guard.ledger.lease.CreationTimestamp.Time
}

// Identities returns which Nodes may not be the droplets that they name, by what was read so far, and records an Event on
// each. The tag is required only where some droplet is seen to have it: the token may not show tags, or nobody uses it.
func (m *Instances) Identities(nodes []*corev1.Node) *instance.Identities {
	ids := m.identify(nodes)
	for _, node := range nodes {
		if d, is := ids.Disputed[node.Name]; is && !uninitialized(node) {
			message := fmt.Sprintf("node %s %s; until then no load balancer gets it as a new target", node.Name, d.Why)
			m.reporter.event(node, EventDisputed, message)
		}
	}
	return &ids
}

func (m *Instances) identify(nodes []*corev1.Node) instance.Identities {
	g, list := m.guard, m.snapshot.Latest()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.learn(g.clock.Now(), nodes, list)
	tagged := slices.ContainsFunc(list.Droplets, instance.Identities{Tag: m.config.Tag}.Tagged)
	return instance.Identify(nodes, g.shown, list.At, m.config.Tag, m.config.RequireTag && tagged)
}

// undisputed returns an error if a new Node may not be the droplet that was found for it: then it gets nothing of that
// droplet, since addresses and a place among Kubernetes' Nodes are what an impostor wants.
func (m *Instances) undisputed(node *corev1.Node, droplet instance.Droplet) error {
	nodes, err := m.nodes()
	if err != nil {
		return err
	}
	found := node.DeepCopy()
	found.Spec.ProviderID = providerid.Format(droplet.ID)
	nodes = slices.DeleteFunc(slices.Clone(nodes), func(n *corev1.Node) bool { return n.Name == node.Name })
	if d, is := m.identify(append(nodes, found)).Disputed[node.Name]; is {
		err := fmt.Errorf("node %s is not initialized: it %s", node.Name, d.Why)
		m.reporter.event(node, EventDisputed, err.Error())
		return err
	}
	return nil
}

// Droplets returns all droplets of the account, as they were a moment ago, or an error: who asks leaves out what it lacks. They MUST NOT be changed.
func (m *Instances) Droplets(ctx context.Context) ([]instance.Droplet, error) {
	list, err := m.snapshot.Get(ctx, m.pendingAge())
	if err != nil {
		return nil, err
	}
	return list.Droplets, nil
}

// InstanceExists implements cloudprovider.InstancesV2. It is false only if the droplet is proven to be gone and it is its turn to go; whatever
// else is not known is an error, with which the framework keeps the Node. Otherwise [Instances.Deletions] lets that Node pass, as it is now.
func (m *Instances) InstanceExists(ctx context.Context, node *corev1.Node) (bool, error) {
	v, err := m.judge(ctx, node)
	if err != nil {
		return true, err
	}
	m.reporter.verdict(node, v)
	switch v.Existence {
	case instance.Exists:
		return true, nil
	case instance.Gone:
		live, err := m.confirm(ctx, node)
		if err != nil {
			return true, err
		}
		if m.departing != nil {
			if err := m.departing(live); err != nil {
				return true, err
			}
		}
		if m.config.Mode != outputs.Report {
			m.reporter.gone(node, v)
		}
		m.giveUp(live)
		return false, nil
	default:
		return true, errors.New(v.Message)
	}
}

// judge gets the verdict on a Node, and asks for as much as can make it one.
func (m *Instances) judge(ctx context.Context, node *corev1.Node) (instance.Verdict, error) {
	const rounds = 4 // a list, a GET, a list again if it is older than that, and the verdict
	ctx = doapi.Urgent(ctx, budget.Join)
	droplet, _ := providerid.Parse(node.Spec.ProviderID) // the verdict says what is wrong with it
	_, listErr := m.doubt(ctx, m.unready(node), droplet)
	asked := false
	for round := 1; ; round++ {
		d, err := m.guard.decide(ctx)
		if err != nil {
			return instance.Verdict{}, err
		}
		m.reporter.trust(d)
		v, ok := d.Verdict(node.Name)
		if !ok || v.Droplet != 0 && providerid.Format(v.Droplet) != node.Spec.ProviderID {
			return instance.Verdict{}, fmt.Errorf("node %s was replaced in the cluster, try again", node.Name)
		}
		if v.Existence != instance.Unknown || round == rounds {
			return v, nil
		}
		before, news := m.snapshot.Latest(), false
		if !asked {
			news = m.guard.ask(ctx, wanted(d, v))
			asked = news
		}
		if !news && d.Refresh {
			var after *DropletList
			after, listErr = m.doubt(ctx, m.unready(node), 0)
			news = after != before
		}
		if !news {
			return because(v, listErr), nil
		}
	}
}

// because adds to a verdict why there is no better list.
func because(v instance.Verdict, listErr error) instance.Verdict {
	if listErr != nil && (v.Reason == instance.ReasonList || v.Reason == instance.ReasonAccount) {
		v.Message += " (" + listErr.Error() + ")"
	}
	return v
}

// wanted returns which droplets to ask for on behalf of one Node: its own, or, where nothing is visible, those that show whether that is so.
func wanted(d instance.Plan, v instance.Verdict) []int {
	if d.Trust == instance.NothingVisible {
		return d.Ask
	}
	if v.Reason == instance.ReasonAnswer {
		return []int{v.Droplet}
	}
	return nil
}

// confirm looks at the Node itself right before it is given up: the framework deletes by name alone, and a machine that came back under the
// same name has another Node.
func (m *Instances) confirm(ctx context.Context, node *corev1.Node) (*corev1.Node, error) {
	m.mu.Lock()
	client := m.client
	m.mu.Unlock()
	live, err := client.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil, fmt.Errorf("node %s has been deleted already", node.Name)
	case err != nil:
		return nil, fmt.Errorf("reading node %s before it is given up: %w", node.Name, err)
	case live.UID != node.UID || live.Spec.ProviderID != node.Spec.ProviderID:
		return nil, fmt.Errorf("node %s is another one by now", node.Name)
	case ready(live):
		return nil, fmt.Errorf("node %s is ready by now", node.Name)
	}
	return live, nil
}

// InstanceShutdown implements cloudprovider.InstancesV2: whether the droplet is switched off.
func (m *Instances) InstanceShutdown(ctx context.Context, node *corev1.Node) (bool, error) {
	id, err := providerid.Parse(node.Spec.ProviderID)
	if err != nil {
		return false, fmt.Errorf("node %s: %w", node.Name, err)
	}
	list, err := m.doubt(doapi.Urgent(ctx, budget.Join), m.unready(node), id)
	if d, ok := list.Droplet(id); ok {
		return instance.IsShutdown(d), nil
	}
	if d, ok := m.guard.foundByID(id); ok {
		return instance.IsShutdown(d), nil
	}
	if err != nil {
		return false, err
	}
	return false, fmt.Errorf("node %s: droplet %d is not in the list of droplets", node.Name, id)
}

// InstanceMetadata implements cloudprovider.InstancesV2: what Kubernetes is told of a Node's droplet. Nothing is told of a Node that has no
// provider ID yet while it is not certain whose the droplets are, since a provider ID is for ever.
func (m *Instances) InstanceMetadata(ctx context.Context, node *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	described, err := m.describe(ctx, node)
	if err != nil {
		m.reporter.unmatched(node, err)
		if uninitialized(node) {
			m.waiting.failed(node)
		}
		return nil, err
	}
	if !uninitialized(node) && misjudged(node, described.Addresses) {
		described.Addresses = nil
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: described.ProviderID, InstanceType: described.InstanceType, Region: described.Region, NodeAddresses: described.Addresses,
	}, nil
}

// describe finds and describes a Node's droplet.
func (m *Instances) describe(ctx context.Context, node *corev1.Node) (instance.Metadata, error) {
	droplet, err := m.droplet(ctx, node)
	if err != nil {
		return instance.Metadata{}, err
	}
	m.guard.show(droplet)
	described, err := instance.Describe(droplet)
	if err != nil {
		return instance.Metadata{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if uninitialized(node) {
		if err := m.undisputed(node, droplet); err != nil {
			return instance.Metadata{}, err
		}
	}
	m.label(ctx, node, droplet)
	if !uninitialized(node) {
		return described, nil
	}
	if _, err := asProvided(node, described.Addresses); err != nil {
		return instance.Metadata{}, fmt.Errorf("%w: its kubelet's --node-ip is %s, which is not an address of %s; correct or remove the flag",
			err, node.Annotations[cloudproviderapi.AnnotationAlphaProvidedIPAddr], droplet)
	}
	m.waiting.describe(node, described.Addresses)
	return described, nil
}

// misjudged reports that a Node has the addresses that are about to be told, and that the framework would write them all the same: it compares one
// address per type, and a machine with IPv4 and IPv6 has two of type ExternalIP (k8s.io/cloud-provider, nodeAddressesChangeDetected). Being
// told no address, it leaves those there are.
func misjudged(node *corev1.Node, addresses []corev1.NodeAddress) bool {
	addresses, err := asProvided(node, addresses)
	if err != nil {
		return false // the framework says what is wrong
	}
	types := map[corev1.NodeAddressType]bool{}
	for _, a := range addresses {
		types[a.Type] = true
	}
	return len(types) < len(addresses) && slices.Equal(node.Status.Addresses, addresses)
}

// droplet finds a Node's droplet.
func (m *Instances) droplet(ctx context.Context, node *corev1.Node) (instance.Droplet, error) {
	pending := uninitialized(node)
	if pending {
		ctx = doapi.Urgent(ctx, budget.Join)
	}
	list, err := m.described(ctx, node)
	if err != nil && (node.Spec.ProviderID == "" || m.clock.Since(list.At) > m.config.Decision.MaxListAge) {
		return instance.Droplet{}, err
	}
	d, err := m.guard.decide(ctx)
	if err != nil {
		return instance.Droplet{}, err
	}
	m.reporter.trust(d)
	if node.Spec.ProviderID == "" && !m.guard.accountFits() {
		m.reporter.event(node, EventAnotherAccount, "not initialized: "+d.Message)
		return instance.Droplet{}, fmt.Errorf("node %s is not initialized: %s", node.Name, d.Message)
	}
	if pending {
		return m.newcomer(ctx, node)
	}
	return instance.Match(node, list.Droplets)
}

// newcomer finds the droplet of a new Node. What is told of it now stays, the provider ID for ever and the addresses for
// minutes: so it is what DigitalOcean shows at this moment, by a call for this droplet while few Nodes join, and in a
// list that all share while there are many.
func (m *Instances) newcomer(ctx context.Context, node *corev1.Node) (instance.Droplet, error) {
	age, alone := m.waiting.turn(node)
	if alone {
		droplet, err := m.seek(ctx, node)
		if !errors.Is(err, instance.ErrNoDroplet) {
			return droplet, err
		}
		age = max(age, moment) // for those that are not found by name
	}
	list, err := m.shared(ctx, age)
	if err != nil {
		return instance.Droplet{}, err
	}
	droplet, err := instance.Match(node, list.Droplets)
	if errors.Is(err, instance.ErrNoDroplet) && (list.GPUsAt.Before(node.CreationTimestamp.Time) || m.clock.Since(list.GPUsAt) > gpuPause) {
		if list, err = m.snapshot.get(ctx, max(age, m.clock.Since(list.At)), min(max(age, gpuPause), gpuAge)); err != nil {
			return instance.Droplet{}, err
		}
		droplet, err = instance.Match(node, list.Droplets)
	}
	if err == nil && m.clock.Since(list.At) > moment {
		return m.ask(ctx, node, droplet.ID)
	}
	return droplet, err
}

// shared returns the list of droplets that new Nodes share: of that age, or as old as the calls for new Nodes allow.
func (m *Instances) shared(ctx context.Context, age time.Duration) (*DropletList, error) {
	latest, now := m.snapshot.Latest(), m.clock.Now()
	if now.Sub(latest.At) > age && !m.listing.AllowN(now, min(latest.pages(), listBurst)) {
		age = max(age, m.pendingAge())
	}
	return m.snapshot.Get(ctx, age)
}

// ask reads one droplet.
func (m *Instances) ask(ctx context.Context, node *corev1.Node, id int) (instance.Droplet, error) {
	fresh, err := m.api.Droplet(ctx, id)
	if err != nil {
		return instance.Droplet{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return fresh, nil
}

// seek looks for the droplet of a new Node alone: by its ID, or by the Node's name, by which those with GPUs and those
// of a Node that is named by an address are not found.
func (m *Instances) seek(ctx context.Context, node *corev1.Node) (instance.Droplet, error) {
	if id, err := providerid.Parse(node.Spec.ProviderID); err == nil {
		return m.ask(ctx, node, id)
	}
	if known, err := instance.Match(node, m.snapshot.Latest().Droplets); err == nil {
		return m.ask(ctx, node, known.ID)
	}
	named, err := m.api.DropletsNamed(ctx, node.Name)
	if err != nil {
		return instance.Droplet{}, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return instance.Match(node, named)
}

// uninitialized reports whether a Node still waits for its cloud provider.
func uninitialized(node *corev1.Node) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == cloudproviderapi.TaintExternalCloudProvider {
			return true
		}
	}
	return false
}
