// bridged-aws serves the published cloud provider of AWS, unmodified, as a sidecar.
package main

import (
	"cloudprovider.ccm/sdk/bridge"
	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
)

// All labels of backends: a Service may choose its targets by any label (aws-load-balancer-target-node-labels).
func main() { bridge.Main(aws.ProviderName, bridge.WithBackendNodeLabels("*")) }
