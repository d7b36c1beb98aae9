// A cloud with the habits of published providers, served through the bridge. Tests switch the habits on, one at a time.
package main

import (
	"cloudprovider.ccm/sdk"
	"cloudprovider.ccm/sdk/bridge"
	"cloudprovider.ccm/sdk/bridge/examples/difficult/habits"
)

func main() {
	bridge.MainWith(habits.Build, bridge.WithSDKOptions(sdk.WithGatherers(habits.Registry)))
}
