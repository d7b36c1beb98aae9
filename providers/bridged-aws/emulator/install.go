package emulator

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

//go:embed requirements.txt
var requirements []byte

// Install returns the directory that contains moto and its dependencies. The first time, pip downloads them; nothing else here
// contacts anything but the loopback address.
func Install(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	cache = filepath.Join(cache, "ccm-host", "moto")
	python, err := exec.CommandContext(ctx, "python3", "--version").Output()
	if err != nil {
		return "", fmt.Errorf("the emulator of AWS needs python3 with pip on the PATH: %w", err)
	}
	complete := filepath.Join(cache, fmt.Sprintf("%x", sha256.Sum256(append(python, requirements...)))[:16])
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	leave, err := lock(complete + ".lock")
	if err != nil {
		return "", err
	}
	defer leave()
	if _, err := os.Stat(complete); !errors.Is(err, os.ErrNotExist) {
		return complete, err
	}
	return complete, fill(ctx, complete)
}

// fill lets pip work in a temporary directory and then renames it, so that complete is never half installed.
func fill(ctx context.Context, complete string) error {
	unfinished := complete + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	list := filepath.Join(unfinished, "requirements.txt")
	if err := os.WriteFile(list, requirements, 0o644); err != nil {
		return err
	}
	// The list includes all dependencies, and the hash of each file. --target leaves the system's Python alone, without a virtual
	// environment.
	pip := exec.CommandContext(ctx, "python3", "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"--root-user-action=ignore", "--require-hashes", "--no-deps", "--target", unfinished, "--requirement", list)
	if said, err := pip.CombinedOutput(); err != nil {
		return fmt.Errorf("pip cannot install the emulator of AWS: %w\n%s", err, said)
	}
	return os.Rename(unfinished, complete)
}

// lock waits until no other process is installing.
func lock(path string) (leave func(), err error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
		file.Close()
		return nil, fmt.Errorf("cannot lock %s: %w", path, err)
	}
	return func() { file.Close() }, nil
}
