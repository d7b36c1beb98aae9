package sdk

import (
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
)

// maxSocketPath is the longest path that every system supports.
const maxSocketPath = 100

// Endpoint is where a provider listens: a Unix socket, or TCP with mutual TLS. Plain TCP is not supported.
type Endpoint struct {
	// network is "unix" or "tcp".
	network, address string
}

// ParseEndpoint parses unix:///path/of/the/socket, an absolute path, or tcp://address:port. The error names the remedy.
func ParseEndpoint(text string) (Endpoint, error) {
	if strings.HasPrefix(text, "unix-abstract:") || strings.HasPrefix(text, "@") || strings.HasPrefix(text, "unix:@") {
		return Endpoint{}, fmt.Errorf("%q: abstract sockets have no file permissions; write unix:///path/of/the/socket", text)
	}
	if strings.HasPrefix(text, "http://") {
		return Endpoint{}, fmt.Errorf("plain TCP (%q) is not supported; use unix:///path, or tcp://address:port with the --tls flags", text)
	}
	if path, is := strings.CutPrefix(text, "unix:"); is {
		return unixEndpoint(strings.TrimPrefix(path, "//"))
	}
	for _, scheme := range []string{"tcp://", "https://"} {
		if address, is := strings.CutPrefix(text, scheme); is {
			return tcpEndpoint(strings.TrimSuffix(address, "/"))
		}
	}
	if strings.HasPrefix(text, "/") {
		return unixEndpoint(text)
	}
	return Endpoint{}, fmt.Errorf("%q is not an endpoint; use unix:///path/of/the/socket or tcp://address:port", text)
}

func unixEndpoint(path string) (Endpoint, error) {
	if !filepath.IsAbs(path) || strings.HasSuffix(path, "/") {
		return Endpoint{}, fmt.Errorf("%q is not the absolute path of a socket; write unix:///path/of/the/socket", path)
	}
	if len(path) > maxSocketPath {
		return Endpoint{}, fmt.Errorf("the socket path %q has %d bytes, at most %d work everywhere; use a shorter one",
			path, len(path), maxSocketPath)
	}
	return Endpoint{"unix", path}, nil
}

func tcpEndpoint(address string) (Endpoint, error) {
	host, port, err := net.SplitHostPort(address)
	if _, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || net.ParseIP(host) == nil {
		return Endpoint{}, fmt.Errorf("%q is not address:port; use for example tcp://127.0.0.1:7443", address)
	}
	return Endpoint{"tcp", address}, nil
}

// String returns the text that ParseEndpoint reads.
func (e Endpoint) String() string { return e.network + "://" + e.address }
