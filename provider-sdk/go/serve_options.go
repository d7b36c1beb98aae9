package sdk

import (
	"cmp"
	"os"
	"time"

	"cloudprovider.ccm/sdk/internal/mtls"
)

const (
	defaultEndpoint = "unix:///run/cloudprovider/provider.sock"
	endpointEnv     = "CLOUDPROVIDER_ENDPOINT"
	defaultGrace    = 25 * time.Second
)

// ServeOption says how a provider is served.
type ServeOption func(*serving)

// serving is how a provider is served, and the flags that every sidecar has alike.
type serving struct {
	endpoint       string
	allowedUIDs    []uint32
	tls            mtls.Files
	reflection     bool
	metricsAddress string
	grace          time.Duration
	signals        bool
}

func newServing() *serving {
	return &serving{endpoint: cmp.Or(os.Getenv(endpointEnv), defaultEndpoint), grace: defaultGrace, signals: true}
}

// WithEndpoint listens there: unix:///path/of/the/socket, or tcp://address:port together with WithTLSFiles. Otherwise the
// environment's CLOUDPROVIDER_ENDPOINT counts, and last unix:///run/cloudprovider/provider.sock.
func WithEndpoint(endpoint string) ServeOption {
	return func(s *serving) { s.endpoint = endpoint }
}

// WithAllowedPeerUIDs lets these users call over the Unix socket, instead of the own one and root.
func WithAllowedPeerUIDs(uids ...uint32) ServeOption {
	return func(s *serving) { s.allowedUIDs = uids }
}

// WithTLSFiles names the PEM files of mutual TLS; they are read again when they change.
func WithTLSFiles(certificate, key, clientCA string) ServeOption {
	return func(s *serving) { s.tls.Certificate, s.tls.Key, s.tls.ClientCA = certificate, key, clientCA }
}

// WithTLSClientNames names DNS names of which a client's certificate must carry one. Otherwise every certificate of the authorities will do.
func WithTLSClientNames(names ...string) ServeOption {
	return func(s *serving) { s.tls.ClientNames = names }
}

// WithReflection serves gRPC reflection (v1).
func WithReflection() ServeOption {
	return func(s *serving) { s.reflection = true }
}

// WithMetricsAddress serves metrics over HTTP at /metrics: a port (on the loopback address) or address:port.
func WithMetricsAddress(address string) ServeOption {
	return func(s *serving) { s.metricsAddress = address }
}

// WithShutdownGrace says how long a stop waits for running mutations; 25 s otherwise.
func WithShutdownGrace(grace time.Duration) ServeOption {
	return func(s *serving) { s.grace = grace }
}

// WithoutSignals leaves signals alone: only Provider.Stop and the context stop it. For tests, and for processes that do
// more.
func WithoutSignals() ServeOption {
	return func(s *serving) { s.signals = false }
}
