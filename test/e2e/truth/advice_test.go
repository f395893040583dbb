// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package truth

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/mooring-dev/mooring/internal/platform/command"
	"github.com/mooring-dev/mooring/internal/testkit"
)

// told is a command that a next step names, up to the end of its clause, with what its input is made by.
var told = regexp.MustCompile(`(?:sed '[^']*' \S+ \| )?kubectl [^;,()` + "`]+")

// commandsIn are the commands that a next step names, as a person copies them.
func commandsIn(next string) (out []string) {
	for _, found := range told.FindAllString(next, -1) {
		out = append(out, strings.TrimSpace(found))
	}
	return out
}

// changes reports whether a command changes objects of a cluster.
func changes(command string) bool {
	return regexp.MustCompile(`kubectl( -n \S+)? (delete|label|annotate|auth reconcile) `).MatchString(command)
}

// here is a command as it runs on a control plane without kubelets, which have the logs (what has them is read instead),
// and without the controllers that finish deletions.
func here(command string) string {
	return strings.NewReplacer(" logs -l ", " get pods -l ", " logs ", " get ", " delete ", " delete --wait=false ").Replace(command)
}

// follow runs each command that the answers to a fault name as a next step, in the world that prints it, by the shell of
// a person who copies it: it must not fail, and what changes objects must change what the views say. Each is run where
// it is named first. A step may say of what its command complains of that it does no harm. It returns what does not hold,
// a sentence each.
func (s *stage) follow(f fault, answers []*answer) (lies []string) {
	s.Helper()
	steps := named(answers)
	for _, next := range slices.Sorted(maps.Keys(steps)) {
		if s.followed[next] {
			continue
		}
		s.followed[next] = true
		if !changes(next) {
			if problem := s.shell(here(next)); problem != "" {
				lies = append(lies, fmt.Sprintf("the next step `%s` fails: %s", next, problem))
			}
			continue
		}
		before := s.stored()
		problem := s.shell(here(next))
		if strings.Contains(steps[next], "does no harm") {
			problem = ""
		}
		if _, again := named(s.ask(f.part))[next]; problem == "" && again {
			problem = "it is the next step after it as well"
		}
		if problem != "" {
			lies = append(lies, fmt.Sprintf("the next step `%s` fails: %s", next, problem))
		}
		s.note(before, s.stored())
	}
	return lies
}

// named are the commands of all next steps, with the sentence that has each.
func named(answers []*answer) map[string]string {
	out := map[string]string{}
	for _, a := range answers {
		for _, x := range a.said {
			for _, next := range x.next {
				for _, c := range commandsIn(next) {
					out[c] = next
				}
			}
		}
	}
	return out
}

// shell runs a command as a person does, with an editor that changes nothing. It returns why it fails, "" if it does not.
func (s *stage) shell(line string) string {
	s.Helper()
	s.beat()
	bin := filepath.Dir(testkit.Binary(s.T, "kubectl"))
	testkit.Binary(s.T, "kubectl-mooring")
	c := exec.CommandContext(s.Context(), "sh", "-c", line)
	c.Dir = testkit.Root(s.T)
	c.Env = append(os.Environ(), "KUBECONFIG="+s.kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"), "KUBE_EDITOR=true")
	printed, err := c.CombinedOutput()
	finds := strings.HasPrefix(line, "kubectl mooring ") && c.ProcessState.ExitCode() == command.ExitAttention
	if err == nil || finds {
		return ""
	}
	return fmt.Sprintf("%v: %s", err, printed)
}

// stored are the revisions of the objects that commands of next steps may change, by key.
func (s *stage) stored() map[string]int64 {
	s.Helper()
	out := map[string]int64{}
	for _, kind := range []string{
		"clusterroles", "clusterrolebindings", "roles", "rolebindings", "minions", "persistentvolumes", "serviceaccounts", "namespaces",
	} {
		found, err := s.etcd.Client.Get(s.Context(), "/registry/"+kind+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		s.must(err)
		for _, kv := range found.Kvs {
			out[string(kv.Key)] = kv.ModRevision
		}
	}
	return out
}

// note takes in what a command has changed, so that the next world is written over it.
func (s *stage) note(before, after map[string]int64) {
	for key, revision := range after {
		if before[key] != revision {
			s.written[key] = "changed by a next step"
		}
	}
	for key := range before {
		if after[key] == 0 {
			delete(s.written, key)
		}
	}
}

// Commands are found in sentences as people copy them.
func TestCommandsOfNextSteps(t *testing.T) {
	t.Parallel()
	for next, want := range map[string][]string{
		"check whether it runs: kubectl mooring status; and its Events: kubectl describe node w3": {
			"kubectl mooring status", "kubectl describe node w3",
		},
		"find out, then `kubectl label node w1 x-` and `kubectl annotate node w1 y- z-`; else": {
			"kubectl label node w1 x-", "kubectl annotate node w1 y- z-",
		},
		"kubectl delete pv data, and then the volume":          {"kubectl delete pv data"},
		"kubectl get node w3 -o jsonpath='{.metadata.labels}'": {"kubectl get node w3 -o jsonpath='{.metadata.labels}'"},
		"sed 's/namespace: a$/namespace: b/' dist/f.yaml | kubectl auth reconcile -f -; an error": {
			"sed 's/namespace: a$/namespace: b/' dist/f.yaml | kubectl auth reconcile -f -",
		},
		"switch the droplet on": nil,
	} {
		if got := commandsIn(next); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", next, got, want)
		}
	}
}
