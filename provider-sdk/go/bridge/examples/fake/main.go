// Upstream's fake cloud, served through the bridge: what a vendor writes is this file.
package main

import (
	"cloudprovider.ccm/sdk/bridge"
	_ "cloudprovider.ccm/sdk/bridge/examples/fake/cloud" // Registers itself as "fake", as vendors' packages do.
)

func main() { bridge.Main("fake") }
