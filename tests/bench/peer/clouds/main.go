// Upstream's cloud controller manager with the other clouds of the tests: what they must leave behind the bridge, too.
package main

import (
	"cloudprovider.ccm/bench/peer/manager"
	_ "cloudprovider.ccm/bridged-gce/mocked"                   // Registers the provider "gce-mock".
	_ "cloudprovider.ccm/sdk/bridge/examples/difficult/habits" // Registers the provider "difficult".
)

func main() { manager.Run() }
