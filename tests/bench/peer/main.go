// Upstream's cloud controller manager with the example cloud of the bridge in its own process: what the host is measured against.
package main

import (
	"cloudprovider.ccm/bench/peer/manager"
	_ "cloudprovider.ccm/sdk/bridge/examples/fake/cloud" // Registers the provider "fake".
)

func main() { manager.Run() }
