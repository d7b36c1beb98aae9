package bridge

import (
	"context"
	"flag"
	"log/slog"

	"cloudprovider.ccm/sdk"
	"github.com/spf13/pflag"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// Main is the whole main function of a bridged provider that registered itself under a name
// (cloudprovider.RegisterCloudProvider), as the in-tree ones did. It adds --cloud-config, --allow-untagged-cloud, --kubeconfig,
// --state-dir and klog's -v and --vmodule to the flags of every sidecar. Flags that the vendor has on flag.CommandLine or
// pflag.CommandLine keep working; one that is there already is not added.
func Main(name string, options ...Option) {
	flags := bindFlags(flag.CommandLine, pflag.CommandLine)
	sdk.Main(func(context.Context) (*sdk.Provider, error) {
		// What the provider logs goes where the SDK's lines go, through the scrubber.
		klog.SetSlogLogger(slog.Default())
		cloud, err := cloudprovider.InitCloudProvider(name, flags.cloudConfig)
		if err != nil {
			return nil, err
		}
		told, err := flags.options()
		if err != nil {
			return nil, err
		}
		return New(cloud, append(options, told...)...)
	})
}
