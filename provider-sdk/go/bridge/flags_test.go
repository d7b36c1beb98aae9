package bridge

import (
	"flag"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
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

func TestAKubeconfigThatCannotBeReadIsNamed(t *testing.T) {
	if _, err := (&flags{kubeconfig: "/does/not/exist"}).options(); err == nil {
		t.Error("no error")
	}
}

func TestRemovedFlagsSayWhatReplacesThem(t *testing.T) {
	for arg, instead := range map[string]string{
		"--state-dir=/state": "the host keeps", "--state-dir-is-complete": "the host keeps",
		"--service-annotation-writes=x.example/": "--kubeconfig=in-cluster", "--service-condition-writes=x.example/Open": "--kubeconfig=in-cluster",
	} {
		set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
		set.SetOutput(io.Discard)
		bindFlags(set, pflag.NewFlagSet("vendor", pflag.ContinueOnError))
		name, _, _ := strings.Cut(arg, "=")
		if err := set.Parse([]string{arg}); err == nil || !strings.Contains(err.Error(), instead) || !strings.Contains(err.Error(), "remove "+name) {
			t.Errorf("%s: %v", arg, err)
		}
	}
	// A vendor's flag of that name stays the vendor's.
	vendor := pflag.NewFlagSet("vendor", pflag.ContinueOnError)
	theirs := vendor.String("state-dir", "", "")
	set := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	bindFlags(set, vendor)
	if err := set.Parse([]string{"--state-dir=/state"}); err != nil || *theirs != "/state" {
		t.Error(*theirs, err)
	}
}
