package sdk

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
)

// Main is the complete main function of a sidecar: it reads the flags (those of BindFlags and the program's own on
// flag.CommandLine), sets up logs on stderr with secrets redacted, creates the provider, and serves it until SIGTERM or
// SIGINT.
func Main(build func(context.Context) (*Provider, error)) {
	flags := BindFlags(flag.CommandLine)
	flag.Parse()
	if err := flags.serve(build); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func (f *Flags) serve(build func(context.Context) (*Provider, error)) error {
	log, err := f.Logger(os.Stderr)
	if err != nil {
		return err
	}
	slog.SetDefault(log)
	option, err := f.Option()
	if err != nil {
		return err
	}
	ctx := context.Background()
	provider, err := build(ctx)
	if err != nil {
		return err
	}
	return Serve(ctx, provider, option)
}
