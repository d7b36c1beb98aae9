// aws-emulator runs the AWS emulator for manual use and for tests in other languages: it starts the emulator, creates a cluster's
// network, and writes the provider's cloud config to the file given as its argument. Then it executes one command per line of stdin,
// answers each with one line of JSON, and exits when stdin ends.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"cloudprovider.ccm/bridged-aws/emulator"
)

const usage = "launch ZONE, stop ID, start ID, terminate ID, instance ID, balancers, routes, or door STATE"

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, arguments []string) error {
	if len(arguments) != 1 {
		return fmt.Errorf("got %d arguments, want one, the file for the cloud config: aws-emulator FILE; then type %s", len(arguments), usage)
	}
	moto, err := emulator.Start(ctx, os.Stderr)
	if err != nil {
		return err
	}
	defer moto.Stop()
	door, err := emulator.NewDoor(moto.URL)
	if err != nil {
		return err
	}
	defer door.Close()
	cloud := emulator.At(moto.URL)
	network, err := cloud.MakeNetwork(ctx)
	if err != nil {
		return err
	}
	if err := os.WriteFile(arguments[0], []byte(network.Config(door.URL)), 0o600); err != nil {
		return err
	}
	answers := json.NewEncoder(os.Stdout)
	if err := answers.Encode(map[string]any{"environment": emulator.Environment, "network": network, "zones": emulator.Zones}); err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := obey(ctx, cloud, door, network, strings.Fields(lines.Text()))
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		if err := answers.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func obey(ctx context.Context, cloud *emulator.Cloud, door *emulator.Door, network emulator.Network, words []string) (any, error) {
	words = append(words, "", "")
	switch what, of := words[0], words[1]; what {
	case "launch":
		return cloud.Launch(ctx, network, of)
	case "stop":
		return struct{}{}, cloud.Stop(ctx, of)
	case "start":
		return struct{}{}, cloud.Start(ctx, of)
	case "terminate":
		return struct{}{}, cloud.Terminate(ctx, of)
	case "instance":
		return cloud.Instance(ctx, of)
	case "balancers":
		return cloud.Balancers(ctx)
	case "routes":
		return cloud.Routes(ctx, network)
	case "door":
		return struct{}{}, door.Set(of)
	default:
		return nil, fmt.Errorf("unknown command %q; use %s", what, usage)
	}
}
