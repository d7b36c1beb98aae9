package sdk

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"

	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	maxName           = 63
	maxText           = 64
	leastMessageBytes = 4 << 20
	mostMessageBytes  = 64 << 20
)

var subdomain = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*$`)

// check verifies a provider before it is served: everything advertised exists and is within the contract's bounds.
func (p *Provider) check() error {
	return errors.Join(p.checkIdentity(), p.checkCapabilities(), p.checkLimits())
}

func (p *Provider) checkIdentity() error {
	switch {
	case len(p.name) > maxName || !subdomain.MatchString(p.name):
		return fmt.Errorf("the name %q is not a DNS subdomain of at most %d bytes; use lowercase letters, digits, '-' and '.'",
			p.name, maxName)
	case len(p.vendorVersion) > maxText:
		return fmt.Errorf("the vendor version has %d bytes; it may have %d", len(p.vendorVersion), maxText)
	case p.epoch == "" || len(p.epoch) > maxText:
		return fmt.Errorf("the process epoch has %d bytes; it needs 1 to %d", len(p.epoch), maxText)
	case slices.Contains(p.prefixes, ""):
		return errors.New("a provider-ID prefix is empty; write for example \"aws://\"")
	case p.instances != nil && len(p.prefixes) == 0:
		return errors.New("instances are served without a provider-ID prefix; use WithProviderIDPrefix")
	}
	return nil
}

func (p *Provider) checkCapabilities() error {
	answer := p.capabilities
	for i, capability := range answer.GetCapabilities() {
		missing, known := p.lacks(capability)
		switch {
		case !known || slices.Contains(answer.GetCapabilities()[:i], capability):
			return fmt.Errorf("capability %v is unknown, unspecified or duplicate", capability)
		case missing != "":
			return fmt.Errorf("%v is advertised but %s is missing; implement it or drop the capability", capability, missing)
		}
	}
	if len(answer.GetLoadBalancerClasses()) > 0 && p.loadBalancers == nil {
		return errors.New("load balancer classes are advertised but LoadBalancers is missing; use WithLoadBalancers")
	}
	return nil
}

// lacks returns what a capability needs but is missing, "" if nothing; and whether the capability is known at all.
func (p *Provider) lacks(capability pb.Capability) (missing string, known bool) {
	_, watches := p.instances.(InstanceWatcher)
	_, lists := p.instances.(InstanceLister)
	_, addsKeys := p.instances.(SSHKeyAdder)
	there := map[string]bool{
		"CloudProvider": true, "Lead": true,
		"Instances": p.instances != nil, "WatchInstances": watches, "ListInstances": lists, "AddSshKeyToAllInstances": addsKeys,
		"LoadBalancers": p.loadBalancers != nil, "Routes": p.routes != nil, "Volumes": p.volumes != nil, "Clusters": p.clusters != nil,
	}
	traits := traitsOf(capability)
	needed := cmp.Or(traits.GetRpc(), traits.GetService())
	if there[needed] {
		return "", true
	}
	return needed, needed != ""
}

func (p *Provider) checkLimits() error {
	bytes := p.capabilities.GetLimits().GetMaxMessageBytes()
	if bytes != 0 && (bytes < leastMessageBytes || bytes > mostMessageBytes) {
		return fmt.Errorf("limits.max_message_bytes is %d; it needs to be 4 MiB to 64 MiB, or 0 for 16 MiB", bytes)
	}
	intervals := p.capabilities.GetIntervals()
	return errors.Join(
		positive("intervals.resume_token_validity", intervals.GetResumeTokenValidity()),
		positive("intervals.bookmark_interval", intervals.GetBookmarkInterval()),
		positive("intervals.watch_max_age", intervals.GetWatchMaxAge()),
		positive("intervals.instance_sweep", intervals.GetInstanceSweep()),
	)
}

func positive(field string, value *durationpb.Duration) error {
	if value != nil && value.AsDuration() <= 0 {
		return fmt.Errorf("%s is %v; it needs to be positive, or absent for the default", field, value.AsDuration())
	}
	return nil
}
