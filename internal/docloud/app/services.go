// SPDX-FileCopyrightText: The Mooring Authors
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"maps"

	utilfeature "k8s.io/apiserver/pkg/util/feature"
	cloudprovider "k8s.io/cloud-provider"
	framework "k8s.io/cloud-provider/app"
	frameworkconfig "k8s.io/cloud-provider/app/config"
	nodecontroller "k8s.io/cloud-provider/controllers/node"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	"k8s.io/cloud-provider/names"
	genericcontrollermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"

	"github.com/mooring-dev/mooring/internal/docloud/provider"
)

// constructors are those of the framework's controllers, but for that of Services, which sees no Node come or go (see
// [provider.QuietNodes]), and for that of Nodes, which sees those that wait again ([provider.WakingNodes]).
func constructors() map[string]framework.ControllerInitFuncConstructor {
	all := maps.Clone(framework.DefaultInitFuncConstructors)
	services := all[names.ServiceLBController]
	services.Constructor = func(initial framework.ControllerInitContext, config *frameworkconfig.CompletedConfig, cloud cloudprovider.Interface) framework.InitFunc {
		return func(ctx context.Context, running genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			core := config.SharedInformers.Core().V1()
			keeper, err := servicecontroller.New(cloud, config.ClientBuilder.ClientOrDie(initial.ClientName), core.Services(), provider.QuietNodes(core.Nodes()),
				config.ComponentConfig.KubeCloudShared.ClusterName, utilfeature.DefaultFeatureGate)
			if err != nil {
				return nil, false, fmt.Errorf("starting the controller of Services: %w", err)
			}
			go keeper.Run(ctx, int(config.ComponentConfig.ServiceController.ConcurrentServiceSyncs), running.ControllerManagerMetrics)
			return nil, true, nil
		}
	}
	all[names.ServiceLBController] = services
	nodes := all[names.CloudNodeController]
	nodes.Constructor = func(initial framework.ControllerInitContext, config *frameworkconfig.CompletedConfig, cloud cloudprovider.Interface) framework.InitFunc {
		return func(ctx context.Context, running genericcontrollermanager.ControllerContext) (controller.Interface, bool, error) {
			waking := provider.WakingNodes(config.SharedInformers.Core().V1().Nodes(), cloud)
			settings := config.ComponentConfig
			keeper, err := nodecontroller.NewCloudNodeController(waking, config.ClientBuilder.ClientOrDie(initial.ClientName), cloud,
				settings.NodeStatusUpdateFrequency.Duration, settings.NodeController.ConcurrentNodeSyncs,
				settings.NodeController.ConcurrentNodeStatusUpdates)
			if err != nil {
				return nil, false, fmt.Errorf("starting the controller of Nodes: %w", err)
			}
			go keeper.RunWithContext(ctx, running.ControllerManagerMetrics)
			return nil, true, nil
		}
	}
	all[names.CloudNodeController] = nodes
	return all
}
