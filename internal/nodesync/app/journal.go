// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
)

// Where --journal keeps what is removed.
const (
	journalConfigMaps = "configmaps"
	journalFolder     = "folder"
	journalNone       = "none"
)

const (
	// defaultRetention and defaultMaxEntries bound what the journal costs: at some kilobytes for most machines, a few megabytes of etcd.
	defaultRetention  = 30 * 24 * time.Hour
	defaultMaxEntries = 500
	// shortestRetention leaves a person the time to notice.
	shortestRetention = time.Hour
)

// journalOptions say where what is removed of a machine is kept first. The zero value is not valid; begin with newJournalOptions.
type journalOptions struct {
	mode       string
	dir        string
	retention  time.Duration
	maxEntries int
}

func newJournalOptions() journalOptions {
	return journalOptions{retention: defaultRetention, maxEntries: defaultMaxEntries}
}

// addFlags binds the flags of whatever removes something.
func (j *journalOptions) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&j.mode, "journal", j.mode,
		"Where everything that is removed of a machine is saved first, for the restore command: configmaps, folder (--journal-dir) or none. "+
			"Unset means the folder if one is named, otherwise ConfigMaps if the namespace is known, as in a Pod.")
	fs.StringVar(&j.dir, "journal-dir", j.dir, "Folder of the journal, one file for each clean-up of a machine. Nothing in it is ever deleted.")
	fs.DurationVar(&j.retention, "journal-retention", j.retention, "How long the journal in ConfigMaps keeps an entry.")
	fs.IntVar(&j.maxEntries, "journal-max-entries", j.maxEntries,
		"How many entries the journal in ConfigMaps keeps of machines that are gone, and as many of leftovers of pods; the oldest go first, none within two hours.")
}

// kind is where the journal is: one of the constants above.
func (j *journalOptions) kind(namespace string) string {
	switch {
	case j.mode != "":
		return j.mode
	case j.dir != "":
		return journalFolder
	case namespace != "":
		return journalConfigMaps
	default:
		return journalNone
	}
}

// validate returns one sentence for the first contradiction, and makes sure that a folder can be written, before anything depends on it. The
// namespace is where the program keeps what is its own, "" if that is not known.
func (j *journalOptions) validate(namespace string) error {
	known := []string{"", journalConfigMaps, journalFolder, journalNone}
	switch {
	case !slices.Contains(known, j.mode):
		return fmt.Errorf("--journal %q is unknown: it must be %s, %s or %s", j.mode, journalConfigMaps, journalFolder, journalNone)
	case j.mode == journalFolder && j.dir == "":
		return errors.New("--journal=folder needs --journal-dir: name the folder")
	case j.dir != "" && j.kind(namespace) != journalFolder:
		return fmt.Errorf("--journal=%s and --journal-dir=%s contradict each other: drop one of them", j.mode, j.dir)
	case j.mode == journalConfigMaps && namespace == "":
		return errors.New("--journal=configmaps needs --leader-election-namespace outside of a Pod: name the namespace for the ConfigMaps")
	case j.retention < shortestRetention:
		return fmt.Errorf("--journal-retention is %s: it must be at least %s; 720h is the default", j.retention, shortestRetention)
	case j.maxEntries < 1:
		return fmt.Errorf("--journal-max-entries is %d: it must be at least 1; %d is the default", j.maxEntries, defaultMaxEntries)
	case j.dir != "":
		return j.probe()
	}
	return nil
}

func (j *journalOptions) probe() error {
	probe, err := os.CreateTemp(j.dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("--journal-dir %q cannot be written, create the folder or choose another: %w", j.dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return fmt.Errorf("--journal-dir %q: %w", j.dir, err)
	}
	return nil
}

// newJournal returns what keeps what is removed, nil for nothing. The options must be valid. It makes no request.
func (o *options) newJournal(config *rest.Config) (controller.Journal, error) {
	namespace := o.manager.Namespace()
	switch o.journal.kind(namespace) {
	case journalFolder:
		return controller.FolderJournal{Dir: o.journal.dir}, nil
	case journalConfigMaps:
		journal, err := controller.NewConfigMapJournal(config, namespace)
		if err != nil {
			return nil, err
		}
		journal.Retention, journal.MaxEntries = o.journal.retention, o.journal.maxEntries
		return journal, nil
	}
	return nil, nil
}

// keepsNoJournal reports that restore will have nothing to put back.
func (o *options) keepsNoJournal() bool { return o.journal.kind(o.manager.Namespace()) == journalNone }

// logJournal says where what is removed is kept, and when it is kept nowhere, why.
func (o *options) logJournal(log logr.Logger) {
	namespace := o.manager.Namespace()
	switch kind := o.journal.kind(namespace); {
	case kind == journalFolder:
		log.Info("Saving what is removed in a folder", "folder", o.journal.dir)
	case kind == journalConfigMaps:
		log.Info("Saving what is removed in ConfigMaps", "namespace", namespace, "retention", o.journal.retention.String(),
			"maxEntries", o.journal.maxEntries)
	case o.journal.mode == journalNone:
		log.Info("Not saving what is removed (--journal=none): restore will have nothing to put back")
	default:
		log.Info("Not saving what is removed, because no namespace is known: " +
			"with --journal-dir or --leader-election-namespace restore could put it back")
	}
}
