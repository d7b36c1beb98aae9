package unixsocket

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestModesAndTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "p.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	directory, _ := os.Stat(filepath.Dir(path))
	socket, _ := os.Stat(path)
	if directory.Mode().Perm() != 0o700 || socket.Mode().Perm() != 0o660 {
		t.Errorf("modes are %v and %v", directory.Mode(), socket.Mode())
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !os.IsNotExist(err) {
		t.Errorf("the file stays: %v", err)
	}
}

func TestADirectoryIsSharedWithTheGroupThatIsHandedOn(t *testing.T) {
	volume := t.TempDir()
	if err := os.Chmod(volume, os.ModeSetgid|0o777); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(volume, "new", "p.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if made, _ := os.Stat(filepath.Dir(path)); made.Mode() != os.ModeDir|os.ModeSetgid|0o750 {
		t.Errorf("the mode is %v", made.Mode())
	}
}

func TestPeersAreKnown(t *testing.T) {
	path := filepath.Join(private(t), "p.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	client, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	conn, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if peer := conn.(*Conn).Peer; int(peer.Uid) != os.Getuid() || int(peer.Pid) != os.Getpid() {
		t.Errorf("the peer is %+v", peer)
	}
}

func TestWhatIsInTheWay(t *testing.T) {
	for name, row := range map[string]struct {
		want    string
		prepare func(t *testing.T, path string)
	}{
		"an open directory":  {"use 0700", func(t *testing.T, path string) { chmod(t, filepath.Dir(path), 0o755) }},
		"a writing group":    {"use 0700", func(t *testing.T, path string) { chmod(t, filepath.Dir(path), 0o770) }},
		"a group that reads": {"", func(t *testing.T, path string) { chmod(t, filepath.Dir(path), 0o750) }},
		"a file": {"is not a socket", func(t *testing.T, path string) {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}},
		"a socket that answers": {"already in use", func(t *testing.T, path string) {
			other, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { other.Close() })
		}},
		"a stale socket": {"", func(t *testing.T, path string) {
			other, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
			if err != nil {
				t.Fatal(err)
			}
			other.SetUnlinkOnClose(false)
			other.Close()
		}},
		"another's directory": {"belongs to uid", func(t *testing.T, path string) {
			if os.Geteuid() != 0 || os.Chown(filepath.Dir(path), 65534, 65534) != nil {
				t.Skip("needs root")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(private(t), "p.sock")
			row.prepare(t, path)
			listener, err := Listen(path)
			if err == nil {
				listener.Close()
			}
			if (err == nil) != (row.want == "") || (err != nil && !strings.Contains(err.Error(), row.want)) {
				t.Errorf("got %v, want %q", err, row.want)
			}
		})
	}
}

func TestAnotherSocketAtThePathStays(t *testing.T) {
	path := filepath.Join(private(t), "p.sock")
	first, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("the first removed the second's file: %v", err)
	}
}

func TestOfManyThatStartAtOnceOneServes(t *testing.T) {
	path := filepath.Join(private(t), "p.sock")
	var mu sync.Mutex
	var open []*Listener
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if listener, err := Listen(path); err == nil {
				mu.Lock()
				defer mu.Unlock()
				open = append(open, listener)
			}
		})
	}
	all.Wait()
	for _, listener := range open {
		listener.Close()
	}
	if len(open) != 1 {
		t.Errorf("%d serve", len(open))
	}
}

func private(t *testing.T) string {
	directory := t.TempDir()
	chmod(t, directory, 0o700)
	return directory
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// exhausted is a listener without free descriptors.
type exhausted struct {
	net.Listener
	accepts int
}

type noDescriptor struct{ error }

func (noDescriptor) Temporary() bool { return true }

func (e *exhausted) Accept() (net.Conn, error) {
	if e.accepts++; e.accepts > 1000 {
		return nil, net.ErrClosed
	}
	return nil, noDescriptor{syscall.EMFILE}
}

func (e *exhausted) Close() error { return nil }

// D15: a process without free descriptors waits for some.
func TestAListenerWithoutDescriptorsIsNotAskedInALoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &exhausted{}
		passed, _ := Split(inner, func(net.Conn) bool { return true })
		time.Sleep(time.Second)
		passed.Close()
		synctest.Wait()
		if inner.accepts > 25 {
			t.Errorf("asked %d times in a second", inner.accepts)
		}
	})
}
