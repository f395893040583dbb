// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"github.com/go-logr/logr"

	"github.com/mooring-dev/mooring/internal/nodesync/controller"
	"github.com/mooring-dev/mooring/internal/platform/manager"
)

// newEvents returns what writes Events about the program's own Deployment; nil where it writes nothing at all, or where its namespace is not known.
func newEvents(mgr *manager.Manager, o *options, log logr.Logger) controller.Events {
	namespace := o.manager.Namespace()
	switch {
	case !o.writes():
		return nil
	case namespace == "":
		log.Info("Writing no Events, since no namespace is known")
		return nil
	}
	return &controller.KubernetesEvents{
		Recorder: mgr.GetEventRecorder(Component), Reader: mgr.GetAPIReader(), Namespace: namespace, Deployment: o.eventsDeployment,
		Log: log.WithName(Component),
	}
}
