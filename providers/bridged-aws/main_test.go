package main_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"cloudprovider.ccm/bridged-aws/emulator"
)

// TestMain runs the tests in a network namespace that has only the loopback address, and fails if they try to reach anything else,
// such as the instance metadata service or a name server. It installs the emulator before.
func TestMain(m *testing.M) {
	if os.Getenv("LOOPBACK_ONLY") != "" {
		os.Exit(m.Run())
	}
	err := confined()
	fmt.Fprintln(os.Stderr, "cannot confine the tests to the loopback address:", err)
	os.Exit(1)
}

// confined replaces this process by a confined one; it returns only if that fails.
func confined() error {
	if _, err := emulator.Install(context.Background()); err != nil {
		return err
	}
	itself, err := os.Executable()
	if err != nil {
		return err
	}
	return syscall.Exec("./loopback-only", append([]string{"./loopback-only", itself}, os.Args[1:]...), os.Environ())
}
