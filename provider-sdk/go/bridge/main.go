package bridge

import (
	"context"
	"flag"

	"cloudprovider.ccm/sdk"
	cloudprovider "k8s.io/cloud-provider"
)

// Main is the whole main function of a bridged provider that registered itself under a name
// (cloudprovider.RegisterCloudProvider), as the in-tree ones did. It adds --cloud-config and --allow-untagged-cloud to the
// flags of every sidecar.
func Main(name string, options ...Option) {
	config := flag.String("cloud-config", "", "`file` with the configuration of the cloud provider")
	untagged := flag.Bool("allow-untagged-cloud", false, "serve a cloud provider that has no cluster ID")
	sdk.Main(func(context.Context) (*sdk.Provider, error) {
		cloud, err := cloudprovider.InitCloudProvider(name, *config)
		if err != nil {
			return nil, err
		}
		if *untagged {
			options = append(options, WithAllowUntaggedCloud())
		}
		return New(cloud, options...)
	})
}
