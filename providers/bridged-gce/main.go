// bridged-gce serves the published cloud provider of Google Compute Engine, unmodified, as a sidecar.
package main

import (
	"cloudprovider.ccm/sdk/bridge"
	"k8s.io/cloud-provider-gcp/providers/gce"
)

func main() { bridge.Main(gce.ProviderName) }
