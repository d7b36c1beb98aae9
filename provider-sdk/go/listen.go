package sdk

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"

	"cloudprovider.ccm/sdk/internal/unixsocket"
	"google.golang.org/grpc/credentials"
)

// door is an open endpoint: trusted peers are served, others get an error that says why.
type door struct {
	passed, rest net.Listener
	credentials  credentials.TransportCredentials
	endpoint     Endpoint
}

func (d door) close() error {
	if d.rest != nil {
		return errors.Join(d.passed.Close(), d.rest.Close())
	}
	return d.passed.Close()
}

func (s *serving) open(provider *Provider) (door, error) {
	endpoint, err := ParseEndpoint(s.endpoint)
	if err != nil {
		return door{}, err
	}
	if endpoint.network == "unix" {
		return s.openUnix(endpoint)
	}
	return s.openTCP(endpoint, provider)
}

func (s *serving) openUnix(endpoint Endpoint) (door, error) {
	if !s.tls.IsZero() {
		return door{}, fmt.Errorf("%s is a Unix socket, which has no TLS; drop the --tls flags or listen on tcp://address:port",
			endpoint.address)
	}
	listener, err := unixsocket.Listen(endpoint.address)
	if err != nil {
		return door{}, fmt.Errorf("cannot listen on %s: %w", endpoint, err)
	}
	allowed := s.allowedUIDs
	passed, rest := unixsocket.Split(listener, func(conn net.Conn) bool { return trusts(allowed, conn) })
	return door{passed, rest, unixCredentials{}, endpoint}, nil
}

func (s *serving) openTCP(endpoint Endpoint, provider *Provider) (door, error) {
	if s.tls.Certificate == "" || s.tls.Key == "" || s.tls.ClientCA == "" {
		return door{}, errors.New(
			"TCP needs mutual TLS: give --tls-cert-file, --tls-key-file and --tls-client-ca-file, or listen on unix:///path")
	}
	config, err := s.tls.Config(provider.log)
	if err != nil {
		return door{}, err
	}
	listener, err := net.Listen("tcp", endpoint.address)
	if err != nil {
		return door{}, fmt.Errorf("cannot listen on %s: %w", endpoint, err)
	}
	endpoint.address = listener.Addr().String()
	return door{listener, nil, credentials.NewTLS(config), endpoint}, nil
}

// openMetrics listens on the metrics address; nil if there is none.
func (s *serving) openMetrics() (net.Listener, error) {
	address := s.metricsAddress
	if address == "" {
		return nil, nil
	}
	if _, err := strconv.ParseUint(strings.TrimPrefix(address, ":"), 10, 16); err == nil {
		address = net.JoinHostPort("127.0.0.1", strings.TrimPrefix(address, ":"))
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics on %s; choose another --metrics-address: %w", address, err)
	}
	return listener, nil
}
