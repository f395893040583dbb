// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"
	"time"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	framework "k8s.io/cloud-provider/app"
	frameworkconfig "k8s.io/cloud-provider/app/config"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/cloud-provider/names"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
)

// constructors are those of the framework's controllers, but for that of Services, which sees no Node come or go.
//
// For each Node event it compares all Nodes for all Services, after each start once for each Node there is: with 5,000 Nodes and 50 load balancers one
// processor is busy for a quarter of an hour, and all of it ends in UpdateLoadBalancer, which here only notes that Nodes have changed. Package balancers
// watches them by itself.
func constructors() map[string]framework.ControllerInitFuncConstructor {
	all := maps.Clone(framework.DefaultInitFuncConstructors)
	services := all[names.ServiceLBController]
	services.Constructor = func(initial framework.ControllerInitContext, config *frameworkconfig.CompletedConfig, cloud cloudprovider.Interface) framework.InitFunc {
		return func(ctx context.Context, running genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			core := config.SharedInformers.Core().V1()
			keeper, err := servicecontroller.New(cloud, config.ClientBuilder.ClientOrDie(initial.ClientName), core.Services(), quietNodes{core.Nodes()},
				config.ComponentConfig.KubeCloudShared.ClusterName, utilfeature.DefaultFeatureGate)
			if err != nil {
				return nil, false, fmt.Errorf("starting the controller of Services: %w", err)
			}
			go keeper.Run(ctx, int(config.ComponentConfig.ServiceController.ConcurrentServiceSyncs), running.ControllerManagerMetrics)
			return nil, true, nil
		}
	}
	all[names.ServiceLBController] = services
	return all
}

// quietNodes is an informer of Nodes that lists them and tells of none.
type quietNodes struct{ coreinformers.NodeInformer }

// Informer implements coreinformers.NodeInformer.
func (q quietNodes) Informer() cache.SharedIndexInformer {
	return quietInformer{q.NodeInformer.Informer()}
}

type quietInformer struct{ cache.SharedIndexInformer }

// AddEventHandlerWithResyncPeriod implements cache.SharedInformer: the handler is never called.
func (q quietInformer) AddEventHandlerWithResyncPeriod(cache.ResourceEventHandler, time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return q.SharedIndexInformer.AddEventHandlerWithResyncPeriod(cache.ResourceEventHandlerFuncs{}, 0)
}
