// Package emulator is an AWS for tests: moto, a fake of its APIs in memory, with a network to run nodes in.
//
// In: a wish for machines. Out: what the cloud has now, read through the same APIs as the provider's. It serves on the
// loopback address only; what it cannot do is named in the README.
package emulator

import (
	"bufio"
	"context"
	_ "embed"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

//go:embed serve.py
var serve string

// Emulator is a running moto.
type Emulator struct {
	// URL is where all its services answer.
	URL     string
	process *exec.Cmd
	life    io.Closer
}

// Start installs moto where that was not done yet, and starts it. It ends with Stop, or with this process, however that ends. What it
// prints goes to log.
func Start(ctx context.Context, log io.Writer) (*Emulator, error) {
	folder, err := Install(ctx)
	if err != nil {
		return nil, err
	}
	process := exec.Command("python3", "-c", serve)
	// Its images of machines are never looked at, and slow to load.
	process.Env = append(os.Environ(), "PYTHONPATH="+folder, "MOTO_EC2_LOAD_DEFAULT_AMIS=false")
	process.Stderr = log
	life, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	said, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := process.Start(); err != nil {
		return nil, fmt.Errorf("cannot start the emulator of AWS: %w", err)
	}
	address, err := bufio.NewReader(said).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the emulator of AWS ended at once: %w", process.Wait())
	}
	return &Emulator{URL: "http://" + strings.TrimSpace(address), process: process, life: life}, nil
}

// Stop ends it, and with it all that it holds.
func (e *Emulator) Stop() error {
	e.life.Close()
	late := time.AfterFunc(10*time.Second, func() { e.process.Process.Kill() })
	defer late.Stop()
	return e.process.Wait()
}
