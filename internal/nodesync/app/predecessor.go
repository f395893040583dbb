// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"strconv"
	"time"

	"github.com/spf13/pflag"
)

// addPredecessorFlags binds the flags of kube-calico-controller and of glog, so that its manifests work with only the image changed. They
// are hidden: they are for nobody who begins again.
func (o *options) addPredecessorFlags(all *pflag.FlagSet) {
	fs := pflag.NewFlagSet("predecessor", pflag.ContinueOnError)
	fs.BoolVar(&o.dryRun, "dryrun", o.dryRun, "The same as --dry-run.")
	fs.Var((*seconds)(&o.settings.Config.Resync), "syncperiod", "The same as --resync-period, in seconds.")
	for _, name := range []string{"logtostderr", "alsologtostderr"} {
		fs.Bool(name, true, "Ignored: the log goes to standard error.")
	}
	for _, name := range []string{"stderrthreshold", "vmodule", "log_dir", "log_backtrace_at"} {
		fs.String(name, "", "Ignored: use -v and --log-format.")
	}
	fs.VisitAll(func(f *pflag.Flag) { f.Hidden = true })
	all.AddFlagSet(fs)
}

// seconds is a duration that is written as a whole number of seconds.
type seconds time.Duration

// String implements pflag.Value.
func (s *seconds) String() string { return strconv.Itoa(int(time.Duration(*s).Seconds())) }

// Type implements pflag.Value.
func (s *seconds) Type() string { return "seconds" }

// Set implements pflag.Value. Less than a second is refused: it made the upstream project spin.
func (s *seconds) Set(text string) error {
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return errors.New("it must be a whole number of seconds, at least 1")
	}
	*s = seconds(time.Duration(n) * time.Second)
	return nil
}
