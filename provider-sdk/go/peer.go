package sdk

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"

	"cloudprovider.ccm/sdk/fault"
	"cloudprovider.ccm/sdk/internal/unixsocket"
	"google.golang.org/grpc/credentials"
)

// PeerUnix is a process on the other side of the Unix socket, as reported by the kernel. Its pid is meaningless across
// pid namespaces.
type PeerUnix struct {
	credentials.CommonAuthInfo
	syscall.Ucred
}

// AuthType returns "unix".
func (PeerUnix) AuthType() string { return "unix" }

// unixCredentials pass on the peer of a Unix socket, whose file mode keeps others out.
type unixCredentials struct{}

func (unixCredentials) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	known, is := conn.(*unixsocket.Conn)
	if !is {
		return nil, nil, errors.New("the peer of the connection is unknown")
	}
	level := credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}
	return conn, PeerUnix{level, known.Peer}, nil
}

func (unixCredentials) ClientHandshake(context.Context, string, net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("these credentials are for servers")
}

func (unixCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "unix"}
}

func (u unixCredentials) Clone() credentials.TransportCredentials { return u }

func (unixCredentials) OverrideServerName(string) error { return nil }

// trusts reports whether the peer's user is among the allowed ones, by default the process's own user and root.
func trusts(allowed []uint32, conn net.Conn) bool {
	known, is := conn.(*unixsocket.Conn)
	if !is {
		return false
	}
	if len(allowed) == 0 {
		allowed = []uint32{uint32(os.Geteuid()), 0}
	}
	return slices.Contains(allowed, known.Peer.Uid)
}

func notTrusted(peer credentials.AuthInfo) error {
	if peer, is := peer.(PeerUnix); is {
		return fault.PeerNotTrusted(fmt.Sprintf("uid %d may not call; see --allowed-peer-uids of the provider", peer.Uid))
	}
	return fault.PeerNotTrusted("the peer is unknown")
}
