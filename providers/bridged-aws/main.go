// bridged-aws serves the published cloud provider of AWS, unmodified, as a sidecar.
package main

import (
	"cloudprovider.ccm/sdk/bridge"
	aws "k8s.io/cloud-provider-aws/pkg/providers/v1"
)

// Asks for all labels of backends, since a Service may select its targets by any label (aws-load-balancer-target-node-labels).
func main() { bridge.Main(aws.ProviderName, bridge.WithBackendNodeLabels("*")) }
