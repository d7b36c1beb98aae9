// Package manager is upstream's cloud controller manager with whatever providers are registered, as vendors build theirs.
package manager

import (
	"os"

	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/options"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/workqueue"
	"k8s.io/klog/v2"
)

// Run is its main function.
func Run() {
	settings, err := options.NewCloudControllerManagerOptions()
	if err != nil {
		klog.Fatalf("no options: %v", err)
	}
	builder := app.NewBuilder()
	builder.SetOptions(settings)
	builder.RegisterDefaultControllers()
	builder.SetCloudInitializer(cloud)
	os.Exit(cli.Run(builder.BuildCommand()))
}

func cloud(completed *config.CompletedConfig) cloudprovider.Interface {
	name := completed.ComponentConfig.KubeCloudShared.CloudProvider
	cloud, err := cloudprovider.InitCloudProvider(name.Name, name.CloudConfigFile)
	if err != nil || cloud == nil {
		klog.Fatalf("no provider %q: %v", name.Name, err)
	}
	return cloud
}
