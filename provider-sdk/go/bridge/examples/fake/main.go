// Upstream's fake cloud, served through the bridge. This file is all that a vendor writes.
package main

import (
	"cloudprovider.ccm/sdk/bridge"
	_ "cloudprovider.ccm/sdk/bridge/examples/fake/cloud" // Registers itself as "fake", as vendors' packages do.
)

func main() { bridge.Main("fake") }
