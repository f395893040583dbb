// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package container

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// capability is one of capabilities(7), by the name that a pod uses for it.
type capability struct {
	name   string
	number uintptr
}

// capabilities are those that the kernel's headers name, CAP_CHOWN to CAP_CHECKPOINT_RESTORE.
func capabilities() []capability {
	return []capability{
		{"CHOWN", unix.CAP_CHOWN},
		{"DAC_OVERRIDE", unix.CAP_DAC_OVERRIDE},
		{"DAC_READ_SEARCH", unix.CAP_DAC_READ_SEARCH},
		{"FOWNER", unix.CAP_FOWNER},
		{"FSETID", unix.CAP_FSETID},
		{"KILL", unix.CAP_KILL},
		{"SETGID", unix.CAP_SETGID},
		{"SETUID", unix.CAP_SETUID},
		{"SETPCAP", unix.CAP_SETPCAP},
		{"LINUX_IMMUTABLE", unix.CAP_LINUX_IMMUTABLE},
		{"NET_BIND_SERVICE", unix.CAP_NET_BIND_SERVICE},
		{"NET_BROADCAST", unix.CAP_NET_BROADCAST},
		{"NET_ADMIN", unix.CAP_NET_ADMIN},
		{"NET_RAW", unix.CAP_NET_RAW},
		{"IPC_LOCK", unix.CAP_IPC_LOCK},
		{"IPC_OWNER", unix.CAP_IPC_OWNER},
		{"SYS_MODULE", unix.CAP_SYS_MODULE},
		{"SYS_RAWIO", unix.CAP_SYS_RAWIO},
		{"SYS_CHROOT", unix.CAP_SYS_CHROOT},
		{"SYS_PTRACE", unix.CAP_SYS_PTRACE},
		{"SYS_PACCT", unix.CAP_SYS_PACCT},
		{"SYS_ADMIN", unix.CAP_SYS_ADMIN},
		{"SYS_BOOT", unix.CAP_SYS_BOOT},
		{"SYS_NICE", unix.CAP_SYS_NICE},
		{"SYS_RESOURCE", unix.CAP_SYS_RESOURCE},
		{"SYS_TIME", unix.CAP_SYS_TIME},
		{"SYS_TTY_CONFIG", unix.CAP_SYS_TTY_CONFIG},
		{"MKNOD", unix.CAP_MKNOD},
		{"LEASE", unix.CAP_LEASE},
		{"AUDIT_WRITE", unix.CAP_AUDIT_WRITE},
		{"AUDIT_CONTROL", unix.CAP_AUDIT_CONTROL},
		{"SETFCAP", unix.CAP_SETFCAP},
		{"MAC_OVERRIDE", unix.CAP_MAC_OVERRIDE},
		{"MAC_ADMIN", unix.CAP_MAC_ADMIN},
		{"SYSLOG", unix.CAP_SYSLOG},
		{"WAKE_ALARM", unix.CAP_WAKE_ALARM},
		{"BLOCK_SUSPEND", unix.CAP_BLOCK_SUSPEND},
		{"AUDIT_READ", unix.CAP_AUDIT_READ},
		{"PERFMON", unix.CAP_PERFMON},
		{"BPF", unix.CAP_BPF},
		{"CHECKPOINT_RESTORE", unix.CAP_CHECKPOINT_RESTORE},
	}
}

// DefaultCapabilities are those that container runtimes leave to a container which asks for nothing (containerd, pkg/oci).
func DefaultCapabilities() []string {
	return []string{
		"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP", "NET_BIND_SERVICE", "NET_RAW", "SYS_CHROOT", "MKNOD",
		"AUDIT_WRITE", "SETFCAP",
	}
}

// Capabilities are the default ones with what a pod adds to them and drops from them; ALL stands for every one. A name that no kernel knows is an
// error.
func Capabilities(add, drop []string) ([]string, error) {
	var all []string
	for _, c := range capabilities() {
		all = append(all, c.name)
	}
	kept := DefaultCapabilities()
	for _, name := range drop {
		name = canonical(name)
		if name == "ALL" {
			kept = nil
			continue
		}
		kept = slices.DeleteFunc(kept, func(k string) bool { return k == name })
	}
	for _, name := range add {
		name = canonical(name)
		switch {
		case name == "ALL":
			kept = all
		case !slices.Contains(all, name):
			return nil, fmt.Errorf("capability %q is unknown; use a name of capabilities(7) without CAP_, or ALL", name)
		case !slices.Contains(kept, name):
			kept = append(kept, name)
		}
	}
	slices.Sort(kept)
	return kept, nil
}

func canonical(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

// dropCapabilities takes every capability but kept out of this thread's bounding set, so that no program it becomes can have it. The kernel may not
// know the newest ones.
func dropCapabilities(kept []string) error {
	for _, c := range capabilities() {
		if slices.Contains(kept, c.name) {
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, c.number, 0, 0, 0)
		if err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("giving up capability %s: %w", c.name, err)
		}
	}
	return nil
}
