package sdk_test

import (
	"net"
	"os"
	"strings"
	"testing"

	"cloudprovider.ccm/sdk"
	pb "cloudprovider.ccm/sdk/gen/ccm/cloudprovider/v1alpha1"
	discovery "cloudprovider.ccm/sdk/gen/ccm/discovery/v1"
	"google.golang.org/grpc/codes"
)

func TestPeersWhoAreNotTrustedAreToldSo(t *testing.T) {
	own := uint32(os.Geteuid())
	for _, row := range []struct {
		allowed []uint32
		fine    bool
	}{{nil, true}, {[]uint32{own}, true}, {[]uint32{own + 7}, false}, {[]uint32{own + 7, own}, true}} {
		conn := serve(t, provider(t, &cloud{}), sdk.WithAllowedPeerUIDs(row.allowed...)).dial(t)
		_, err := pb.NewInstancesClient(conn).BatchGetInstances(soon(t), queries("a"))
		if row.fine && err != nil {
			t.Errorf("%v: %v", row.allowed, err)
		}
		if row.fine {
			continue
		}
		// The refusal comes before everything else, even Discovery.
		expect(t, err, codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_PEER_NOT_TRUSTED)
		_, err = discovery.NewDiscoveryClient(conn).GetInfo(soon(t), &discovery.GetInfoRequest{})
		expect(t, err, codes.Unauthenticated, pb.ErrorReason_ERROR_REASON_PEER_NOT_TRUSTED)
		if !strings.Contains(err.Error(), "--allowed-peer-uids") {
			t.Errorf("no remedy: %v", err)
		}
	}
}

func TestWhatIsInTheWayIsSaid(t *testing.T) {
	busy := socketPath(t)
	listener, err := net.Listen("unix", busy)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	files := sdk.WithTLSFiles("missing.pem", "missing.key", "missing-ca.pem")
	for want, options := range map[string][]sdk.ServeOption{
		"already in use":       {sdk.WithEndpoint(busy)},
		"at most 100 work":     {sdk.WithEndpoint("/" + strings.Repeat("x", 100))},
		"TCP needs mutual TLS": {sdk.WithEndpoint("tcp://127.0.0.1:0")},
		"has no TLS":           {sdk.WithEndpoint(socketPath(t)), files},
		"cannot be used":       {sdk.WithEndpoint("tcp://127.0.0.1:0"), files},
		"not an endpoint":      {sdk.WithEndpoint("ftp://x")},
		"--metrics-address":    {sdk.WithEndpoint(socketPath(t)), sdk.WithMetricsAddress("nowhere")},
	} {
		_, err := sdk.Listen(provider(t, &cloud{}), options...)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
