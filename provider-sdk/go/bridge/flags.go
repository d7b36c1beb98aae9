package bridge

import (
	"errors"
	"flag"
	"fmt"
	"strconv"
	"strings"

	"cloudprovider.ccm/sdk"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"
)

// flags are the flags of a bridged provider, in addition to those of every sidecar.
type flags struct {
	cloudConfig   string
	allowUntagged bool
	kubeconfig    string
	// Both are 0 unless the flag is set: then the option in the sidecar's main applies.
	concurrency, readers int
	prefixes             list
	// backendLabels is nil unless the flag is set, likewise.
	backendLabels, nodeAnnotations list
	backendState                   bool
	classes                        list
	onlyClasses, routeAddresses    bool
	// Both are nil unless the flag is set, likewise.
	initializeAtStart, ensureAfterRestart *bool
	// vendors tells the vendor's flags that are set.
	vendors func() string
}

// list is a flag of comma-separated values.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(text string) error {
	*l = list{}
	for one := range strings.SplitSeq(text, ",") {
		if one = strings.TrimSpace(one); one != "" {
			*l = append(*l, one)
		}
	}
	return nil
}

// given notes the value of a flag that is set.
func given(into **bool) func(string) error {
	return func(text string) error {
		value, err := strconv.ParseBool(text)
		*into = &value
		return err
	}
}

// bindFlags adds the bridge's, the vendor's and klog's flags to a set, and leaves those of every sidecar to sdk.BindFlags.
func bindFlags(set *flag.FlagSet, vendor *pflag.FlagSet) *flags {
	out := &flags{}
	theirs := map[string]bool{}
	set.VisitAll(func(one *flag.Flag) { theirs[one.Name] = true })
	sidecars := flag.NewFlagSet("sidecar", flag.ContinueOnError)
	sdk.BindFlags(sidecars)
	vendor.VisitAll(func(one *pflag.Flag) { theirs[one.Name] = sidecars.Lookup(one.Name) == nil })
	out.vendors = func() (text string) {
		set.Visit(func(one *flag.Flag) {
			if theirs[one.Name] {
				text += fmt.Sprintf("--%s=%s\n", one.Name, one.Value)
			}
		})
		return text
	}
	vendor.VisitAll(func(one *pflag.Flag) {
		if theirs[one.Name] && set.Lookup(one.Name) == nil {
			set.Var(vendorFlag{one}, one.Name, one.Usage)
		}
	})
	logs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(logs)
	for _, name := range []string{"v", "vmodule"} {
		if one := logs.Lookup(name); set.Lookup(name) == nil {
			set.Var(one.Value, name, one.Usage)
		}
	}
	own := flag.NewFlagSet("bridge", flag.ContinueOnError)
	own.StringVar(&out.cloudConfig, "cloud-config", "", "`file` with the configuration of the cloud provider")
	own.BoolVar(&out.allowUntagged, "allow-untagged-cloud", false, "serve a cloud provider that has no cluster ID")
	own.StringVar(&out.kubeconfig, "kubeconfig", "", "give the cloud provider clients of the Kubernetes API in this `file`, or of "+
		"the pod's service account (\"in-cluster\"); without it, it sees only the nodes and Services that the host names")
	number := func(into *int) func(string) error {
		return func(text string) (err error) {
			if *into, err = strconv.Atoi(text); err == nil && *into < 1 {
				err = errors.New("want a number from 1")
			}
			return err
		}
	}
	own.Func("concurrency", fmt.Sprintf("`N`: how many load balancers the cloud provider makes or changes at once, and how many get other nodes "+
		"beside these (default %d, and 1 for %s); 1 for one whose calls for different Services share objects without a lock",
		defaultConcurrency, with(func(one habit) bool { return one.changes == 1 })), number(&out.concurrency))
	own.Func("concurrent-reads", fmt.Sprintf("`N`: how many reads of the cloud provider run at once, over all calls (default %d, and 1 for %s)", concurrent,
		with(func(one habit) bool { return one.reads == 1 })), number(&out.readers))
	own.Var(&out.prefixes, "provider-id-prefixes", "`PREFIX,...`: the prefixes of provider IDs, if not NAME://")
	own.Var(&out.backendLabels, "backend-node-labels", "`KEY,...`: node labels whose changes update the balancers of the node; a key "+
		"that ends in \"/\" or \"*\" is a prefix (default "+strings.Join(backendLabels, ",")+")")
	own.BoolVar(&out.backendState, "backend-node-state", false, "update each balancer when one of its nodes is cordoned, tainted, or changes its "+
		"condition Ready: for a cloud provider that selects nodes by these")
	own.Var(&out.nodeAnnotations, "node-annotations", "`KEY,...`: node annotations that the cloud provider reads; a key that ends in \"/\" or "+
		"\"*\" is a prefix")
	own.Var(&out.classes, "load-balancer-classes", "`CLASS,...`: the values of spec.loadBalancerClass that the cloud provider serves")
	own.BoolVar(&out.onlyClasses, "no-default-load-balancer-class", false, "leave Services without a class to another provider")
	own.BoolVar(&out.routeAddresses, "route-node-addresses", false, "ensure a node's routes again when its addresses change: for a cloud provider that "+
		"sets EnableNodeAddresses on the routes that it lists")
	own.BoolFunc("initialize-at-start", "initialize the cloud provider at once, not when somebody first leads: for shadow mode, and for "+
		"providers whose Initialize starts nothing that writes to the cloud", given(&out.initializeAtStart))
	own.BoolFunc("ensure-after-restart", "have all load balancers ensured once after a restart: for a cloud provider that keeps in memory what only "+
		"that brings back (default for "+with(func(one habit) bool { return one.forgets })+")", given(&out.ensureAfterRestart))
	own.VisitAll(func(ours *flag.Flag) {
		// A vendor's flag of the same name is set as well.
		if theirs := set.Lookup(ours.Name); theirs != nil {
			theirs.Value = both{ours.Value, theirs.Value}
			return
		}
		set.Var(ours.Value, ours.Name, ours.Usage)
	})
	return out
}

func (f *flags) options() (told []Option, err error) {
	told = append(told, func(b *bridge) { b.vendorFlags, b.needs = f.vendors(), f.needs() })
	if f.allowUntagged {
		told = append(told, WithAllowUntaggedCloud())
	}
	if f.kubeconfig != "" {
		config, err := kubernetesConfig(f.kubeconfig)
		if err != nil {
			return nil, err
		}
		told = append(told, WithKubernetes(config))
	}
	if len(f.prefixes) > 0 {
		told = append(told, WithProviderIDPrefixes(f.prefixes...))
	}
	if f.backendLabels != nil {
		told = append(told, WithBackendNodeLabels(f.backendLabels...))
	}
	if f.backendState {
		told = append(told, WithBackendNodeState())
	}
	if f.nodeAnnotations != nil {
		told = append(told, WithNodeAnnotations(f.nodeAnnotations...))
	}
	if f.classes != nil {
		told = append(told, WithLoadBalancerClasses(f.classes...))
	}
	if f.onlyClasses {
		if len(f.classes) == 0 {
			return nil, errors.New("--no-default-load-balancer-class leaves no Service to this provider: name its classes with --load-balancer-classes")
		}
		told = append(told, WithoutDefaultLoadBalancerClass())
	}
	if f.concurrency > 0 {
		told = append(told, WithConcurrency(f.concurrency))
	}
	if f.readers > 0 {
		told = append(told, WithConcurrentReads(f.readers))
	}
	if f.routeAddresses {
		told = append(told, WithRouteNodeAddresses())
	}
	if f.initializeAtStart != nil {
		told = append(told, WithInitializeAtStart(*f.initializeAtStart))
	}
	if f.ensureAfterRestart != nil {
		told = append(told, WithEnsureAfterRestart(*f.ensureAfterRestart))
	}
	return told, nil
}

// needs are the flags that are set and promise something of a part which not every provider has. Those that only tune a part do no harm
// where a vendor's configuration switches it off.
func (f *flags) needs() (set []need) {
	balancers := func(has parts) bool { return has.balancers != nil }
	for _, one := range []struct {
		set bool
		need
	}{
		{len(f.classes) > 0, need{"load-balancer-classes", "load balancers", balancers}},
		{f.ensureAfterRestart != nil && *f.ensureAfterRestart, need{"ensure-after-restart", "load balancers", balancers}},
		{f.routeAddresses, need{"route-node-addresses", "routes", func(has parts) bool { return has.routes != nil }}},
	} {
		if one.set {
			set = append(set, one.need)
		}
	}
	return set
}

// vendorFlag adapts a vendor's pflag to the flag package.
type vendorFlag struct{ *pflag.Flag }

func (f vendorFlag) String() string {
	if f.Flag == nil {
		return "" // The flag package formats a zero value to find the default.
	}
	return f.Value.String()
}

func (f vendorFlag) Set(text string) error {
	f.Changed = true
	return f.Value.Set(text)
}

// IsBoolFlag reports that the flag needs no value.
func (f vendorFlag) IsBoolFlag() bool { return f.NoOptDefVal == "true" }

// both sets two flags of the same name.
type both struct{ ours, theirs flag.Value }

func (b both) String() string {
	if b.ours == nil {
		return ""
	}
	return b.ours.String()
}

func (b both) Set(text string) error {
	if err := b.theirs.Set(text); err != nil {
		return err
	}
	return b.ours.Set(text)
}

// IsBoolFlag reports whether our flag needs no value.
func (b both) IsBoolFlag() bool {
	ours, is := b.ours.(interface{ IsBoolFlag() bool })
	return is && ours.IsBoolFlag()
}
