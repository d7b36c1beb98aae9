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

// ServeOption configures how a provider is served.
type ServeOption func(*serving)

// serving is how a provider is served: the values of the flags that all sidecars share.
type serving struct {
	endpoint       string
	allowedUIDs    []uint32
	tls            mtls.Files
	reflection     bool
	metricsAddress string
	grace          time.Duration
	// lastWords is how long a mutation that was told to give up may still run.
	lastWords time.Duration
	signals   bool
}

func newServing() *serving {
	return &serving{endpoint: cmp.Or(os.Getenv(endpointEnv), defaultEndpoint), grace: defaultGrace, lastWords: time.Second, signals: true}
}

// WithEndpoint listens there: unix:///path/of/the/socket, or tcp://address:port together with WithTLSFiles. The default
// is the environment variable CLOUDPROVIDER_ENDPOINT, or else unix:///run/cloudprovider/provider.sock.
func WithEndpoint(endpoint string) ServeOption {
	return func(s *serving) { s.endpoint = endpoint }
}

// WithAllowedPeerUIDs allows these users to call over the Unix socket, instead of the provider's own user and root.
func WithAllowedPeerUIDs(uids ...uint32) ServeOption {
	return func(s *serving) { s.allowedUIDs = uids }
}

// WithTLSFiles sets the PEM files of mutual TLS; they are reloaded when they change.
func WithTLSFiles(certificate, key, clientCA string) ServeOption {
	return func(s *serving) { s.tls.Certificate, s.tls.Key, s.tls.ClientCA = certificate, key, clientCA }
}

// WithTLSClientNames sets DNS names or URIs, one of which a client's certificate must carry. By default any certificate of the
// authorities is accepted.
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

// WithShutdownGrace sets how long a stop waits for running mutations; 25 s by default.
func WithShutdownGrace(grace time.Duration) ServeOption {
	return func(s *serving) { s.grace = grace }
}

// WithoutSignals ignores signals: only Provider.Stop and the context stop the server. For tests, and for processes that
// do more.
func WithoutSignals() ServeOption {
	return func(s *serving) { s.signals = false }
}
