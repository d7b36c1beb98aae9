package emulator

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

//go:embed requirements.txt
var requirements []byte

//go:embed emulated/*.py
var emulated embed.FS

// Install returns the directories with our Python code, and with moto and its dependencies. The first time, pip downloads them;
// nothing else here contacts anything but the loopback address.
func Install(ctx context.Context) ([]string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, err
	}
	cache = filepath.Join(cache, "ccm-host", "moto")
	python, err := exec.CommandContext(ctx, "python3", "--version").Output()
	if err != nil {
		return nil, fmt.Errorf("the emulator of AWS needs python3 with pip on the PATH: %w", err)
	}
	ours := sha256.New()
	files, err := fs.Glob(emulated, "emulated/*.py")
	for _, name := range files {
		text, unread := emulated.ReadFile(name)
		err = errors.Join(err, unread)
		fmt.Fprintf(ours, "%s %d %s", name, len(text), text)
	}
	if err != nil {
		return nil, err
	}
	source := filepath.Join(cache, fmt.Sprintf("emulated-%x", ours.Sum(nil))[:25])
	moto := filepath.Join(cache, fmt.Sprintf("%x", sha256.Sum256(append(python, requirements...)))[:16])
	return []string{source, moto}, errors.Join(
		once(source, func(folder string) error { return os.CopyFS(folder, emulated) }),
		once(moto, func(folder string) error { return download(ctx, folder) }),
	)
}

// once fills a directory, unless it is there. It renames a temporary one, so that no directory is ever half full.
func once(complete string, fill func(string) error) error {
	if err := os.MkdirAll(filepath.Dir(complete), 0o755); err != nil {
		return err
	}
	leave, err := lock(complete + ".lock")
	if err != nil {
		return err
	}
	defer leave()
	if _, err := os.Stat(complete); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	unfinished := complete + ".unfinished"
	if err := os.RemoveAll(unfinished); err != nil {
		return err
	}
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		return err
	}
	if err := fill(unfinished); err != nil {
		return err
	}
	return os.Rename(unfinished, complete)
}

func download(ctx context.Context, unfinished string) error {
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
	return nil
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
