// Package unixsocket opens a provider's Unix socket: in a directory that nobody else can enter, at a path that nobody
// else uses, with the peer of each connection as reported by the kernel, and removed at the end.
package unixsocket

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// forbidden is write access for the group, and any access for others.
	forbidden     = 0o027
	directoryMode = 0o700
	// sharedMode is that of a directory made in one that hands its group on, as a volume with Kubernetes' fsGroup does:
	// whoever has the group may call.
	sharedMode = os.ModeSetgid | 0o750
	socketMode = 0o660
	// answerWithin: a process that takes longer to accept a connection hangs but exists, so its socket is in use.
	answerWithin = 2 * time.Second
)

// Listen listens on a socket; it replaces a stale one, but not one that answers.
func Listen(path string) (*Listener, error) {
	// Locked until the socket exists: if two processes start at once, the second sees the first one's socket.
	lock, err := prepare(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	if err := removeStale(path); err != nil {
		return nil, err
	}
	socket, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	socket.SetUnlinkOnClose(false)
	file, err := os.Lstat(path)
	if err == nil {
		err = os.Chmod(path, socketMode)
	}
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &Listener{UnixListener: socket, path: path, file: file}, nil
}

// prepare creates the directory if it is missing, checks it, and locks it.
func prepare(directory string) (*os.File, error) {
	if err := create(directory); err != nil {
		return nil, fmt.Errorf("cannot create the directory of the socket: %w", err)
	}
	open, err := os.Open(directory)
	if err != nil {
		return nil, fmt.Errorf("cannot open the directory of the socket: %w", err)
	}
	if err := errors.Join(checkDirectory(open), syscall.Flock(int(open.Fd()), syscall.LOCK_EX)); err != nil {
		return nil, errors.Join(err, open.Close())
	}
	return open, nil
}

func create(directory string) error {
	if _, err := os.Stat(directory); err == nil {
		return nil
	}
	if err := os.MkdirAll(directory, directoryMode); err != nil {
		return err
	}
	made, err := os.Stat(directory)
	if err != nil || made.Mode()&os.ModeSetgid == 0 {
		return err
	}
	return os.Chmod(directory, sharedMode)
}

func checkDirectory(directory *os.File) error {
	found, err := directory.Stat()
	if err != nil {
		return err
	}
	if mode := found.Mode().Perm(); mode&forbidden != 0 {
		return fmt.Errorf("the directory %s of the socket has mode %04o; others could reach or replace the socket: "+
			"use 0700, or 0750 to share it with a group", directory.Name(), mode)
	}
	own := uint32(os.Geteuid())
	if stat, known := found.Sys().(*syscall.Stat_t); known && stat.Uid != own && stat.Uid != 0 {
		return fmt.Errorf("the directory %s of the socket belongs to uid %d; it must belong to uid %d, which serves, or to root",
			directory.Name(), stat.Uid, own)
	}
	return nil
}

// removeStale removes the file of a socket on which nothing listens.
func removeStale(path string) error {
	found, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case found.Mode().Type() != fs.ModeSocket:
		return fmt.Errorf("%s exists but is not a socket; remove it or choose another --endpoint", path)
	}
	conn, err := net.DialTimeout("unix", path, answerWithin)
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	case errors.Is(err, fs.ErrPermission):
		return err
	case err == nil:
		conn.Close()
	}
	// It answers, or is too busy to; either way somebody is there.
	return fmt.Errorf("%s is already in use: a process listens on it; stop it or choose another --endpoint", path)
}
