// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package proxyapp

import (
	"testing"

	"github.com/mooring-dev/mooring/internal/etcdstorage/proxy"
)

// The process may have twice --max-answer-bytes: the operator gives the flag half of the pod's limit. The collector works harder before that, but not
// already for one answer that is as large as may be.
func TestMemoryLimitFollowsFromTheAnswers(t *testing.T) {
	t.Parallel()
	for _, answers := range []int64{32 << 20, proxy.DefaultAnswerBytes, 1 << 30} {
		if limit := memoryLimit(answers); limit <= answers/2*3 || limit >= 2*answers {
			t.Errorf("%d for %d bytes of answers", limit, answers)
		}
	}
}
