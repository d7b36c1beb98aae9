package bridge

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"

	"cloudprovider.ccm/sdk"
	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// Main is the complete main function of a bridged provider that has registered itself under a name
// (cloudprovider.RegisterCloudProvider), like the in-tree providers. It adds --cloud-config, --allow-untagged-cloud,
// --kubeconfig and klog's -v and --vmodule to the flags of every sidecar. The vendor's flags on
// flag.CommandLine or pflag.CommandLine keep working, except for those on pflag.CommandLine whose name a flag of every sidecar has
// (--log-level): they keep their default.
func Main(name string, options ...Option) {
	MainWith(func(_ context.Context, config io.Reader, _ cloudprovider.ControllerClientBuilder, _ informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		cloud, err := cloudprovider.GetCloudProvider(name, config)
		if cloud == nil && err == nil {
			return nil, fmt.Errorf("no cloud provider has registered itself as %q: import its package", name)
		}
		return cloud, err
	}, options...)
}

// MainWith is Main for a provider that build creates: one that is not registered, or whose constructor needs clients or
// informers.
func MainWith(build Build, options ...Option) {
	flags := bindFlags(flag.CommandLine, pflag.CommandLine)
	sdk.Main(func(ctx context.Context) (*sdk.Provider, error) {
		logFromKlog(slog.Default())
		told, err := flags.options()
		if err != nil {
			return nil, err
		}
		var config io.Reader
		if flags.cloudConfig != "" {
			file, err := os.Open(flags.cloudConfig)
			if err != nil {
				return nil, fmt.Errorf("--cloud-config: %w", err)
			}
			defer file.Close()
			config = file
		}
		return NewWith(ctx, config, build, slices.Concat(options, told)...)
	})
}

// logFromKlog sends the provider's klog output to the SDK's logger, through the scrubber. klog itself filters it, by -v and --vmodule, for
// contextual loggers, too, since this one is none.
func logFromKlog(to *slog.Logger) {
	klog.SetLoggerWithOptions(logr.FromSlogHandler(verbose{to.Handler()}))
}

// verbose handles whatever is more verbose than an info as one.
type verbose struct{ slog.Handler }

func (v verbose) Enabled(ctx context.Context, level slog.Level) bool {
	return v.Handler.Enabled(ctx, max(level, slog.LevelInfo))
}

func (v verbose) WithAttrs(attrs []slog.Attr) slog.Handler {
	return verbose{v.Handler.WithAttrs(attrs)}
}

func (v verbose) WithGroup(name string) slog.Handler { return verbose{v.Handler.WithGroup(name)} }
