// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire_test

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"
)

// fuzz feeds one rewriter with whatever bytes the fuzzer finds, beginning with some good and some odd messages.
func fuzz(f *testing.F, r rewriter) {
	f.Helper()
	for i := range 40 {
		f.Add(rapid.Custom(func(t *rapid.T) []byte {
			rapid.Bool().Draw(t, "something, as rapid insists and an empty message draws nothing")
			w := writer{tidy: i%2 == 0, whole: i%4 == 0, value: tenants}
			if r.seen != nil {
				w.value = cores
			} else if i%4 == 0 {
				w.value = sensible
			}
			return w.message(t, r.message.ProtoReflect().Descriptor(), 3)
		}).Example(i))
	}
	if r.seen != nil {
		if m, err := proto.Marshal(r.message); err == nil {
			f.Add(m)
		}
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > math.MaxUint16 {
			t.Skip("longer than is of interest")
		}
		r.judgeAny(t, in)
	})
}

func FuzzRangeRequest(f *testing.F)           { fuzz(f, requests()["Range"]) }
func FuzzRangeStreamRequest(f *testing.F)     { fuzz(f, requests()["RangeStream"]) }
func FuzzPutRequest(f *testing.F)             { fuzz(f, requests()["Put"]) }
func FuzzDeleteRangeRequest(f *testing.F)     { fuzz(f, requests()["DeleteRange"]) }
func FuzzTxnRequest(f *testing.F)             { fuzz(f, requests()["Txn"]) }
func FuzzCompactionRequest(f *testing.F)      { fuzz(f, requests()["Compact"]) }
func FuzzWatchRequest(f *testing.F)           { fuzz(f, requests()["Watch"]) }
func FuzzLeaseGrantRequest(f *testing.F)      { fuzz(f, requests()["LeaseGrant"]) }
func FuzzLeaseRevokeRequest(f *testing.F)     { fuzz(f, requests()["LeaseRevoke"]) }
func FuzzLeaseKeepAliveRequest(f *testing.F)  { fuzz(f, requests()["LeaseKeepAlive"]) }
func FuzzLeaseTimeToLiveRequest(f *testing.F) { fuzz(f, requests()["LeaseTimeToLive"]) }
func FuzzLeaseLeasesRequest(f *testing.F)     { fuzz(f, requests()["LeaseLeases"]) }

func FuzzRangeResponse(f *testing.F)           { fuzz(f, responses()["Range"]) }
func FuzzRangeStreamResponse(f *testing.F)     { fuzz(f, responses()["RangeStream"]) }
func FuzzPutResponse(f *testing.F)             { fuzz(f, responses()["Put"]) }
func FuzzDeleteRangeResponse(f *testing.F)     { fuzz(f, responses()["DeleteRange"]) }
func FuzzTxnResponse(f *testing.F)             { fuzz(f, responses()["Txn"]) }
func FuzzWatchResponse(f *testing.F)           { fuzz(f, responses()["Watch"]) }
func FuzzLeaseGrantResponse(f *testing.F)      { fuzz(f, responses()["LeaseGrant"]) }
func FuzzLeaseRevokeResponse(f *testing.F)     { fuzz(f, responses()["LeaseRevoke"]) }
func FuzzLeaseKeepAliveResponse(f *testing.F)  { fuzz(f, responses()["LeaseKeepAlive"]) }
func FuzzLeaseTimeToLiveResponse(f *testing.F) { fuzz(f, responses()["LeaseTimeToLive"]) }
func FuzzLeaseLeasesResponse(f *testing.F)     { fuzz(f, responses()["LeaseLeases"]) }
