// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package pods

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/testkit"
)

const (
	// asTraffic makes this test's own binary the program of a pod, which is given the endpoint of a tenant's proxies.
	asTraffic = "MOORING_TEST_AS_TRAFFIC"
	// trafficPrefix is before the keys that the program writes, each once and in the order of their names.
	trafficPrefix = "/registry/traffic/"
	// beat is the pause between two writes, between two reads, and before an attempt that failed is made again.
	beat = 20 * time.Millisecond
)

func TestMain(m *testing.M) {
	if endpoint := os.Getenv(asTraffic); endpoint != "" {
		if err := runTraffic(endpoint); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.Main(m)
}

// trafficReport is what the program has done and seen so far.
type trafficReport struct {
	// Written is how many keys are written, Read how many reads were answered.
	Written, Read int
	// Seen is how many writes each watch has told of, without a gap and without a second time.
	Seen []int
	// Ended reports that the writer and the reader have ended; Found is how many keys there were then.
	Ended bool
	Found int
	// Repeated counts the calls that had to be made again, although the client tries again itself where it may, by what they were and how they failed.
	Repeated map[string]int
	// Problems are what must not be, each told once.
	Problems []string
}

// repeated is the number of calls that had to be made again.
func (r trafficReport) repeated() (n int) {
	for _, count := range r.Repeated {
		n += count
	}
	return n
}

// traffic is a tenant's client: it writes, reads and watches as an API server does, without a break.
type traffic struct {
	mu     sync.Mutex
	report trafficReport
	stop   chan struct{}
	work   sync.WaitGroup
}

func runTraffic(endpoint string) error {
	ctx := context.Background()
	tr := &traffic{stop: make(chan struct{}), report: trafficReport{Repeated: map[string]int{}, Seen: make([]int, 2)}}
	client, err := trafficClient(endpoint)
	if err != nil {
		return err
	}
	from, err := client.Get(ctx, trafficPrefix, clientv3.WithPrefix())
	if err != nil || from.Count > 0 {
		return fmt.Errorf("at the start there are %v keys: %w", from, err)
	}
	for i := range tr.report.Seen { // each with a connection of its own, since the proxies are chosen by connections
		own, err := trafficClient(endpoint)
		if err != nil {
			return err
		}
		go tr.watch(ctx, own, i, from.Header.Revision+1)
	}
	tr.work.Go(func() { tr.write(ctx, client) })
	tr.work.Go(func() { tr.read(ctx, client) })
	var once sync.Once
	mux := http.NewServeMux()
	mux.HandleFunc("/report", func(w http.ResponseWriter, _ *http.Request) {
		tr.mu.Lock()
		defer tr.mu.Unlock()
		_ = json.NewEncoder(w).Encode(tr.report)
	})
	mux.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) {
		once.Do(func() { close(tr.stop) })
		tr.work.Wait()
		if err := tr.count(ctx, client); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return // asked again it counts again
		}
		tr.change(func(r *trafficReport) { r.Ended = true })
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: time.Minute}
	return server.ListenAndServe()
}

// trafficClient is etcd's own, with its ordinary retries, and the keepalives of an API server.
func trafficClient(endpoint string) (*clientv3.Client, error) {
	authorities, err := os.ReadFile("/ca/serving-ca.crt")
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	pair, err := tls.LoadX509KeyPair("/cert/tls.crt", "/cert/tls.key")
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialTimeout: 20 * time.Second, DialKeepAliveTime: 30 * time.Second, DialKeepAliveTimeout: 10 * time.Second,
		TLS: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12},
	})
}

func (tr *traffic) change(f func(*trafficReport)) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	f(&tr.report)
}

func (tr *traffic) problem(format string, args ...any) {
	tr.change(func(r *trafficReport) { r.Problems = append(r.Problems, fmt.Sprintf(format, args...)) })
}

// each makes a call again and again, at the beat, until the program is to end. One whose outcome is not known is made again first.
func (tr *traffic) each(what string, attempt func(again bool) error) {
	for again := false; ; {
		select {
		case <-tr.stop:
			if !again {
				return
			}
		default:
		}
		err := attempt(again)
		if err != nil && !again {
			tr.change(func(r *trafficReport) { r.Repeated[what+": "+err.Error()]++ })
		}
		again = err != nil
		<-time.After(beat)
	}
}

func trafficKey(n int) string { return fmt.Sprintf("%s%08d", trafficPrefix, n) }

// write makes one key after the other. A write whose outcome is not known is repeated in a way that takes effect once only.
func (tr *traffic) write(ctx context.Context, client *clientv3.Client) {
	n := 1
	tr.each("write", func(again bool) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		key := trafficKey(n)
		answer, err := client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).Then(clientv3.OpPut(key, key)).Commit()
		if err != nil {
			return err
		}
		if !answer.Succeeded && !again {
			tr.problem("%s was there before it was written", key)
		}
		tr.change(func(r *trafficReport) { r.Written = n })
		n++
		return nil
	})
}

// read asks for the key that was written last.
func (tr *traffic) read(ctx context.Context, client *clientv3.Client) {
	tr.each("read", func(bool) error {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		var n int
		tr.change(func(r *trafficReport) { n = r.Written })
		if n == 0 {
			return nil
		}
		answer, err := client.Get(ctx, trafficKey(n))
		if err != nil {
			return err
		}
		if len(answer.Kvs) != 1 || string(answer.Kvs[0].Value) != trafficKey(n) {
			tr.problem("%s was acknowledged, and is %v", trafficKey(n), answer.Kvs)
		}
		tr.change(func(r *trafficReport) { r.Read++ })
		return nil
	})
}

// count finds each key that was written, and no other.
func (tr *traffic) count(ctx context.Context, client *clientv3.Client) error {
	answer, err := client.Get(ctx, trafficPrefix, clientv3.WithPrefix())
	if err != nil {
		return err
	}
	for i, kv := range answer.Kvs {
		if key := trafficKey(i + 1); string(kv.Key) != key || string(kv.Value) != key || kv.Version != 1 {
			tr.problem("at the end %s is %v", key, kv)
			return nil
		}
	}
	tr.change(func(r *trafficReport) { r.Found = len(answer.Kvs) })
	return nil
}

// watch follows the keys from a revision on. That it goes on when its connection ends is the client's doing.
func (tr *traffic) watch(ctx context.Context, client *clientv3.Client, i int, from int64) {
	seen, last := 0, from-1
	for answer := range client.Watch(clientv3.WithRequireLeader(ctx), trafficPrefix, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := answer.Err(); err != nil {
			tr.problem("watch %d ends after %d events: %v", i, seen, err)
			return
		}
		for _, event := range answer.Events {
			if !event.IsCreate() || string(event.Kv.Key) != trafficKey(seen+1) || event.Kv.ModRevision <= last {
				tr.problem("watch %d: after %s at %d comes %s at %d", i, trafficKey(seen), last, event.Kv.Key, event.Kv.ModRevision)
			}
			seen, last = seen+1, event.Kv.ModRevision
			tr.change(func(r *trafficReport) { r.Seen[i] = seen })
		}
	}
	tr.problem("watch %d has ended after %d events", i, seen)
}

// traffic is what the program says.
func (l *lab) traffic() (report trafficReport, err error) {
	l.Helper()
	content, err := l.ask("team-a", "traffic", "/report", nil)
	if err != nil {
		return report, err
	}
	return report, json.Unmarshal([]byte(content), &report)
}

// flows waits until the program has written and read some more, and all its watches have seen it. What must not be ends the test.
func (l *lab) flows() trafficReport {
	l.Helper()
	var goal int
	var report trafficReport
	testkit.Eventually(l, "traffic", func() string {
		var err error
		if report, err = l.traffic(); err != nil {
			return err.Error()
		}
		if goal == 0 {
			goal = report.Written + 50
		}
		if len(report.Problems) > 0 {
			l.Fatalf("after %d writes: %s", report.Written, strings.Join(report.Problems, "; "))
		}
		for _, seen := range append(report.Seen, report.Written) {
			if seen < goal {
				return fmt.Sprintf("not yet %d writes: %+v", goal, report)
			}
		}
		return ""
	})
	return report
}

// ends ends the program's writing and returns its last report, when its watches have seen all.
func (l *lab) ends() trafficReport {
	l.Helper()
	var report trafficReport
	testkit.Eventually(l, "the end of the traffic", func() string {
		_, err := l.ask("team-a", "traffic", "/stop", nil)
		if err == nil {
			report, err = l.traffic()
		}
		if err == nil && !report.Ended {
			err = errors.New("it goes on")
		}
		if err != nil {
			return err.Error()
		}
		for _, seen := range report.Seen {
			if seen < report.Written {
				return fmt.Sprintf("not all is seen: %+v", report)
			}
		}
		return ""
	})
	if len(report.Problems) > 0 || report.Found != report.Written {
		l.Errorf("of %d keys that were written there are %d: %s", report.Written, report.Found, strings.Join(report.Problems, "; "))
	}
	return report
}
