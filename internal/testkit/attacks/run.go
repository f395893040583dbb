// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package attacks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// Campaign says how the tenant's endpoint is attacked.
type Campaign struct {
	// Conns are connections to the endpoint; workers share them.
	Conns []*grpc.ClientConn
	// Seed and Requests say which requests are made: those with the numbers From to From + Requests - 1.
	Seed           uint64
	From, Requests uint64
	// Workers is how many requests are under way at once.
	Workers int
	// Batch is after how many requests the judge looks.
	Batch uint64
	// Patience is how long one answer may take, 30 seconds if it is 0.
	Patience time.Duration
	// Alive reports whether the endpoint's process lives; "" means yes.
	Alive func() string
}

// A Violation is one thing that must not happen, and how to make it happen again.
type Violation struct {
	// What is one sentence.
	What string
	// Number is that of the request, or of the first of the batch when it is not known which it was.
	Number uint64
	// Request is the request, if it is known.
	Request *Request
}

// String says how to reproduce the violation.
func (v Violation) String() string {
	if v.Request == nil {
		return fmt.Sprintf("%s (one of the batch that begins with request %d)", v.What, v.Number)
	}
	return fmt.Sprintf("%s (request %d: %s, %d bytes: %.4000x)", v.What, v.Number, v.Request.Method, len(v.Request.Body), v.Request.Body)
}

// A Report is what a campaign came to.
type Report struct {
	Seed       uint64
	Requests   uint64
	Violations []Violation
	// Codes counts unary answers by method and code.
	Codes map[string]map[codes.Code]int
	// Messages counts the messages that came back on watch and keep-alive streams.
	Messages int
}

// String is a table of the answers by method.
func (r *Report) String() string {
	var out strings.Builder
	fmt.Fprintf(&out, "seed %d: %d requests, %d messages on open streams\n", r.Seed, r.Requests, r.Messages)
	for _, method := range slices.Sorted(maps.Keys(r.Codes)) {
		fmt.Fprintf(&out, "%s:", method)
		for _, code := range slices.Sorted(maps.Keys(r.Codes[method])) {
			fmt.Fprintf(&out, " %s %d", code, r.Codes[method][code])
		}
		out.WriteString("\n")
	}
	return out.String()
}

// run is a campaign under way.
type run struct {
	Campaign
	world  *World
	mu     sync.Mutex
	report Report
}

// Run attacks and judges. It stops at the first violation; an error means that the judge could not do its work.
func (w *World) Run(ctx context.Context, c Campaign) (*Report, error) {
	if c.Patience == 0 {
		c.Patience = patient
	}
	r := &run{Campaign: c, world: w, report: Report{Seed: c.Seed, Codes: map[string]map[codes.Code]int{}}}
	if err := r.ownLeases(ctx); err != nil {
		return nil, err
	}
	live, stop := context.WithCancel(ctx)
	var disturbed sync.WaitGroup
	disturbed.Go(func() { w.disturb(live) })
	defer disturbed.Wait()
	defer stop()
	for first := c.From; first < c.From+c.Requests && len(r.report.Violations) == 0; first += c.Batch {
		last := min(first+c.Batch, c.From+c.Requests)
		r.batch(ctx, first, last, c.Workers)
		r.report.Requests += last - first
		if err := r.judge(ctx, first, last); err != nil {
			return &r.report, err
		}
	}
	return &r.report, nil
}

// ownLeases gives the tenant leases, so that some of its requests name one that there is.
func (r *run) ownLeases(ctx context.Context) error {
	client := pb.NewLeaseClient(r.Conns[0])
	for range 4 {
		resp, err := client.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 3600})
		if err != nil {
			return fmt.Errorf("granting the tenant a lease: %w", err)
		}
		r.world.words.Leases = append(r.world.words.Leases, resp.ID)
	}
	return nil
}

// batch makes the requests with these numbers.
func (r *run) batch(ctx context.Context, first, last uint64, workers int) {
	var wg sync.WaitGroup
	for n := range workers {
		conn := r.Conns[n%len(r.Conns)]
		wg.Go(func() {
			w := r.worker(conn)
			defer w.close()
			for number := first + uint64(n); number < last && ctx.Err() == nil; number += uint64(workers) {
				w.attack(ctx, number)
			}
		})
	}
	wg.Wait()
}

// A worker has streams of its own.
type worker struct {
	*run
	conn        *grpc.ClientConn
	watch, keep channel
}

func (r *run) worker(conn *grpc.ClientConn) *worker {
	w := &worker{run: r, conn: conn}
	w.watch = channel{conn: conn, method: pb.Watch_Watch_FullMethodName, seen: r.seen}
	w.keep = channel{conn: conn, method: pb.Lease_LeaseKeepAlive_FullMethodName, seen: r.seen}
	return w
}

func (w *worker) close() {
	w.watch.close()
	w.keep.close()
}

// Request returns the request with a number.
func (w *World) request(seed, number uint64) Request {
	return NewGenerator(&w.words, seed, number).Request()
}

func (w *worker) attack(ctx context.Context, number uint64) {
	request := w.world.request(w.Seed, number)
	switch request.kind {
	case watchStream:
		w.watch.send(ctx, request.Body)
		return
	case keepAliveStream:
		w.keep.send(ctx, request.Body)
		return
	}
	began := time.Now()
	answer := call(ctx, w.conn, request, w.Patience)
	w.count(request, answer)
	what := w.world.leaked(answer.bytes)
	switch {
	case what != "":
		what = "an answer has " + what
	case request.denied && answer.code == codes.OK && !mayBeAnswered(request):
		what = request.Method + " was answered with OK"
	case answer.code == codes.DeadlineExceeded && time.Since(began) >= w.Patience && ctx.Err() == nil:
		what = fmt.Sprintf("no response within %v", w.Patience)
	default:
		return
	}
	w.violated(Violation{What: what, Number: number, Request: &request})
}

// mayBeAnswered reports that a mutated message of a refused method became one that is allowed: alarms may be listed.
func mayBeAnswered(r Request) bool {
	var alarm pb.AlarmRequest
	return r.Method == pb.Maintenance_Alarm_FullMethodName && proto.Unmarshal(r.Body, &alarm) == nil && alarm.Action == pb.AlarmRequest_GET
}

// seen looks at what comes back on an open stream. Which message it answers is not known.
func (r *run) seen(a answer) {
	r.mu.Lock()
	r.report.Messages++
	r.mu.Unlock()
	if what := r.world.leaked(a.bytes); what != "" {
		r.violated(Violation{What: "a stream has " + what, Number: r.From})
	}
}

func (r *run) violated(v Violation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.report.Violations) < 20 {
		r.report.Violations = append(r.report.Violations, v)
	}
}

func (r *run) count(request Request, a answer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	method := request.Method
	if request.unknown {
		method = "methods that there are not"
	}
	if r.report.Codes[method] == nil {
		r.report.Codes[method] = map[codes.Code]int{}
	}
	r.report.Codes[method][a.code]++
}

// judge looks after a batch, and finds the request that did it.
func (r *run) judge(ctx context.Context, first, last uint64) error {
	if state := r.Alive(); state != "" {
		r.violated(Violation{What: "the process ended: " + state, Number: first})
		return nil
	}
	found, err := r.look(ctx, r.world)
	if err != nil || len(found) == 0 {
		return err
	}
	what := strings.Join(found, "; ")
	culprit, unknown := r.replay(ctx, first, last)
	if unknown != nil {
		culprit = &Violation{Number: first}
		what += "; looking for the request that did it: " + unknown.Error()
	}
	culprit.What = what
	r.violated(*culprit)
	return nil
}

// look asks the judge. A core that no longer responds is what a tenant must not be able to bring about either.
func (r *run) look(ctx context.Context, w *World) ([]string, error) {
	bounded, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	found, err := w.Judge(bounded)
	if err != nil && ctx.Err() == nil {
		return []string{"the core does not respond to the judge: " + err.Error()}, nil
	}
	return found, err
}

// replay makes the requests of a batch again, one after the other, on a world made again, until the judge sees something.
func (r *run) replay(ctx context.Context, first, last uint64) (*Violation, error) {
	again := &World{core: r.world.core, prefix: r.world.prefix, own: r.world.own, markers: r.world.markers}
	planting, cancel := context.WithTimeout(ctx, r.Patience)
	defer cancel()
	if err := again.plant(planting); err != nil {
		return nil, err
	}
	again.words = r.world.words
	one := &run{Campaign: r.Campaign, world: again, report: Report{Codes: map[string]map[codes.Code]int{}}}
	for number := first; number < last; number++ {
		w := one.worker(r.Conns[0])
		w.attack(ctx, number)
		w.close()
		found, err := r.look(ctx, again)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			request := again.request(r.Seed, number)
			return &Violation{Number: number, Request: &request}, nil
		}
	}
	return nil, errors.New("none of them does it alone")
}
