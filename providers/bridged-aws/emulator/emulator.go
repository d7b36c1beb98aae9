// Package emulator runs an AWS for tests: moto, an in-memory fake of its APIs, with a network for a cluster's nodes.
//
// Tests launch, stop and terminate instances, and read the resulting state through the same APIs that the provider calls. It serves
// on the loopback address only. The README lists what it lacks.
package emulator

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Emulator is a running moto.
type Emulator struct {
	// URL is the endpoint of all its services.
	URL     string
	process *exec.Cmd
	life    io.Closer
}

// Start starts moto, after installing it if necessary. It runs until Stop or the end of this process, however that ends, and prints
// to log.
func Start(ctx context.Context, log io.Writer) (*Emulator, error) {
	folders, err := Install(ctx)
	if err != nil {
		return nil, err
	}
	process := exec.Command("python3", "-m", "emulated")
	// Nothing uses its default machine images, and they are slow to load.
	process.Env = append(os.Environ(), "PYTHONPATH="+strings.Join(folders, ":"), "MOTO_EC2_LOAD_DEFAULT_AMIS=false")
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
		return nil, fmt.Errorf("the emulator of AWS ended before it served: %w", process.Wait())
	}
	return &Emulator{URL: "http://" + strings.TrimSpace(address), process: process, life: life}, nil
}

// Stop ends moto, which drops its state.
func (e *Emulator) Stop() error {
	e.life.Close()
	late := time.AfterFunc(10*time.Second, func() { e.process.Process.Kill() })
	defer late.Stop()
	return e.process.Wait()
}
