// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package caliconode

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	apiv3 "github.com/projectcalico/api/pkg/apis/projectcalico/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/projectcalico/calico/libcalico-go/lib/apiconfig"
	bapi "github.com/projectcalico/calico/libcalico-go/lib/backend/api"
	"github.com/projectcalico/calico/libcalico-go/lib/clientv3"
	cerrors "github.com/projectcalico/calico/libcalico-go/lib/errors"
	"github.com/projectcalico/calico/libcalico-go/lib/options"
)

const (
	// version is what the simulated calico-node reports.
	version = "v3.31.0"
	// clusterType is CLUSTER_TYPE in Calico's manifests.
	clusterType = "k8s,bgp"
)

// Encapsulation is how packets between machines of a pool travel.
type Encapsulation int

const (
	// Unencapsulated pools rely on the network's routes.
	Unencapsulated Encapsulation = iota
	// IPIP pools (IPv4 only) give each machine an IP-in-IP tunnel address.
	IPIP
	// VXLAN pools give each machine a VXLAN tunnel address.
	VXLAN
)

// Pool is an IP pool.
type Pool struct {
	// Name of the pool; empty for the one that calico-node would create: default-ipv4-ippool or default-ipv6-ippool.
	Name string
	// CIDR of the pool, IPv4 or IPv6.
	CIDR string
	// Encapsulation between machines.
	Encapsulation Encapsulation
	// BlockSize is the prefix length of the blocks that machines take from the pool; 26 or 122 if zero.
	BlockSize int
}

// Datastore is a connection to a Calico datastore.
type Datastore struct {
	cfg     apiconfig.CalicoAPIConfig
	client  clientv3.Interface
	backend bapi.Client
}

// Connect connects to the datastore that cfg describes. The type of datastore has to be given: libcalico-go would choose
// one from the environment. An etcd that cannot be reached is an error after libcalico-go's dial timeout of 10 s; the
// Kubernetes API is not contacted.
func Connect(cfg apiconfig.CalicoAPIConfig) (*Datastore, error) {
	switch cfg.Spec.DatastoreType {
	case apiconfig.EtcdV3, apiconfig.Kubernetes:
	default:
		return nil, fmt.Errorf("connecting to Calico's datastore: type is %q, must be %q or %q",
			cfg.Spec.DatastoreType, apiconfig.EtcdV3, apiconfig.Kubernetes)
	}
	client, err := clientv3.New(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to Calico's datastore (%s): %w", cfg.Spec.DatastoreType, err)
	}
	access, ok := client.(interface{ Backend() bapi.Client })
	if !ok {
		return nil, errors.Join(errors.New("connecting to Calico's datastore: libcalico-go's client no longer gives access to its backend"),
			client.Close())
	}
	return &Datastore{cfg: cfg, client: client, backend: access.Backend()}, nil
}

// Client is libcalico-go's own client of the datastore, for tests that read back what was written.
func (d *Datastore) Client() clientv3.Interface { return d.client }

// Backend is libcalico-go's client below [Datastore.Client]: keys and values as they are stored.
func (d *Datastore) Backend() bapi.Client { return d.backend }

// Close closes the connection. Agents of the datastore must not be used afterwards.
func (d *Datastore) Close() error {
	if err := d.client.Close(); err != nil {
		return fmt.Errorf("closing the connection to Calico's datastore: %w", err)
	}
	return nil
}

// Initialize makes an empty datastore that of a cluster, as the first calico-node of a cluster does: ClusterInformation
// with a new GUID and datastoreReady, the three default tiers, Felix' global configuration, and IP pools. The pool of
// poolCIDR is the default of Calico's manifests (IPIP if it is IPv4, VXLAN if it is IPv6); more pools may follow.
// What exists already is left as it is, except that a pool that exists with another CIDR is an error.
func (d *Datastore) Initialize(ctx context.Context, poolCIDR string, more ...Pool) error {
	first := Pool{CIDR: poolCIDR, Encapsulation: IPIP}
	if prefix, err := netip.ParsePrefix(poolCIDR); err == nil && prefix.Addr().Is6() {
		first.Encapsulation = VXLAN
	}
	return d.InitializeWith(ctx, append([]Pool{first}, more...)...)
}

// InitializeWith is [Datastore.Initialize] with these pools and no others.
func (d *Datastore) InitializeWith(ctx context.Context, pools ...Pool) error {
	for _, pool := range pools {
		if err := d.ensurePool(ctx, pool); err != nil {
			return err
		}
	}
	return d.ensureDefaults(ctx)
}

// ensureDefaults writes what every start of calico-node makes sure of for the whole cluster.
func (d *Datastore) ensureDefaults(ctx context.Context) error {
	if err := d.client.EnsureInitialized(ctx, version, clusterType); err != nil {
		return fmt.Errorf("initializing Calico's datastore: %w", err)
	}
	felix := d.client.FelixConfigurations()
	_, err := felix.Get(ctx, "default", options.GetOptions{})
	if !isAbsent(err) {
		return wrap(err, "reading Felix' global configuration")
	}
	config := apiv3.NewFelixConfiguration()
	config.Name = "default"
	config.Spec.ReportingInterval = &metav1.Duration{Duration: 0}
	config.Spec.LogSeverityScreen = "Info"
	_, err = felix.Create(ctx, config, options.SetOptions{})
	return wrap(ignoreExists(err), "creating Felix' global configuration")
}

func (d *Datastore) ensurePool(ctx context.Context, pool Pool) error {
	prefix, err := netip.ParsePrefix(pool.CIDR)
	if err != nil {
		return fmt.Errorf("creating IP pool: %q is not a CIDR: %w", pool.CIDR, err)
	}
	prefix = prefix.Masked()
	resource := apiv3.NewIPPool()
	resource.Name = pool.Name
	resource.Spec = apiv3.IPPoolSpec{
		CIDR: prefix.String(), BlockSize: pool.BlockSize,
		IPIPMode: apiv3.IPIPModeNever, VXLANMode: apiv3.VXLANModeNever,
	}
	name, blockSize := "default-ipv4-ippool", 26
	if prefix.Addr().Is6() {
		name, blockSize = "default-ipv6-ippool", 122
	} else {
		resource.Spec.NATOutgoing = true // calico-node's defaults: IPv4 yes, IPv6 no
	}
	if resource.Name == "" {
		resource.Name = name
	}
	if resource.Spec.BlockSize == 0 {
		resource.Spec.BlockSize = blockSize
	}
	switch pool.Encapsulation {
	case Unencapsulated:
	case IPIP:
		resource.Spec.IPIPMode = apiv3.IPIPModeAlways
	case VXLAN:
		resource.Spec.VXLANMode = apiv3.VXLANModeAlways
	}
	existing, err := d.client.IPPools().Get(ctx, resource.Name, options.GetOptions{})
	switch {
	case err == nil && existing.Spec.CIDR != resource.Spec.CIDR:
		return fmt.Errorf("creating IP pool %q of %s: it exists with %s", resource.Name, resource.Spec.CIDR, existing.Spec.CIDR)
	case err == nil:
		return nil
	case !isAbsent(err):
		return fmt.Errorf("reading IP pool %q: %w", resource.Name, err)
	}
	_, err = d.client.IPPools().Create(ctx, resource, options.SetOptions{})
	return wrap(ignoreExists(err), "creating IP pool "+resource.Name)
}

// retries bounds how often a write is tried again that was based on an outdated read; a restarted calico-node or a
// repeated CNI call would do the same.
const retries = 5

// retryOnConflict repeats a read-modify-write that lost against another writer.
func retryOnConflict(ctx context.Context, do func() error) error {
	var err error
	for i := range retries {
		if err = do(); !isConflict(err) {
			return err
		}
		pause := time.NewTimer(time.Duration(i+1) * 20 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
	return err
}

func isAbsent(err error) bool {
	_, absent := errors.AsType[cerrors.ErrorResourceDoesNotExist](err)
	return absent
}

func isConflict(err error) bool {
	_, conflict := errors.AsType[cerrors.ErrorResourceUpdateConflict](err)
	return conflict
}

func ignoreExists(err error) error {
	if _, exists := errors.AsType[cerrors.ErrorResourceAlreadyExists](err); exists {
		return nil
	}
	return err
}

func ignoreAbsent(err error) error {
	if isAbsent(err) {
		return nil
	}
	return err
}

// wrap says what was being done when err happened; it is nil if err is.
func wrap(err error, deed string) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", deed, err)
}
