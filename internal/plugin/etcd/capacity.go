// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package etcd

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/term"

	"github.com/mooring-dev/mooring/internal/etcdstorage/quota"
	"github.com/mooring-dev/mooring/internal/etcdstorage/transfer"
	"github.com/mooring-dev/mooring/internal/platform/prose"
	"github.com/mooring-dev/mooring/internal/platform/screen"
	"github.com/mooring-dev/mooring/internal/plugin/observe"
)

const capacityLong = `Measures what clients of a tenant get from its proxies, or with --core-endpoint from
the core itself: how many gets, updates, creations and lists of 500 objects of 1 KiB
a second, and how long they take, with 1, 16 and 64 clients.

All tenants of the core notice the load, so that the command asks before it begins.
It takes 12 times --time, writes 31 MiB at most, and ends with the first request that
fails or takes five seconds. Its keys are in a folder of their own, which API servers do
not read. It deletes them at its end; if it cannot, they end with their lease within
ten minutes.

` + connectionHelp

const capacityExample = `  kubectl mooring etcd capacity team-a
  kubectl mooring etcd capacity team-a --yes --core-endpoint https://etcd-0:2379 \
    --core-cacert ca.crt --core-cert client.crt --core-key client.key`

const (
	// capacityFolder is where the keys are, below the tenant's prefix.
	capacityFolder = "mooring.dev/capacity/"
	// objectBytes are those of a value, and listedObjects how many a list has.
	objectBytes, listedObjects = 1 << 10, 500
	// mostWrites is how many requests that write one measurement makes: the keys of as many can be deleted at one time.
	mostWrites = 5000
	// measurements is how many there are, each of which takes between shortest and longest.
	measurements      = 12
	shortest, longest = 100 * time.Millisecond, 10 * time.Second
	// slowest is how long a request may take.
	slowest = 5 * time.Second
	// pauseOfRefused is when a client tries again that the tenant's budgets have refused.
	pauseOfRefused = 50 * time.Millisecond
	// leaseSeconds is how long keys stay that could not be deleted.
	leaseSeconds = 600
)

// numbersOfClients are those that each kind of request is measured with.
func numbersOfClients() []int { return []int{1, 16, 64} }

// capacity is one run of the command.
type capacity struct {
	yes  bool
	time time.Duration

	clients []*clientv3.Client
	folder  string
	lease   clientv3.LeaseID
}

func newCapacity(env *observe.Env) *cobra.Command {
	var f access
	c := capacity{time: 2 * time.Second}
	cmd := &cobra.Command{
		Use: "capacity NAME", Short: "Measure how much a tenant's proxies, or the core, can do", Long: capacityLong, Example: capacityExample,
		Args: oneName("EtcdStorage"),
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd, env, &f, args[0]) },
	}
	f.addTo(cmd)
	cmd.Flags().BoolVar(&c.yes, "yes", false, "Begin without asking.")
	cmd.Flags().DurationVar(&c.time, "time", c.time, "How long each of 12 measurements may take, 100ms to 10s.")
	return cmd
}

func (c *capacity) run(cmd *cobra.Command, env *observe.Env, f *access, name string) error {
	if c.time < shortest || c.time > longest {
		return fmt.Errorf("--time %s is out of range: give 100ms to 10s", c.time)
	}
	config, err := f.config(cmd, env, name)
	if err != nil {
		return err
	}
	if err := c.ask(cmd, strings.Join(config.Endpoints, ",")); err != nil {
		return err
	}
	defer c.disconnect(cmd.ErrOrStderr())
	if err := c.connect(cmd.Context(), f, config, name); err != nil {
		return err
	}
	rows, err := c.measure(cmd.Context())
	if len(rows) > 0 {
		if err := PrintCapacity(rows, len(f.core) > 0, cmd.OutOrStdout()); err != nil {
			return err
		}
	}
	return err
}

// ask has the user agree, unless a flag does.
func (c *capacity) ask(cmd *cobra.Command, endpoints string) error {
	if c.yes {
		return nil
	}
	in := cmd.InOrStdin()
	if file, ok := in.(*os.File); !ok || !term.IsTerminal(int(file.Fd())) {
		return errors.New("all tenants of the core notice the load, and there is no terminal to ask on: give --yes")
	}
	screen.Sentence(cmd.ErrOrStderr(), fmt.Sprintf("This loads %s as much as it can, for up to %s. All tenants of the core notice it.", endpoints, measurements*c.time))
	_, _ = fmt.Fprint(cmd.ErrOrStderr(), "Begin? [y/N] ")
	answer, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("reading the answer: %w", err)
	}
	if !strings.EqualFold(strings.TrimSpace(answer), "y") {
		return errors.New("nothing was measured, since the answer was not y")
	}
	return nil
}

// connect makes a connection for each client, and a lease for all keys.
func (c *capacity) connect(ctx context.Context, f *access, config clientv3.Config, name string) error {
	if err := reach(ctx, config); err != nil {
		return err
	}
	for range slices.Max(numbersOfClients()) {
		client, err := clientv3.New(config)
		if err != nil {
			return fmt.Errorf("connecting to %s: %w", strings.Join(config.Endpoints, ","), transfer.Explain(err))
		}
		c.clients = append(c.clients, client)
	}
	var tenant transfer.Tenant
	if len(f.core) > 0 {
		if err := f.inCore(ctx, c.clients[0], name, &tenant); err != nil {
			return err
		}
	}
	c.folder = tenant.Prefix.String() + capacityFolder
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	lease, err := c.clients[0].Grant(ctx, leaseSeconds)
	if err != nil {
		return fmt.Errorf("granting a lease for the keys: %w", transfer.Explain(err))
	}
	c.lease = lease.ID
	return nil
}

// disconnect revokes the lease, and with it deletes what is left of the keys, after an interrupt too.
func (c *capacity) disconnect(notes io.Writer) {
	if c.lease != 0 {
		ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
		defer cancel()
		if _, err := c.clients[0].Revoke(ctx, c.lease); err != nil {
			screen.Paragraph(notes, "note: ", "  ", fmt.Sprintf("the keys below %s could not be deleted; they end with their lease within %s: %v",
				c.folder, leaseSeconds*time.Second, transfer.Explain(err)))
		}
	}
	for _, client := range c.clients {
		_ = client.Close()
	}
}

// request is a kind of request. Those that write have keys of their own each.
type request struct {
	name   string
	writes bool
	work   quota.Work
	once   func(ctx context.Context, client *clientv3.Client, key string) error
}

// requests are the kinds that API servers make.
func (c *capacity) requests() []request {
	value, list := strings.Repeat("v", objectBytes), c.folder+"list/"
	return []request{
		{"get", false, quota.Work{Calls: 1, Read: objectBytes}, func(ctx context.Context, client *clientv3.Client, _ string) error {
			_, err := client.Get(ctx, list+"0")
			return err
		}},
		{"update", true, quota.Work{Calls: 1, Logged: 1, Written: objectBytes}, func(ctx context.Context, client *clientv3.Client, _ string) error {
			_, err := client.Put(ctx, c.folder+"update", value, clientv3.WithLease(c.lease))
			return err
		}},
		{"create", true, quota.Work{Calls: 1, Logged: 1, Parts: 2, Written: objectBytes}, func(ctx context.Context, client *clientv3.Client, key string) error {
			_, err := client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, value, clientv3.WithLease(c.lease))).Commit()
			return err
		}},
		{"list", false, quota.Work{Calls: 1, Keys: listedObjects, Values: listedObjects, Read: listedObjects * objectBytes},
			func(ctx context.Context, client *clientv3.Client, _ string) error {
				_, err := client.Get(ctx, list, clientv3.WithPrefix())
				return err
			}},
	}
}

// measure measures each kind with each number of clients. With an error it returns what it has until then.
func (c *capacity) measure(ctx context.Context) (rows []Measured, err error) {
	value := strings.Repeat("v", objectBytes)
	for n := range listedObjects {
		if err := c.bounded(ctx, func(ctx context.Context) error {
			_, err := c.clients[0].Put(ctx, c.folder+"list/"+strconv.Itoa(n), value, clientv3.WithLease(c.lease))
			return err
		}); err != nil {
			return nil, fmt.Errorf("writing objects to list: %w", err)
		}
	}
	for _, r := range c.requests() {
		for _, clients := range numbersOfClients() {
			row, err := c.one(ctx, r, clients)
			if err == nil && r.writes {
				err = c.bounded(ctx, func(ctx context.Context) error {
					_, err := c.clients[0].Delete(ctx, c.folder+r.name+"/", clientv3.WithPrefix())
					return err
				})
			}
			if err != nil {
				return rows, fmt.Errorf("%s with %s: %w", r.name, prose.Plural(clients, "client"), err)
			}
			rows = append(rows, row)
		}
	}
	return rows, nil
}

// bounded makes a request that may take as long as the slowest.
func (*capacity) bounded(ctx context.Context, once func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, slowest)
	defer cancel()
	err := once(ctx)
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("a request took more than %s: the core, or the way to it, is too busy to be measured", slowest)
	}
	return transfer.Explain(err)
}

// one measures one kind of request with some clients, each of which makes one after the other.
func (c *capacity) one(ctx context.Context, r request, clients int) (Measured, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var made, refused atomic.Int64
	took := make([][]time.Duration, clients)
	began := time.Now()
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			for time.Since(began) < c.time && ctx.Err() == nil {
				n := made.Add(1)
				if r.writes && n > mostWrites {
					return
				}
				start := time.Now()
				served, err := c.try(ctx, r, i, n)
				switch {
				case err != nil:
					cancel(err)
				case served:
					took[i] = append(took[i], time.Since(start))
				default:
					refused.Add(1)
					await(ctx, pauseOfRefused)
				}
			}
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return Measured{}, context.Cause(ctx)
	}
	times, seconds := slices.Concat(took...), time.Since(began).Seconds()
	slices.Sort(times)
	row := Measured{Request: r.name, Clients: clients, Refused: refused.Load()}
	if len(times) > 0 {
		row.P50, row.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	row.PerSecond = float64(len(times)) / seconds
	row.Units = row.PerSecond * r.work.Units()
	return row, nil
}

// await waits, unless ctx ends first.
func await(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// try makes the nth request with one of the clients. One that the tenant's budgets refuse is not served, which is no error.
func (c *capacity) try(ctx context.Context, r request, client int, n int64) (served bool, err error) {
	err = c.bounded(ctx, func(ctx context.Context) error {
		err := r.once(ctx, c.clients[client], fmt.Sprintf("%s%s/%d", c.folder, r.name, n))
		served = err == nil
		if err != nil && strings.Contains(err.Error(), rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooManyRequests)) {
			return nil
		}
		return err
	})
	return served, err
}

// Measured is what some clients got that made one kind of request.
type Measured struct {
	Request string
	Clients int
	// PerSecond is how many requests were served in a second, and Units the price of those.
	PerSecond, Units float64
	// P50 and P99 are how long they took.
	P50, P99 time.Duration
	// Refused are requests that the tenant's budgets turned away.
	Refused int64
}

// PrintCapacity prints a row for each measurement, and what they mean for the tenants' budgets. core tells that the core itself was
// measured.
func PrintCapacity(rows []Measured, core bool, to io.Writer) error {
	table := screen.Table{Columns: []string{"REQUEST", "CLIENTS", "PER SECOND", "UNITS PER SECOND", "P50", "P99"}}
	var refused int64
	best := slices.MaxFunc(rows, func(a, b Measured) int { return cmp.Compare(a.Units, b.Units) })
	for _, r := range rows {
		refused += r.Refused
		table.Rows = append(table.Rows, []string{
			r.Request, strconv.Itoa(r.Clients), fmt.Sprintf("%.0f", r.PerSecond), fmt.Sprintf("%.0f", r.Units),
			r.P50.Round(10 * time.Microsecond).String(), r.P99.Round(10 * time.Microsecond).String(),
		})
	}
	columns, _ := screen.Terminal(to)
	if _, err := io.WriteString(to, table.Text(columns)); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	most := fmt.Sprintf("%.0f units a second at most, with %ss of %s", best.Units, best.Request, prose.Plural(best.Clients, "client"))
	if core {
		screen.Sentence(to, "The core did "+most+". Tenants whose spec.quota.unitsPerSecond (20000 if absent) is more than that together can delay each other.")
		return nil
	}
	screen.Sentence(to, "The tenant had "+most+". Its spec.quota.unitsPerSecond and spec.priority bound it, and what others ask of the core.")
	if refused > 0 {
		screen.Sentence(to, prose.Plural(refused, "request")+" were refused by the tenant's budgets, and tried again.")
	}
	return nil
}
