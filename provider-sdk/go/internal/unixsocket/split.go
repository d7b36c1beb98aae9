package unixsocket

import (
	"net"
	"sync"
	"time"
)

// pause is how long to wait for free descriptors before the next attempt to accept.
const pause = 50 * time.Millisecond

// Split accepts connections and hands them out on two sides: those whose peer passes, and the rest.
//
// Closing either side closes the socket and both sides.
func Split(listener net.Listener, pass func(net.Conn) bool) (passed, rest net.Listener) {
	shared := &splitter{inner: listener, closed: make(chan struct{})}
	left := &side{splitter: shared, conns: make(chan net.Conn)}
	right := &side{splitter: shared, conns: make(chan net.Conn)}
	go shared.run(func(conn net.Conn) *side {
		if pass(conn) {
			return left
		}
		return right
	})
	return left, right
}

type splitter struct {
	inner  net.Listener
	once   sync.Once
	closed chan struct{}
	err    error
}

type side struct {
	*splitter
	conns chan net.Conn
}

func (s *splitter) run(choose func(net.Conn) *side) {
	for {
		conn, err := s.inner.Accept()
		if temporary, is := err.(interface{ Temporary() bool }); is && temporary.Temporary() {
			select {
			case <-time.After(pause):
				continue
			case <-s.closed:
				return
			}
		}
		if err != nil {
			s.Close()
			return
		}
		select {
		case choose(conn).conns <- conn:
		case <-s.closed:
			conn.Close()
		}
	}
}

func (s *splitter) Close() error {
	s.once.Do(func() {
		s.err = s.inner.Close()
		close(s.closed)
	})
	return s.err
}

func (s *splitter) Addr() net.Addr { return s.inner.Addr() }

func (s *side) Accept() (net.Conn, error) {
	select {
	case conn := <-s.conns:
		return conn, nil
	case <-s.closed:
		return nil, net.ErrClosed
	}
}
