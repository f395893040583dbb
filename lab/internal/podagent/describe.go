// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package podagent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/mooring-dev/mooring/lab/internal/podagent/container"
	"github.com/mooring-dev/mooring/lab/internal/podagent/environ"
	"github.com/mooring-dev/mooring/lab/internal/podagent/image"
)

// Paths in a container.
const (
	certificatesPath = "/etc/ssl/certs/ca-certificates.crt"
	defaultPath      = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	hostnameLimit    = 63
)

// describe makes what the launcher needs to know of the container, and the folders and files for it.
func (t *task) describe(ctx context.Context, pod *corev1.Pod, found image.Image) (container.Spec, error) {
	if err := unsupported(t.spec); err != nil {
		return container.Spec{}, err
	}
	hostname := hostnameOf(pod)
	variables, err := t.variables(ctx, pod, hostname)
	if err != nil {
		return container.Spec{}, err
	}
	expand := func(text string) string { return environ.Expand(text, variables) }
	argv := t.argv(found, expand)
	file, err := lookUp(found, argv[0])
	if err != nil {
		return container.Spec{}, err
	}
	spec := container.Spec{
		Root: filepath.Join(t.dir(), "root"), Program: found.Program, Paths: found.Paths, Exec: file, Argv: argv,
		Env: environ.List(variables), Dir: t.spec.WorkingDir, Hostname: hostname, Files: t.files(pod, hostname),
	}
	if err := t.identify(&spec, pod, found); err != nil {
		return container.Spec{}, err
	}
	if spec.Mounts, err = t.w.mounts(t.spec, expand); err != nil {
		return container.Spec{}, err
	}
	if err := os.MkdirAll(spec.Root, 0o700); err != nil {
		return container.Spec{}, fmt.Errorf("making the container's folder: %w", err)
	}
	extra, err := t.machineFiles()
	spec.Mounts = append(extra, spec.Mounts...)
	return spec, err
}

// machineFiles are mounts from the machine: the public certificate authorities, and where the container leaves its last words.
func (t *task) machineFiles() ([]container.Mount, error) {
	var out []container.Mount
	if fileExists(t.w.Certificates) {
		out = append(out, container.Mount{Source: t.w.Certificates, Target: certificatesPath, ReadOnly: true})
	}
	if t.spec.TerminationMessagePath == "" {
		return out, nil
	}
	if err := os.WriteFile(t.messageFile(), nil, 0o666); err != nil { //nolint:gosec // the container's user writes to it
		return nil, fmt.Errorf("making the file of last words: %w", err)
	}
	if err := os.Chmod(t.messageFile(), 0o666); err != nil { //nolint:gosec // as above, whatever the umask
		return nil, fmt.Errorf("making the file of last words: %w", err)
	}
	return append(out, container.Mount{Source: t.messageFile(), Target: path.Clean("/" + t.spec.TerminationMessagePath)}), nil
}

// unsupported says what the container asks for that the lab does not have, rather than to run it without.
func unsupported(c corev1.Container) error {
	for name, p := range map[string]*corev1.Probe{"startupProbe": c.StartupProbe, "livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe} {
		if p != nil && p.HTTPGet == nil && p.TCPSocket == nil {
			return fmt.Errorf("the %s of container %s is of a kind that the lab does not have; use httpGet or tcpSocket", name, c.Name)
		}
	}
	if l := c.Lifecycle; l != nil && (l.PostStart != nil || l.PreStop != nil && l.PreStop.Sleep == nil) {
		return fmt.Errorf("container %s has a hook of a kind that the lab does not have; it has preStop with sleep only", c.Name)
	}
	return nil
}

// variables are the container's environment: those that container runtimes set, then those of every pod, then its own.
func (t *task) variables(ctx context.Context, pod *corev1.Pod, hostname string) (map[string]string, error) {
	first := map[string]string{"PATH": defaultPath, "HOME": "/", "HOSTNAME": hostname}
	maps.Copy(first, t.w.Variables)
	return environ.Make(t.spec, first, source{ctx: ctx, worker: t.w, pod: pod})
}

// argv is what is called: the command of the pod or of the image, and the arguments of the pod.
func (t *task) argv(found image.Image, expand func(string) string) []string {
	argv := slices.Clone(found.Entrypoint)
	if len(t.spec.Command) > 0 {
		argv = nil
		for _, word := range t.spec.Command {
			argv = append(argv, expand(word))
		}
	}
	for _, word := range t.spec.Args {
		argv = append(argv, expand(word))
	}
	return argv
}

// lookUp finds the command in the container: a path, or a name on the PATH. There is one program only, so anything else is an error which says where
// that is.
func lookUp(found image.Image, command string) (string, error) {
	for _, known := range found.Paths {
		if command == known || command == path.Base(known) {
			return known, nil
		}
	}
	return "", fmt.Errorf("command %q is not in the image, which holds %s only", command, strings.Join(found.Paths, ", "))
}

func hostnameOf(pod *corev1.Pod) string {
	name := pod.Spec.Hostname
	if name == "" {
		name = pod.Name
	}
	if len(name) > hostnameLimit {
		name = strings.TrimRight(name[:hostnameLimit], "-.")
	}
	return name
}

// files are the small files that every container has.
func (t *task) files(pod *corev1.Pod, hostname string) map[string]string {
	return map[string]string{
		"/etc/hostname":      hostname + "\n",
		"/etc/hosts":         hosts(pod, hostname),
		"/etc/resolv.conf":   t.w.resolvConf(pod),
		"/etc/nsswitch.conf": "hosts: files dns\n",
		"/etc/passwd":        fmt.Sprintf("root:x:0:0:root:/:/sbin/nologin\nnobody:x:65534:65534:nobody:/:/sbin/nologin\nnonroot:x:%[1]d:%[1]d:nonroot:/:/sbin/nologin\n", image.Nobody),
		"/etc/group":         fmt.Sprintf("root:x:0:\nnogroup:x:65534:\nnonroot:x:%d:\n", image.Nobody),
	}
}

// identify sets user, groups and rights.
func (t *task) identify(spec *container.Spec, pod *corev1.Pod, found image.Image) error {
	own, shared := t.spec.SecurityContext, pod.Spec.SecurityContext
	if own == nil {
		own = &corev1.SecurityContext{}
	}
	if shared == nil {
		shared = &corev1.PodSecurityContext{}
	}
	spec.User, spec.Group = found.User, found.User
	if user := firstOf(own.RunAsUser, shared.RunAsUser); user != nil {
		spec.User, spec.Group = int(*user), 0 // no group of its own in /etc/passwd
	}
	if group := firstOf(own.RunAsGroup, shared.RunAsGroup); group != nil {
		spec.Group = int(*group)
	}
	if nonRoot := firstOf(own.RunAsNonRoot, shared.RunAsNonRoot); nonRoot != nil && *nonRoot && spec.User == 0 {
		return errors.New("container has runAsNonRoot and image will run as root")
	}
	for _, group := range shared.SupplementalGroups {
		spec.Groups = append(spec.Groups, int(group))
	}
	if shared.FSGroup != nil {
		spec.Groups = append(spec.Groups, int(*shared.FSGroup))
	}
	return limit(spec, own)
}

// limit sets what the container may do.
func limit(spec *container.Spec, own *corev1.SecurityContext) (err error) {
	spec.ReadOnly = own.ReadOnlyRootFilesystem != nil && *own.ReadOnlyRootFilesystem
	spec.Privileged = own.Privileged != nil && *own.Privileged
	spec.MayGainPrivileges = own.AllowPrivilegeEscalation == nil || *own.AllowPrivilegeEscalation
	var add, drop []string
	if own.Capabilities != nil {
		for _, c := range own.Capabilities.Add {
			add = append(add, string(c))
		}
		for _, c := range own.Capabilities.Drop {
			drop = append(drop, string(c))
		}
	}
	spec.Capabilities, err = container.Capabilities(add, drop)
	return err
}

// firstOf returns the container's setting, or else the pod's.
func firstOf[T any](own, shared *T) *T {
	if own != nil {
		return own
	}
	return shared
}

// sortByDepth puts folders before what is in them.
func sortByDepth(mounts []container.Mount) {
	slices.SortStableFunc(mounts, func(a, b container.Mount) int {
		return strings.Count(a.Target, "/") - strings.Count(b.Target, "/")
	})
}
