// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package labtest_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mooring-dev/mooring/internal/testkit"
	"github.com/mooring-dev/mooring/internal/testkit/must"
	"github.com/mooring-dev/mooring/lab/internal/blueprint"
	"github.com/mooring-dev/mooring/lab/internal/folder"
)

// patience is how long anything may take on a busy machine.
const patience = 15 * time.Minute

// lab is a lab in a folder of its own.
type lab struct {
	t *testing.T
	blueprint.Layout
}

func newLab(t *testing.T) *lab {
	t.Helper()
	return &lab{t: t, Layout: blueprint.Layout{Dir: filepath.Join(t.TempDir(), "lab")}}
}

// try runs a command of the lab and returns what it printed, standard error included.
func (l *lab) try(args ...string) (string, error) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.t.Context()), patience)
	defer cancel()
	command := exec.CommandContext(ctx, testkit.Binary(l.t, "lab"), append(args, "--dir", l.Dir)...)
	var output bytes.Buffer
	command.Stdout, command.Stderr = &output, &output
	err := command.Run()
	return output.String(), err
}

// run is try for what must succeed.
func (l *lab) run(args ...string) string {
	l.t.Helper()
	output, err := l.try(args...)
	if err != nil {
		l.t.Fatalf("lab %s: %v\n%s", strings.Join(args, " "), err, output)
	}
	return output
}

// up starts the lab in the background and stops it, come what may, at the end of the test. It returns what the start says.
func (l *lab) up(args ...string) string {
	l.t.Helper()
	l.t.Cleanup(func() {
		state := l.state()
		l.run("down")
		if state.Supervisor.Alive() {
			l.t.Error("the supervisor outlived `lab down`")
		}
		for name, identity := range state.Identities {
			if identity.Alive() {
				l.t.Errorf("%s outlived `lab down`", name)
			}
		}
		if l.t.Failed() {
			l.showLogs()
		}
	})
	return l.run(append([]string{"up"}, args...)...)
}

func (l *lab) showLogs() {
	for _, name := range []string{"supervisor", "nodes", "setup"} {
		content, _ := os.ReadFile(l.Log(name))
		l.t.Logf("log of %s:\n%s", name, content)
	}
}

// described returns lab.json.
func (l *lab) described() folder.Lab {
	l.t.Helper()
	var described folder.Lab
	must.Do(l.t, folder.ReadJSON(l.LabFile(), &described))
	return described
}

// process returns what lab.json says about a process.
func (l *lab) process(name string) folder.Process {
	l.t.Helper()
	for _, p := range l.described().Processes {
		if p.Name == name {
			return p
		}
	}
	l.t.Fatalf("lab.json does not know %s", name)
	return folder.Process{}
}

// state returns state.json, empty if the lab does not run.
func (l *lab) state() folder.State {
	var state folder.State
	_ = folder.ReadJSON(l.StateFile(), &state)
	return state
}

// client is the administrator's.
func (l *lab) client() kubernetes.Interface {
	l.t.Helper()
	return l.clientFrom(l.Kubeconfig())
}

// await polls until ok, or fails the test with what was seen last.
func await(t *testing.T, what string, ok func(ctx context.Context) (done bool, seen any)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		done, seen := ok(ctx)
		if done {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v for %s; last seen: %v", patience, what, seen)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func ready(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return "missing"
}
