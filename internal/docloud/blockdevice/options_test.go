// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package blockdevice

import (
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestParseOptions: what mount(8) takes is taken, in its sense: flags, their opposites, what is for fstab alone, and what the file system knows.
func TestParseOptions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Options{
		"":                                   {},
		"defaults,nofail,discard,noatime":    {flags: unix.MS_NOATIME, rest: []string{"discard"}}, // DigitalOcean's own advice
		"_netdev,x-systemd.device-timeout=9": {},
		"comment=x,noauto,nouser,rw":         {},
		"ro":                                 {ReadOnly: true},
		"ro,rw":                              {},
		"rw,ro":                              {ReadOnly: true},
		"nosuid,nodev,noexec":                {flags: unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC},
		"nosuid,noexec,suid":                 {flags: unix.MS_NOEXEC},
		"noexec,defaults,exec":               {},
		"sync,async,noatime,atime":           {},
		"relatime,lazytime,nolazytime":       {flags: unix.MS_RELATIME},
		"X-mount.mkdir=0750,data=journal":    {rest: []string{"data=journal"}},
		"context=\"a:b:c\"":                  {rest: []string{"context=\"a:b:c\""}},
	} {
		got, err := ParseOptions([]string{text})
		if err != nil || got.ReadOnly != want.ReadOnly || got.flags != want.flags || strings.Join(got.rest, "|") != strings.Join(want.rest, "|") {
			t.Errorf("%q is %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"bind", "noatime,remount", "loop", "loop=/dev/loop0", "offset=4096", "user", "users", "X-mount.subdir=a", "verity.hashdevice=a", "shared", "move", "ro=vfs", "rw=recursive", "noatime=fs"} {
		parts := strings.Split(text, ",")
		if _, err := ParseOptions(parts); err == nil || !strings.Contains(err.Error(), `"`+parts[len(parts)-1]+`"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzParseOptions: no text has an effect that it does not name, and nothing panics.
func FuzzParseOptions(f *testing.F) {
	f.Add("ro,noatime,data=ordered")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseOptions([]string{text})
		if err != nil {
			return
		}
		if got.ReadOnly && !strings.Contains(text, "ro") {
			t.Errorf("%q is read-only", text)
		}
		for _, option := range got.rest {
			if option == "" || !strings.Contains(text, option) {
				t.Errorf("%q gives the file system %q", text, option)
			}
		}
	})
}
