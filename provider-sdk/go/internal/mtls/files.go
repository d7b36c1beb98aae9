// Package mtls provides mutual TLS for TCP: every client presents a certificate signed by a trusted authority. Changed
// files are reloaded, so that rotation needs no restart.
package mtls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// Files names the PEM files, and the clients that may call.
type Files struct {
	Certificate, Key, ClientCA string
	// ClientNames are DNS names or URIs, one of which a client's certificate must carry; by default any certificate of the
	// authorities is accepted.
	ClientNames []string
}

// IsZero reports whether nothing is set.
func (f Files) IsZero() bool {
	return f.Certificate == "" && f.Key == "" && f.ClientCA == "" && len(f.ClientNames) == 0
}

// Config reads the files and returns a TLS 1.3 configuration that reloads changed ones at the next handshake. While
// they are unusable (half written, or a key that does not match yet), the last good ones stay in use.
func (f Files) Config(log *slog.Logger) (*tls.Config, error) {
	// The stamp is taken first: a change while loading is then noticed the next time.
	stamp, _ := f.stamp()
	config, err := f.load()
	if err != nil {
		return nil, err
	}
	current := &current{files: f, log: log, stamp: stamp, config: config}
	outer := config.Clone()
	outer.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return current.get(), nil }
	return outer, nil
}

func (f Files) load() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.Certificate, f.Key)
	if err != nil {
		return nil, fmt.Errorf("the certificate in %s and the key in %s cannot be used: %w", f.Certificate, f.Key, err)
	}
	authorities, err := os.ReadFile(f.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("cannot read the client authorities: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(authorities) {
		return nil, fmt.Errorf("the client authorities in %s cannot be used: the file contains no certificate", f.ClientCA)
	}
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{pair},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    pool,
		NextProtos:   []string{"h2"},
		VerifyConnection: func(state tls.ConnectionState) error {
			carries := func(name string) bool { return carries(state.PeerCertificates[0], name) }
			if len(f.ClientNames) == 0 || slices.ContainsFunc(f.ClientNames, carries) {
				return nil
			}
			return errors.New("the client's certificate carries no name of --tls-client-names")
		},
		// A ticket would admit a client of an authority that is no longer trusted.
		SessionTicketsDisabled: true,
	}, nil
}

// carries reports whether a certificate is for a DNS name, or for a URI to the letter.
func carries(certificate *x509.Certificate, name string) bool {
	if strings.Contains(name, "://") {
		return slices.ContainsFunc(certificate.URIs, func(uri *url.URL) bool { return uri.String() == name })
	}
	return certificate.VerifyHostname(name) == nil
}

// stamp shows that a file has been changed or replaced.
type stamp [3]struct {
	dev, inode       uint64
	size             int64
	modified, change syscall.Timespec
}

func (f Files) stamp() (found stamp, err error) {
	for i, path := range []string{f.Certificate, f.Key, f.ClientCA} {
		var file syscall.Stat_t
		if failed := syscall.Stat(path, &file); failed != nil {
			err = errors.Join(err, &os.PathError{Op: "stat", Path: path, Err: failed})
			continue
		}
		entry := &found[i]
		entry.dev, entry.inode, entry.size = file.Dev, file.Ino, file.Size
		entry.modified, entry.change = file.Mtim, file.Ctim
	}
	return found, err
}

type current struct {
	files  Files
	log    *slog.Logger
	mu     sync.Mutex
	stamp  stamp
	config *tls.Config
}

func (c *current) get() *tls.Config {
	c.mu.Lock()
	defer c.mu.Unlock()
	stamp, err := c.files.stamp()
	if err == nil && stamp != c.stamp {
		var config *tls.Config
		if config, err = c.files.load(); err == nil {
			c.log.Info("certificates were reloaded", "file", c.files.Certificate)
			c.stamp, c.config = stamp, config
		}
	}
	if err != nil {
		c.log.Warn("the last good certificates stay in use", "error", err)
	}
	return c.config
}
