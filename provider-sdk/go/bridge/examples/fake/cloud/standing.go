package cloud

import (
	"encoding/json"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
)

// standing is a balancer's state in the cloud, as the conformance suite reads it.
type standing struct {
	Ports        []standingPort `json:"ports"`
	Families     []v1.IPFamily  `json:"families"`
	SourceRanges []string       `json:"source_ranges"`
	Targets      []string       `json:"targets"`
	HealthCheck  *healthCheck   `json:"health_check,omitempty"`
	// Address is the one that the Service asks for, if any.
	Address          string `json:"address,omitempty"`
	ClientIPAffinity bool   `json:"client_ip_affinity,omitempty"`
}

type standingPort struct {
	Protocol v1.Protocol `json:"protocol"`
	Port     int32       `json:"port"`
	// NodePort is 0 where none was allocated: this cloud reaches pods without, too.
	NodePort int32 `json:"node_port,omitempty"`
}

type healthCheck struct {
	Port int32 `json:"port"`
}

func asked(service *v1.Service) *standing {
	made := &standing{Ports: []standingPort{}, Families: service.Spec.IPFamilies, SourceRanges: service.Spec.LoadBalancerSourceRanges}
	if len(made.Families) == 0 {
		made.Families = []v1.IPFamily{v1.IPv4Protocol}
	}
	if made.SourceRanges == nil {
		made.SourceRanges = []string{}
	}
	made.Address = service.Spec.LoadBalancerIP
	made.ClientIPAffinity = service.Spec.SessionAffinity == v1.ServiceAffinityClientIP
	for _, port := range service.Spec.Ports {
		made.Ports = append(made.Ports, standingPort{port.Protocol, port.Port, port.NodePort})
	}
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal {
		made.HealthCheck = &healthCheck{service.Spec.HealthCheckNodePort}
	}
	return made
}

// attach puts exactly these nodes behind a balancer; a node without a machine gets nothing.
func (c *Cloud) attach(made *standing, nodes []*v1.Node) error {
	// One look for all nodes: benchmarks are to measure what calls the cloud, not the cloud.
	machines, err := os.ReadDir(filepath.Join(c.folder, "machines"))
	if err != nil {
		return err
	}
	there := map[string]bool{}
	for _, machine := range machines {
		there[machine.Name()] = true
	}
	made.Targets = []string{}
	for _, node := range nodes {
		if name := machineOf(node); there[name] {
			made.Targets = append(made.Targets, prefix+name)
		}
	}
	return nil
}

// standingAt returns the path of a balancer's state, next to the file that names its Service.
func (c *Cloud) standingAt(balancer string) string {
	return filepath.Join(c.folder, "standing", filepath.Base(balancer))
}

// stands reads a balancer's state, which a former controller's balancer lacks.
func (c *Cloud) stands(balancer string) (*standing, error) {
	made := &standing{}
	text, err := os.ReadFile(c.standingAt(balancer))
	if err != nil {
		return nil, err
	}
	return made, json.Unmarshal(text, made)
}

func (c *Cloud) build(balancer string, made *standing) error {
	text, err := json.Marshal(made)
	if err != nil {
		return err
	}
	path := c.standingAt(balancer)
	if err := os.WriteFile(path+"~", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+"~", path)
}
