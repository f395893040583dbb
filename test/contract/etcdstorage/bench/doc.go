// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

// Package bench compares etcd-storage-proxy with its core etcd and with etcd's own grpc-proxy. Clients, proxies and etcd share one
// machine, each in a process of its own, and take turns in short rounds, so that a figure means something only alongside the others of
// the same round: what is printed and judged are ratios to direct etcd.
//
//	make bench BENCH_PKGS=./test/contract/etcdstorage/bench          everything, about six minutes
//	make bench BENCH_PKGS=... BENCH=Proxy/get                        one row
//
// Its tests attack API servers' neighbors for minutes, and show that the attacks which the proxy resists succeed on etcd's grpc-proxy.
//
// BenchmarkHostile prints what a tenant notices of another that attacks with each RPC there is, with the core on one processor and all
// others on another. Proxies have the budgets that are shipped; MOORING_BENCH_FLAGS are flags for them, of the hostile tenant there.
//
// MOORING_BENCH_SECONDS is the length of a round (2), MOORING_BENCH_ROUNDS how many rounds there are (3), and MOORING_BENCH_TARGETS
// which of direct, splice (a TCP relay), proxy and grpcproxy take part. bin/etcd offers grpc-proxy; without it that column is missing.
package bench
