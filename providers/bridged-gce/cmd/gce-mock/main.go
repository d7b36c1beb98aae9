// gce-mock is bridged-gce over the vendor's in-memory mock, which a directory controls; it calls no cloud.
package main

import (
	_ "cloudprovider.ccm/bridged-gce/mocked" // Registers the provider "gce-mock".
	"cloudprovider.ccm/sdk/bridge"
)

func main() { bridge.Main("gce-mock") }
