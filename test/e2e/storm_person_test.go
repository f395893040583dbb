// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/mooring-dev/mooring/internal/nodesync"
	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// askByName is a person who asks the controller to forget machines, whatever has become of them, and waits for each answer.
func (st *storm) askByName(ctx context.Context) {
	random := rand.New(rand.NewPCG(st.seed, 1<<33))
	for n := 0; ctx.Err() == nil; n++ {
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(5 * time.Second)))):
		}
		alive, gone := st.truth.alive()
		all := slices.Concat(alive, gone)
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		valid := time.Duration(5+random.IntN(56)) * time.Second
		for st.pending = st.forget(ctx, fmt.Sprintf("storm-%d", n), all[:min(len(all), 1+random.IntN(4))], valid); st.pending != nil && !st.isAnswered(st.pending); {
			select {
			case <-ctx.Done():
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
		st.pending = nil
	}
}

// confirm is a person who confirms each batch of leftovers that the guard holds back: as many as here are not removed without.
func (st *storm) confirm(ctx context.Context) {
	for ; ctx.Err() == nil; st.sleep(ctx, time.Second) {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		maps := st.api.Client.CoreV1().ConfigMaps(st.namespace)
		state, err := maps.Get(attempt, controller.StateName, metav1.GetOptions{})
		if err == nil {
			memory, before, _ := controller.Recorded(state)
			if hash := memory.AwaitingLeftovers.Hash; hash != "" && !strings.HasPrefix(before, hash) {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, nodesync.ConfirmAnnotation, hash+"/"+time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
				if _, err := maps.Patch(attempt, controller.StateName, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err == nil {
					st.count("confirmations")
				}
			}
		}
		cancel()
	}
}

// sleep waits, but not longer than the context.
func (st *storm) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// asked is a request by name.
type asked struct {
	id    string
	names []string
	at    time.Time
}

// forget asks for machines by name, however long servers freeze. There is one request at a time: the next one may be written when this one is answered.
func (st *storm) forget(ctx context.Context, id string, names []string, valid time.Duration) *asked {
	request := &asked{id: id, names: names, at: time.Now()}
	text, err := json.Marshal(controller.Request{ID: id, Verb: controller.VerbForget, Names: names, Until: request.at.Add(valid)})
	if err != nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]any{nodesync.RequestAnnotation: string(text)}}})
	if err != nil {
		return nil
	}
	written := false
	st.persist("asking for machines by name", func(attempt context.Context) error {
		select {
		case <-ctx.Done(): // the storm is over
			return nil
		default:
		}
		_, err := st.api.Client.CoreV1().ConfigMaps(st.namespace).Patch(attempt, controller.StateName, types.MergePatchType, patch, metav1.PatchOptions{})
		written = err == nil
		return err
	})
	if !written {
		return nil
	}
	st.count("requests by name")
	return request
}

// isAnswered reports whether a request has its last answer, and counts that.
func (st *storm) isAnswered(request *asked) bool {
	ctx, cancel := context.WithTimeout(st.t.Context(), 20*time.Second)
	defer cancel()
	state, err := st.api.Client.CoreV1().ConfigMaps(st.namespace).Get(ctx, controller.StateName, metav1.GetOptions{})
	if err != nil {
		return false
	}
	answer := controller.ParseAnswer(state.Annotations[nodesync.AnswerAnnotation])
	if answer.ID != request.id || !answer.Final() {
		return false
	}
	st.count(answered + answer.State)
	why := slices.DeleteFunc(answer.Lines, func(line string) bool { return strings.HasPrefix(line, "done: ") })
	st.t.Logf("request %s for %q: %s after %s: %.300q", request.id, request.names, answer.State, time.Since(request.at).Round(time.Second), strings.Join(why, "; "))
	return true
}

// expectAnswer fails unless a request is answered, now that it is calm.
func (st *storm) expectAnswer(request *asked) {
	st.t.Helper()
	if request == nil {
		return
	}
	testkit.Eventually(st.t, fmt.Sprintf("an answer to request %s for %q", request.id, request.names), func() string {
		st.revive()
		if !st.isAnswered(request) {
			<-time.After(500 * time.Millisecond)
			return "there is none:\n" + tail(st.replicas[0].Process) + "\n" + tail(st.replicas[1].Process)
		}
		return ""
	})
}
