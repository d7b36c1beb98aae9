package sdk_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// authority signs certificates in a test.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	template := template(name)
	template.IsCA, template.BasicConstraintsValid, template.KeyUsage = true, true, x509.KeyUsageCertSign
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{certificate, key}
}

func (a *authority) sign(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key := newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, template(name), a.certificate, &key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, big.NewInt(1<<62))
	certificate := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if uri, err := url.Parse(name); err == nil && uri.Scheme != "" {
		certificate.URIs = []*url.URL{uri}
	} else {
		certificate.DNSNames = []string{name}
	}
	return certificate
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// files are a server's files, in their own directory.
type files struct{ certificate, key, ca string }

func newFiles(t *testing.T) files {
	folder := t.TempDir()
	return files{filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key"), filepath.Join(folder, "ca.crt")}
}

func (f files) write(t *testing.T, pair tls.Certificate, clients *authority) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	replace(t, f.key, "PRIVATE KEY", key)
	replace(t, f.ca, "CERTIFICATE", clients.certificate.Raw)
	replace(t, f.certificate, "CERTIFICATE", pair.Certificate[0])
}

// replace replaces a file by renaming, as the kubelet does for a mounted Secret.
func replace(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	err := os.WriteFile(path+".new", pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (f files) serve(t *testing.T, made *sdk.Provider, options ...sdk.ServeOption) string {
	t.Helper()
	options = append([]sdk.ServeOption{sdk.WithEndpoint("tcp://127.0.0.1:0"), sdk.WithTLSFiles(f.certificate, f.key, f.ca)}, options...)
	served := serve(t, made, options...)
	return strings.TrimPrefix(served.Endpoint().String(), "tcp://")
}

// call makes one call over its own connection.
func call(t *testing.T, address string, transport credentials.TransportCredentials) error {
	t.Helper()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(transport))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, done := context.WithTimeout(context.Background(), patience)
	defer done()
	_, err = pb.NewInstancesClient(conn).BatchGetInstances(ctx, queries("a"))
	return err
}

func client(server *authority, pairs ...tls.Certificate) *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(server.certificate)
	return &tls.Config{RootCAs: roots, Certificates: pairs}
}

func TestTCPIsMutualTLSOnly(t *testing.T) {
	ours, theirs, files := newAuthority(t, "ours"), newAuthority(t, "theirs"), newFiles(t)
	files.write(t, ours.sign(t, "server"), ours)
	peers := make(chan string, 1)
	cloud := &cloud{batchGet: func(ctx context.Context, _ *pb.BatchGetInstancesRequest) (*pb.BatchGetInstancesResponse, error) {
		called, _ := sdk.CallFrom(ctx)
		peers <- called.Peer.(credentials.TLSInfo).State.PeerCertificates[0].Subject.CommonName
		return &pb.BatchGetInstancesResponse{}, nil
	}}
	address := files.serve(t, provider(t, cloud))
	if err := call(t, address, credentials.NewTLS(client(ours, ours.sign(t, "host")))); err != nil {
		t.Fatal(err)
	}
	if name := receive(t, peers, "the peer"); name != "host" {
		t.Errorf("the peer is %q", name)
	}
	old := client(ours, ours.sign(t, "host"))
	old.MaxVersion = tls.VersionTLS12
	for name, transport := range map[string]credentials.TransportCredentials{
		"plain":             insecure.NewCredentials(),
		"no certificate":    credentials.NewTLS(client(ours)),
		"another authority": credentials.NewTLS(client(ours, theirs.sign(t, "host"))),
		"an old version":    credentials.NewTLS(old),
	} {
		t.Run(name, func(t *testing.T) { expect(t, call(t, address, transport), codes.Unavailable, 0) })
	}
}

func TestAClientMustCarryANameThatIsAskedFor(t *testing.T) {
	ours, theirs, files := newAuthority(t, "ours"), newAuthority(t, "theirs"), newFiles(t)
	files.write(t, ours.sign(t, "server"), ours)
	address := files.serve(t, provider(t, &cloud{}), sdk.WithTLSClientNames("other", "host", "spiffe://cluster.local/ccm"))
	if err := call(t, address, credentials.NewTLS(client(ours, ours.sign(t, "host")))); err != nil {
		t.Fatal(err)
	}
	if err := call(t, address, credentials.NewTLS(client(ours, ours.sign(t, "spiffe://cluster.local/ccm")))); err != nil {
		t.Fatal(err)
	}
	expect(t, call(t, address, credentials.NewTLS(client(ours, ours.sign(t, "stranger")))), codes.Unavailable, 0)
	expect(t, call(t, address, credentials.NewTLS(client(ours, ours.sign(t, "spiffe://cluster.local/ccm/other")))), codes.Unavailable, 0)
	expect(t, call(t, address, credentials.NewTLS(client(ours, theirs.sign(t, "host")))), codes.Unavailable, 0)
}

func TestCertificatesAreReadAgain(t *testing.T) {
	before, after, files := newAuthority(t, "before"), newAuthority(t, "after"), newFiles(t)
	files.write(t, before.sign(t, "server"), before)
	address := files.serve(t, provider(t, &cloud{}))
	host := credentials.NewTLS(client(before, before.sign(t, "host")))
	if err := call(t, address, host); err != nil {
		t.Fatal(err)
	}
	// Half of a rotation: the last good files stay in use.
	replace(t, files.key, "PRIVATE KEY", []byte("half written"))
	if err := call(t, address, host); err != nil {
		t.Fatalf("a broken file ended the service: %v", err)
	}
	files.write(t, after.sign(t, "server"), after)
	if err := call(t, address, credentials.NewTLS(client(after, after.sign(t, "host")))); err != nil {
		t.Errorf("the new certificates are not in use: %v", err)
	}
	if err := call(t, address, host); err == nil {
		t.Error("the former authority is trusted still")
	}
}
