package main_test

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"

	"cloudprovider.ccm/bridged-aws/emulator"
)

// TestMain runs the tests where there is nothing but the loopback address, and lets them fail if they ask for anything else all
// the same, such as the instance metadata or a name server. Only the emulator is installed before.
func TestMain(m *testing.M) {
	if os.Getenv("LOOPBACK_ONLY") != "" {
		os.Exit(m.Run())
	}
	err := confined()
	fmt.Fprintln(os.Stderr, "the tests cannot be confined to the loopback address:", err)
	os.Exit(1)
}

// confined does the same again, confined; it only returns when that fails.
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
