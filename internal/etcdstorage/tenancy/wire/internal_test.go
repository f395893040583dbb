// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mooring-dev/mooring/internal/etcdstorage/tenancy"
	"github.com/mooring-dev/mooring/internal/testkit/must"
)

// TestRefusalsAreEtcds compares what is refused here with the linked etcd: clients compare texts.
func TestRefusalsAreEtcds(t *testing.T) {
	t.Parallel()
	for want, got := range map[error]*RequestError{
		rpctypes.ErrGRPCEmptyKey:          errEmptyKey,
		rpctypes.ErrGRPCKeyNotFound:       errEmptyOp,
		rpctypes.ErrGRPCValueProvided:     errValueProvided,
		rpctypes.ErrGRPCLeaseProvided:     errLeaseProvided,
		rpctypes.ErrGRPCTooManyOps:        errTooManyOps,
		rpctypes.ErrGRPCInvalidSortOption: errSortOption,
	} {
		s := status.Convert(want)
		if codes.Code(got.Code) != s.Code() || got.Message != s.Message() || got.Error() != s.Message() {
			t.Errorf("%d %q, want %v", got.Code, got.Message, want)
		}
	}
	if codes.Code(InvalidArgument) != codes.InvalidArgument || codes.Code(Unimplemented) != codes.Unimplemented {
		t.Error("the codes are not gRPC's")
	}
	for want, got := range map[error]string{
		rpctypes.ErrCompacted:                reasonCompacted,
		rpctypes.ErrGRPCInvalidAuthToken:     reasonAuthToken,
		rpctypes.ErrGRPCAuthOldRevision:      reasonAuthRevision,
		rpctypes.ErrGRPCUserEmpty:            reasonUserEmpty,
		rpctypes.ErrGRPCPermissionDenied:     reasonPermission,
		errors.New(reasonEmptyRange):         "mvcc: watcher range is empty",                         // storage/mvcc/watcher.go
		errors.New(reasonDuplicateID):        "mvcc: duplicate watch ID provided on the WatchStream", // the same
		errors.New(canceled):                 rpctypes.ErrorDesc(rpctypes.ErrGRPCWatchCanceled),      // rpctypes
		errors.New(errStreamSort.Message):    "RangeStream does not support custom sort orders",      // api/v3rpc/key.go
		errors.New(errStreamFilters.Message): "RangeStream does not support revision filters",        // the same
	} {
		if want.Error() != got {
			t.Errorf("%q, want %q", got, want)
		}
		if reason := cancelReason([]byte(reasonCompacted)); reason != reasonCompacted {
			t.Errorf("%q became %q", reasonCompacted, reason)
		}
	}
	for _, reason := range []string{
		"", reasonCompacted, reasonEmptyRange, reasonDuplicateID, reasonAuthToken, reasonAuthRevision, reasonUserEmpty, reasonPermission, canceled,
	} {
		if got := cancelReason([]byte(reason)); got != reason {
			t.Errorf("the reason %q became %q", reason, got)
		}
	}
	if got := cancelReason([]byte("/other/key was deleted")); got != canceled {
		t.Errorf("an unknown reason became %q", got)
	}
}

// TestShutMovesWhenTheGuessIsWrong covers all borders between widths of a length.
func TestShutMovesWhenTheGuessIsWrong(t *testing.T) {
	t.Parallel()
	for _, guess := range []int{-5, 0, 127, 128, 16383, 16384, 1 << 21} {
		for _, size := range []int{0, 1, 127, 128, 16383, 16384, 1 << 21} {
			content := make([]byte, size)
			for i := range content {
				content[i] = byte(i * 7)
			}
			dst, m := open([]byte("x"), 3, guess)
			dst = shut(append(dst, content...), m)
			r, rest, ok := next(dst[1:])
			if !ok || len(rest) != 0 || r.key != 3<<3|length || string(r.data) != string(content) || dst[0] != 'x' {
				t.Errorf("guess %d, size %d: %v, %d bytes rest", guess, size, ok, len(rest))
			}
			if _, minimal := open(nil, 3, size); len(dst) != 1+minimal.start+size {
				t.Errorf("guess %d, size %d: %d bytes", guess, size, len(dst))
			}
		}
	}
}

// TestSpanIsJudged: the judgement of what was written does not lean on what was checked before.
func TestSpanIsJudged(t *testing.T) {
	t.Parallel()
	prefix := must.Get(tenancy.ParsePrefix("/a/")).Or(t)
	tenant := tenancy.Tenant{Prefix: prefix}
	for name, s := range map[string]span{"no key": {}, "no key, all": {end: []byte{0}}, "no key, some": {end: []byte("k")}} {
		if _, err := s.append(nil, &tenant, 1, 2); !errors.Is(err, errEscape) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (span{key: []byte("k"), end: []byte{0}}).append(nil, &tenant, 1, 2); err != nil {
		t.Errorf("a good one: %v", err)
	}
	if _, err := (span{key: []byte("k")}).append(nil, &tenancy.Tenant{}, 1, 2); !errors.Is(err, errEscape) {
		t.Errorf("nobody's: %v", err)
	}
}
