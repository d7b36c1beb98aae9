// aws-emulator runs the AWS emulator for manual use and for tests in other languages: it starts the emulator, creates a cluster's
// network, and writes the provider's cloud config to the file given as its argument. Then it executes one command per line of stdin,
// answers each with one line of JSON, and exits when stdin ends. The first line of its output has an address to which commands can
// be posted, too.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"

	"cloudprovider.ccm/bridged-aws/emulator"
)

const usage = "launch ZONE [COUNT [NAME [TYPE]]], named NAME, shapes, stop ID, start ID, terminate ID, check ID, hide ID, show ID, instance ID, balancers, inspect NAME, legacy NAME SERVICE [classic], unmake NAME, left, routes, security-group NAME, address, let-in ID, put-in ID ID[,ID...], serving active|provisioning|failed, calls, " +
	"callers, run-on ID, rules [JSON], or door STATE"

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
	var turn sync.Mutex
	command := func(ctx context.Context, line string, answers io.Writer) error {
		turn.Lock()
		defer turn.Unlock()
		answer, err := obey(ctx, cloud, door, network, strings.Fields(line))
		if err != nil {
			answer = map[string]string{"error": err.Error()}
		}
		return json.NewEncoder(answers).Encode(answer)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go http.Serve(listener, http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if line, err := io.ReadAll(request.Body); err == nil {
			command(request.Context(), string(line), answer)
		}
	}))
	err = json.NewEncoder(os.Stdout).Encode(map[string]any{
		"environment": emulator.Environment, "network": network, "zones": emulator.Zones, "commands": "http://" + listener.Addr().String(),
		"url": door.URL,
	})
	lines := bufio.NewScanner(os.Stdin)
	for err == nil && lines.Scan() {
		err = command(ctx, lines.Text(), os.Stdout)
	}
	return errors.Join(err, lines.Err())
}

func obey(ctx context.Context, cloud *emulator.Cloud, door *emulator.Door, network emulator.Network, words []string) (any, error) {
	words = append(words, "", "", "", "")
	switch what, of := words[0], words[1]; what {
	case "launch":
		return launch(ctx, cloud, network, of, words[2], words[3], words[4])
	case "named":
		return cloud.Named(ctx, of)
	case "shapes":
		return cloud.Shapes(ctx, network)
	case "hide":
		return struct{}{}, cloud.Hide(ctx, of)
	case "show":
		return struct{}{}, cloud.Show(ctx, of)
	case "calls":
		return door.Calls(), nil
	case "callers":
		return door.Callers(), nil
	case "run-on":
		door.RunOn(of)
		return struct{}{}, nil
	case "rules":
		var rules []emulator.Rule
		if err := json.Unmarshal([]byte("["+strings.Join(words[1:], " ")+"]"), &rules); err != nil {
			return nil, err
		}
		door.SetRules(rules)
		return struct{}{}, nil
	case "stop":
		return struct{}{}, cloud.Stop(ctx, of)
	case "start":
		return struct{}{}, cloud.Start(ctx, of)
	case "terminate":
		return struct{}{}, cloud.Terminate(ctx, of)
	case "check":
		return struct{}{}, cloud.Check(ctx, of)
	case "instance":
		return cloud.Instance(ctx, of)
	case "balancers":
		return emulator.Settled(func() (any, error) { return cloud.Balancers(ctx) })
	case "inspect":
		return emulator.Settled(func() (any, error) { return cloud.Inspect(ctx, of) })
	case "legacy":
		return struct{}{}, cloud.MakeLegacy(ctx, network, of, words[2], words[3] == "classic")
	case "unmake":
		return struct{}{}, cloud.Unmake(ctx, of)
	case "left":
		return emulator.Settled(func() (any, error) { return cloud.Left(ctx, network) })
	case "security-group":
		return cloud.MakeGroup(ctx, network, of)
	case "put-in":
		return struct{}{}, cloud.PutIn(ctx, of, words[2])
	case "serving":
		door.Balancers(of)
		return struct{}{}, nil
	case "address":
		return cloud.MakeAddress(ctx)
	case "let-in":
		return struct{}{}, cloud.LetIn(ctx, network, of)
	case "routes":
		return cloud.Routes(ctx, network)
	case "door":
		return struct{}{}, door.Set(of)
	default:
		return nil, fmt.Errorf("unknown command %q; use %s", what, usage)
	}
}

// launch returns one instance if no count is given.
func launch(ctx context.Context, cloud *emulator.Cloud, network emulator.Network, zone, count, name, kind string) (any, error) {
	number := int64(1)
	var err error
	if count != "" {
		number, err = strconv.ParseInt(count, 10, 32)
	}
	if err != nil {
		return nil, fmt.Errorf("%q is not a count of instances", count)
	}
	launched, err := cloud.Launch(ctx, network, zone, int32(number), name, kind)
	if err != nil || count != "" {
		return launched, err
	}
	return launched[0], nil
}
