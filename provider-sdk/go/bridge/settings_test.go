package bridge

import (
	"context"
	"flag"
	"io"
	"strings"
	"testing"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"github.com/spf13/pflag"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/fake"
)

// Upstream ensures every load balancer whenever it starts; the host does when these change.
func TestSettingsChangeWithTheConfigurationAndTheVendorsFlags(t *testing.T) {
	var name string
	advertised := func(config string, option Option, args ...string) string {
		vendor := pflag.NewFlagSet("vendor", pflag.ContinueOnError)
		vendor.String("region", "", "")
		set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
		ours := bindFlags(set, vendor)
		if err := set.Parse(args); err != nil {
			t.Fatal(err)
		}
		options, err := ours.options()
		if err != nil {
			t.Fatal(err)
		}
		read := ""
		build := func(_ context.Context, config io.Reader, _ cloudprovider.ControllerClientBuilder, _ informers.SharedInformerFactory) (cloudprovider.Interface, error) {
			text, err := io.ReadAll(config)
			read = string(text)
			return &fake.Cloud{Provider: name}, err
		}
		stop := make(chan struct{})
		defer close(stop)
		var b *bridge
		options = append(options, option, WithAllowUntaggedCloud(), func(made *bridge) { b = made })
		if _, err := bridged(t.Context(), strings.NewReader(config), build, stop, options); err != nil || read != config {
			t.Fatal(read, err)
		}
		return b.advertised().GetWants().GetLoadBalancerSettings()
	}
	none := func(*bridge) {}
	before := advertised("password = a", none)
	if before == "" || len(before) > 64 {
		t.Error(before)
	}
	for name, same := range map[string]string{
		"once more": advertised("password = a", none), "a flag of the bridge": advertised("password = a", none, "--concurrency=2"),
		"other limits": advertised("password = a", WithCapabilities(func(answer *pb.GetCapabilitiesResponse) { answer.Limits = nil })),
	} {
		if same != before {
			t.Errorf("%s: %s, %s before", name, same, before)
		}
	}
	for name, other := range map[string]string{
		"configuration": advertised("password = b", none), "a vendor's flag": advertised("password = a", none, "--region=x"),
		"its own": advertised("password = a", WithCapabilities(func(answer *pb.GetCapabilitiesResponse) { answer.Wants.LoadBalancerSettings = "v1" })),
	} {
		if other == before {
			t.Errorf("%s changed nothing: %s", name, other)
		}
	}

	// Of a provider that forgets, each process says something else, also if its settings are its own.
	own := WithCapabilities(func(answer *pb.GetCapabilitiesResponse) { answer.Wants.LoadBalancerSettings = "v1" })
	if one, other := advertised("a", own, "--ensure-after-restart"), advertised("a", own, "--ensure-after-restart"); one == other || !strings.HasPrefix(one, "v1-") {
		t.Errorf("%s, and %s", one, other)
	}
	for _, row := range []struct {
		name    string
		args    []string
		forgets bool
	}{
		{"azure", nil, true},
		{"azure", []string{"--ensure-after-restart=false"}, false},
		{"aws", nil, false},
		{"aws", []string{"--ensure-after-restart"}, true},
	} {
		name = row.name
		one, other := advertised("a", none, row.args...), advertised("a", none, row.args...)
		if (one != other) != row.forgets || len(one) > 64 {
			t.Errorf("%s %v: %s, and %s", row.name, row.args, one, other)
		}
	}
}
