package bridge

import (
	"context"
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

// A vendor's flags work together with ours, whichever flag package it uses.
func TestVendorsFlagsKeepWorking(t *testing.T) {
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	set.SetOutput(io.Discard)
	vendorsConfig := set.String("cloud-config", "", "the vendor's own")
	vendor := pflag.NewFlagSet("vendor", pflag.ContinueOnError)
	region := vendor.StringSlice("regions", nil, "")
	dry := vendor.BoolP("dry-run", "d", false, "")
	ours := bindFlags(set, vendor)
	err := set.Parse([]string{
		"--cloud-config=/etc/cloud", "--regions=a,b", "--dry-run", "-v=4", "--allow-untagged-cloud",
		"--provider-id-prefixes=a://, b://", "--backend-node-labels=", "--node-annotations=x.example/",
		"--initialize-at-start", "--backend-node-state", "--concurrency=1",
	})
	if err != nil {
		t.Fatal(err)
	}
	if ours.cloudConfig != "/etc/cloud" || *vendorsConfig != "/etc/cloud" || len(*region) != 2 || !*dry || !vendor.Changed("dry-run") {
		t.Error(ours, *vendorsConfig, *region, *dry)
	}
	if told, err := ours.options(); err != nil || len(told) != 8 || !*ours.initializeAtStart {
		t.Error(told, err)
	}
	for _, wrong := range []string{"0", "-1", "many"} {
		if err := set.Parse([]string{"--concurrency=" + wrong}); err == nil || !strings.Contains(err.Error(), "concurrency") {
			t.Error(wrong, err)
		}
	}
	set.VisitAll(func(one *flag.Flag) { _ = one.DefValue })
	set.PrintDefaults()
}

// The flag of every sidecar wins: its meaning is the operator's.
func TestAVendorsFlagMayHaveTheNameOfASidecars(t *testing.T) {
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	vendor := pflag.NewFlagSet("vendor", pflag.ContinueOnError)
	level := vendor.Int("log-level", 2, "")
	bindFlags(set, vendor)
	sdk.BindFlags(set)
	if err := set.Parse([]string{"--log-level=debug"}); err != nil || *level != 2 || set.Lookup("log-level").Value.String() != "debug" {
		t.Error(err, *level, set.Lookup("log-level").Value)
	}
}

func TestTheClassesOfTheCommandLineAreAdvertised(t *testing.T) {
	parsed := func(args ...string) ([]Option, error) {
		set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
		ours := bindFlags(set, pflag.NewFlagSet("vendor", pflag.ContinueOnError))
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		return ours.options()
	}
	options, err := parsed("--load-balancer-classes=a.example/lb, b.example/lb", "--no-default-load-balancer-class")
	if err != nil {
		t.Fatal(err)
	}
	b := &bridge{cloud: &fake.Cloud{}}
	for _, option := range options {
		option(b)
	}
	answer := b.advertised()
	if !slices.Equal(answer.GetLoadBalancerClasses(), []string{"a.example/lb", "b.example/lb"}) || !answer.GetNoDefaultLoadBalancerClass() {
		t.Error(answer)
	}
	if _, err := parsed("--no-default-load-balancer-class"); err == nil || !strings.Contains(err.Error(), "--load-balancer-classes") {
		t.Error(err)
	}
}

func parsedOptions(t *testing.T, args ...string) []Option {
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	ours := bindFlags(set, pflag.NewFlagSet("vendor", pflag.ContinueOnError))
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	options, err := ours.options()
	if err != nil {
		t.Fatal(err)
	}
	return options
}

// A main that changes a limit leaves what the flags say.
func TestCapabilitiesOfAMainKeepWhatFlagsSay(t *testing.T) {
	stop := make(chan struct{})
	defer close(stop)
	var made *bridge
	limit := WithCapabilities(func(answer *pb.GetCapabilitiesResponse) { answer.Limits.MaxBatchRoutes = 7 })
	options := append([]Option{limit, func(b *bridge) { made = b }}, parsedOptions(t,
		"--load-balancer-classes=a.example/lb", "--no-default-load-balancer-class", "--backend-node-labels=pool", "--backend-node-state",
		"--node-annotations=x.example/", "--route-node-addresses", "--concurrency=7", "--allow-untagged-cloud")...)
	build := func(context.Context, io.Reader, cloudprovider.ControllerClientBuilder, informers.SharedInformerFactory) (cloudprovider.Interface, error) {
		return &fake.Cloud{Provider: "fake"}, nil
	}
	if _, err := bridged(t.Context(), nil, build, stop, options); err != nil {
		t.Fatal(err)
	}
	answer := made.advertised()
	backend := answer.GetWants().GetBackend()
	if answer.GetLimits().GetMaxBatchRoutes() != 7 || answer.GetLimits().GetMaxConcurrentMutations() != 9 ||
		!slices.Equal(answer.GetLoadBalancerClasses(), []string{"a.example/lb"}) || !answer.GetNoDefaultLoadBalancerClass() ||
		!slices.Equal(backend.GetLabels(), []string{"pool"}) || !backend.GetUnschedulable() || !slices.Equal(backend.GetAnnotations(), []string{"x.example/"}) ||
		!slices.Contains(answer.GetCapabilities(), pb.Capability_CAPABILITY_ROUTE_NODE_ADDRESSES) {
		t.Error(answer)
	}
}

// partial is a cloud of instances alone.
type partial struct{ *fake.Cloud }

func (partial) Routes() (cloudprovider.Routes, bool) { return nil, false }

func TestAFlagAboutAPartThatTheProviderLacksIsNamed(t *testing.T) {
	serve := func(options ...Option) error {
		_, err := New(partial{&fake.Cloud{Provider: "fake", EnableInstancesV2: true, DisableLoadBalancers: true}}, append(options, WithAllowUntaggedCloud())...)
		return err
	}
	for _, one := range []string{"--load-balancer-classes=x", "--ensure-after-restart", "--route-node-addresses"} {
		name, _, _ := strings.Cut(one, "=")
		if err := serve(parsedOptions(t, one)...); err == nil || !strings.HasPrefix(err.Error(), name+" is about ") || !strings.Contains(err.Error(), "leave the flag out") {
			t.Errorf("%s: %v", one, err)
		}
	}
	if err := serve(WithLoadBalancerClasses("x")); err == nil || !strings.Contains(err.Error(), "WithLoadBalancerClasses") {
		t.Error(err)
	}
	// What a main says of a part holds where the configuration gives it.
	tuned := parsedOptions(t, "--ensure-after-restart=false", "--load-balancer-classes=", "--backend-node-labels=pool", "--backend-node-state", "--concurrency=2")
	for _, more := range [][]Option{{WithRouteNodeAddresses(), WithConcurrency(1)}, tuned} {
		if err := serve(more...); err != nil {
			t.Error(err)
		}
	}
}

func TestRoutesWithAddressesNeedNoMainOfTheirOwn(t *testing.T) {
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	ours := bindFlags(set, pflag.NewFlagSet("vendor", pflag.ContinueOnError))
	if err := set.Parse([]string{"--route-node-addresses"}); err != nil {
		t.Fatal(err)
	}
	options, err := ours.options()
	b := &bridge{cloud: &fake.Cloud{}}
	for _, option := range options {
		option(b)
	}
	if err != nil || !b.nodeAddresses {
		t.Error(err, b.nodeAddresses)
	}
}

func TestAKubeconfigThatCannotBeReadIsNamed(t *testing.T) {
	if _, err := (&flags{kubeconfig: "/does/not/exist"}).options(); err == nil {
		t.Error("no error")
	}
}
