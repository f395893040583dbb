// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// Options are how a file system is mounted.
type Options struct {
	// ReadOnly is that nothing is written, neither by programs nor by the file system itself.
	ReadOnly bool

	flags uintptr
	rest  []string // for the file system
}

// flagOptions are the options of mount(8) that mount(2) takes as flags.
func flagOptions() map[string]uintptr {
	return map[string]uintptr{
		"nosuid": unix.MS_NOSUID, "nodev": unix.MS_NODEV, "noexec": unix.MS_NOEXEC, "sync": unix.MS_SYNCHRONOUS,
		"noatime": unix.MS_NOATIME, "nodiratime": unix.MS_NODIRATIME, "relatime": unix.MS_RELATIME, "strictatime": unix.MS_STRICTATIME,
		"dirsync": unix.MS_DIRSYNC, "lazytime": unix.MS_LAZYTIME, "silent": unix.MS_SILENT, "iversion": unix.MS_I_VERSION,
	}
}

// oppositeOptions are those that take a flag back.
func oppositeOptions() map[string]uintptr {
	return map[string]uintptr{
		"suid": unix.MS_NOSUID, "dev": unix.MS_NODEV, "exec": unix.MS_NOEXEC, "async": unix.MS_SYNCHRONOUS, "atime": unix.MS_NOATIME,
		"diratime": unix.MS_NODIRATIME, "norelatime": unix.MS_RELATIME, "nostrictatime": unix.MS_STRICTATIME, "nolazytime": unix.MS_LAZYTIME,
		"loud": unix.MS_SILENT, "noiversion": unix.MS_I_VERSION,
		"defaults": unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_SYNCHRONOUS,
	}
}

// isForFstab reports an option that says when, or by whom, a line of fstab is mounted, or that is a comment: mount(8) itself does
// nothing with it here.
func isForFstab(option string) bool {
	switch option {
	case "", "auto", "noauto", "nofail", "_netdev", "comment", "nouser", "nogroup", "noowner":
		return true
	}
	return strings.HasPrefix(option, "x-") || strings.HasPrefix(option, "comment=") || strings.HasPrefix(option, "X-mount.mkdir")
}

// isRefused reports an option that changes what is mounted, or where, or that only mount(8) could carry out.
func isRefused(option string) bool {
	name, _, hasValue := strings.Cut(option, "=")
	_, isFlag := flagOptions()[name]
	switch name {
	case "ro", "rw": // of one layer of the mount alone, or of all below it (mount(8), since 2.39)
		return hasValue
	case "bind", "rbind", "move", "remount", "loop", "offset", "sizelimit", "user", "users", "group", "owner", "mand",
		"private", "rprivate", "shared", "rshared", "slave", "rslave", "unbindable", "runbindable":
		return true
	}
	return hasValue && isFlag || strings.HasPrefix(name, "X-mount.") || strings.HasPrefix(name, "verity.") || strings.HasPrefix(name, "helper")
}

// ParseOptions reads options of mount(8), of which each text may have several, separated by commas: the last of two that
// contradict each other counts. What the kernel has as flags become flags, and what is not known is left to the file system.
// An error is one sentence that names the option.
func ParseOptions(options []string) (Options, error) {
	var out Options
	for _, list := range options {
		for option := range strings.SplitSeq(list, ",") {
			flag, isFlag := flagOptions()[option]
			opposite, isOpposite := oppositeOptions()[option]
			switch {
			case isForFstab(option), option == "nomand":
			case isRefused(option):
				return out, fmt.Errorf("the mount option %q is not possible for a volume: remove it from mountOptions", option)
			case option == "ro", option == "rw":
				out.ReadOnly = option == "ro"
			case isFlag:
				out.flags |= flag
			case isOpposite:
				out.flags &^= opposite
			default:
				out.rest = append(out.rest, option)
			}
		}
	}
	return out, nil
}
