package unixsocket

import (
	"net"
	"os"
	"syscall"
)

// Listener accepts connections and identifies their peers.
type Listener struct {
	*net.UnixListener
	path string
	file os.FileInfo
}

// Conn is a connection whose peer is known.
type Conn struct {
	*net.UnixConn
	// Peer is the process that connected, as reported by the kernel.
	Peer syscall.Ucred
}

// Accept waits for a connection; the result is a *Conn.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return nil, err
		}
		peer, err := peerOf(conn)
		if err == nil {
			return &Conn{UnixConn: conn, Peer: *peer}, nil
		}
		// Its peer has already gone or cannot be identified, so there is nobody to answer.
		conn.Close()
	}
}

// Close closes the socket and removes its file, unless another one has replaced it.
func (l *Listener) Close() error {
	err := l.UnixListener.Close()
	if now, gone := os.Lstat(l.path); gone == nil && os.SameFile(now, l.file) {
		if removed := os.Remove(l.path); err == nil {
			err = removed
		}
	}
	return err
}

func peerOf(conn *net.UnixConn) (peer *syscall.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	failed := raw.Control(func(fd uintptr) {
		peer, err = syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED)
	})
	if failed != nil {
		return nil, failed
	}
	return peer, err
}
