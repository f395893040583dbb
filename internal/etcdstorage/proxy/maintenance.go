// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxy

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy/wire"
)

// Methods of grpc.health.v1, whose generated package is not needed for three of them.
const (
	healthCheck = "/grpc.health.v1.Health/Check"
	healthList  = "/grpc.health.v1.Health/List"
	healthWatch = "/grpc.health.v1.Health/Watch"
)

// Values of grpc.health.v1.HealthCheckResponse.ServingStatus.
const (
	healthServing    = 1
	healthNotServing = 2
)

// syntheticRoutes are the RPCs that the proxy answers from what it knows of the tenant.
func (p *Proxy) syntheticRoutes() map[string]route {
	return map[string]route{
		etcdserverpb.Maintenance_Status_FullMethodName: {unary: p.maintenanceStatus},
		etcdserverpb.Maintenance_Alarm_FullMethodName:  {unary: p.alarm},
		etcdserverpb.Cluster_MemberList_FullMethodName: {unary: p.memberList},
		etcdserverpb.Auth_AuthStatus_FullMethodName:    {unary: p.authStatus},
		healthCheck: {unary: p.healthCheck, local: true},
		healthList:  {unary: p.healthList, local: true},
		healthWatch: {stream: p.healthWatch, local: true},
	}
}

// callCore makes a call of the proxy's own, with generated messages: for what is rare.
func (p *Proxy) callCore(ctx context.Context, method string, request, response proto.Message) error {
	data, err := proto.Marshal(request)
	if err != nil {
		return fmt.Errorf("encoding a request of %s: %w", method, err)
	}
	answer, err := p.up.Unary(ctx, method, false, data)
	if err != nil {
		return err
	}
	if err := proto.Unmarshal(answer, response); err != nil {
		return fmt.Errorf("decoding an answer of %s: %w", method, err)
	}
	return nil
}

// header is the core's header of this moment, by a linearizable read of one key of the tenant's.
func (p *Proxy) header(ctx context.Context) (wire.Header, error) {
	var answer etcdserverpb.RangeResponse
	request := &etcdserverpb.RangeRequest{Key: []byte(p.cfg.Tenant.Prefix.String()), CountOnly: true}
	before := p.seen()
	if err := p.callCore(ctx, etcdserverpb.KV_Range_FullMethodName, request, &answer); err != nil {
		return wire.Header{}, err
	}
	header := wireHeader(answer.Header)
	return header, p.observe(before, header)
}

// Ready makes one linearizable read in the tenant's prefix, and makes sure that the tenant's compact revision is known; nil means that the proxy
// can serve.
func (p *Proxy) Ready(ctx context.Context) error {
	select {
	case <-p.draining:
		return errDraining
	default:
	}
	if _, err := p.header(ctx); err != nil {
		return fmt.Errorf("reading from the core etcd: %w", err)
	}
	if err := p.compaction.wait(ctx); err != nil {
		return fmt.Errorf("reading the tenant's compact revision from the core etcd: %w", err)
	}
	if err := p.ledger.wait(ctx); err != nil {
		return fmt.Errorf("counting what the tenant stores in the core etcd: %w", err)
	}
	return nil
}

// parse decodes a request that is answered here; what does not decode is refused as gRPC servers do.
func parse(request []byte, into proto.Message) error {
	if err := proto.Unmarshal(request, into); err != nil {
		return status.Error(codes.Internal, "grpc: error unmarshalling request: "+err.Error())
	}
	return nil
}

// encode answers with a generated message.
func encode(m proto.Message) ([]byte, error) {
	out, err := proto.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encoding a response: %w", err)
	}
	return out, nil
}

// maintenanceStatus answers Maintenance.Status: the core's version and header, the tenant's size, and nothing else of the cluster.
func (p *Proxy) maintenanceStatus(ctx context.Context, c *call, request []byte) ([]byte, error) {
	if err := parse(request, &etcdserverpb.StatusRequest{}); err != nil {
		return nil, err
	}
	var core etcdserverpb.StatusResponse
	if err := p.callCore(ctx, etcdserverpb.Maintenance_Status_FullMethodName, &etcdserverpb.StatusRequest{}, &core); err != nil {
		return nil, err
	}
	header := wireHeader(core.Header)
	p.glimpse(c.seen, header)
	size, err := p.ledger.size(ctx)
	if err != nil {
		return nil, err
	}
	out := &etcdserverpb.StatusResponse{
		Header: pbHeader(header.For(c.seen.tenant)), Version: core.Version, StorageVersion: core.StorageVersion, RaftTerm: core.RaftTerm, Leader: core.Leader,
		IsLearner: core.IsLearner, DbSize: size, DbSizeInUse: size, DowngradeInfo: &etcdserverpb.DowngradeInfo{},
	}
	for _, e := range core.Errors { // what concerns the tenant, too; the rest is the cluster's affair
		if e == rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader) {
			out.Errors = append(out.Errors, e)
		}
	}
	if noSpace(core.Errors) || p.overQuota() {
		out.Errors = append(out.Errors, noSpaceAlarm(core.GetHeader().GetMemberId()).String())
	}
	return encode(out)
}

// noSpace reports whether a member of the core has an alarm of no space, which stops the writes of all tenants.
func noSpace(problems []string) bool {
	return slices.ContainsFunc(problems, func(e string) bool { return strings.Contains(e, "alarm:"+etcdserverpb.AlarmType_NOSPACE.String()) })
}

// noSpaceAlarm is that alarm as the tenant sees it: of the one member that it knows.
func noSpaceAlarm(member uint64) *etcdserverpb.AlarmMember {
	return &etcdserverpb.AlarmMember{MemberID: member, Alarm: etcdserverpb.AlarmType_NOSPACE}
}

// alarmsFor is how long it is believed what the core's alarms were.
const alarmsFor = 3 * time.Second

// coreAlarms knows whether the core is out of space.
type coreAlarms struct {
	mu      sync.Mutex
	asked   time.Time
	noSpace bool
}

// full reports whether the core is out of space. Those who ask at one time wait for one answer.
func (a *coreAlarms) full(ctx context.Context, p *Proxy) (bool, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := clock()
	if !a.asked.IsZero() && now.Sub(a.asked) < alarmsFor {
		return a.noSpace, nil
	}
	var core etcdserverpb.StatusResponse
	if err := p.callCore(ctx, etcdserverpb.Maintenance_Status_FullMethodName, &etcdserverpb.StatusRequest{}, &core); err != nil {
		return false, err
	}
	a.asked, a.noSpace = now, noSpace(core.Errors)
	return a.noSpace, nil
}

// alarm answers the reading of alarms: a tenant that is at its quota, or whose core is out of space, has that of no space, and there is no
// other. Raising and clearing them is refused; this one goes by itself, once there is room again.
func (p *Proxy) alarm(ctx context.Context, c *call, request []byte) ([]byte, error) {
	var asked etcdserverpb.AlarmRequest
	if err := parse(request, &asked); err != nil {
		return nil, err
	}
	if asked.Action != etcdserverpb.AlarmRequest_GET {
		p.metrics.denied(c.method, true).Inc()
		return nil, status.Error(codes.PermissionDenied, "etcd-storage-proxy: Maintenance.Alarm is available to tenants for reading only")
	}
	header, err := p.header(ctx)
	if err != nil {
		return nil, err
	}
	full := p.overQuota()
	if !full {
		if full, err = p.alarms.full(ctx, p); err != nil {
			return nil, err
		}
	}
	header = header.For(c.seen.tenant)
	if !full {
		return wire.AppendHeaderField(nil, header), nil
	}
	return encode(&etcdserverpb.AlarmResponse{
		Header: pbHeader(header),
		Alarms: []*etcdserverpb.AlarmMember{noSpaceAlarm(header.MemberID)},
	})
}

// memberList answers with one member, whose client URL is the tenant's endpoint.
func (p *Proxy) memberList(ctx context.Context, c *call, request []byte) ([]byte, error) {
	if err := parse(request, &etcdserverpb.MemberListRequest{}); err != nil {
		return nil, err
	}
	header, err := p.header(ctx)
	if err != nil {
		return nil, err
	}
	member := &etcdserverpb.Member{ID: header.MemberID, Name: p.cfg.TenantName}
	if p.cfg.AdvertiseURL != "" {
		member.ClientURLs = []string{p.cfg.AdvertiseURL}
	}
	return encode(&etcdserverpb.MemberListResponse{Header: pbHeader(header.For(c.seen.tenant)), Members: []*etcdserverpb.Member{member}})
}

// authStatus reports that there is no authentication of etcd's kind: the client certificate says who the tenant is.
func (p *Proxy) authStatus(ctx context.Context, c *call, request []byte) ([]byte, error) {
	if err := parse(request, &etcdserverpb.AuthStatusRequest{}); err != nil {
		return nil, err
	}
	header, err := p.header(ctx)
	if err != nil {
		return nil, err
	}
	return encode(&etcdserverpb.AuthStatusResponse{Header: pbHeader(header.For(c.seen.tenant)), AuthRevision: 1}) // 1 is etcd's own number before AuthEnable
}

// healthCheck answers Health.Check for the server as a whole and for any service: this is about the process; Ready is about the core.
func (p *Proxy) healthCheck(context.Context, *call, []byte) ([]byte, error) {
	return healthResponse(p.serving()), nil
}

func (p *Proxy) healthList(context.Context, *call, []byte) ([]byte, error) {
	// HealthListResponse: map<string, HealthCheckResponse> statuses = 1; the one entry has the key "".
	entry := protowire.AppendTag(nil, 2, protowire.BytesType)
	entry = protowire.AppendBytes(entry, healthResponse(p.serving()))
	return protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), entry), nil
}

func (p *Proxy) healthWatch(stream ServerStream) error {
	if _, err := stream.Recv(); err != nil {
		return err
	}
	if err := stream.Send(healthResponse(p.serving())); err != nil {
		return err
	}
	select {
	case <-stream.Context().Done():
		return status.FromContextError(stream.Context().Err()).Err()
	case <-p.draining:
		_ = stream.Send(healthResponse(healthNotServing)) // the stream ends in any case
		return errDraining
	}
}

func (p *Proxy) serving() uint64 {
	select {
	case <-p.draining:
		return healthNotServing
	default:
		return healthServing
	}
}

func healthResponse(state uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), state)
}

func wireHeader(h *etcdserverpb.ResponseHeader) wire.Header {
	return wire.Header{ClusterID: h.GetClusterId(), MemberID: h.GetMemberId(), Revision: h.GetRevision(), RaftTerm: h.GetRaftTerm()}
}

func pbHeader(h wire.Header) *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: h.ClusterID, MemberId: h.MemberID, Revision: h.Revision, RaftTerm: h.RaftTerm}
}
