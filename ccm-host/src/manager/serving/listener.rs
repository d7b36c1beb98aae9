//! The serving port.

use std::io::{Error, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

/// Connections waiting to be accepted.
const BACKLOG: u32 = 128;

/// Binds the port. The unspecified address means all addresses, of both families if the node has both.
pub(crate) fn bind(wanted: SocketAddr, share: bool) -> Result<TcpListener, Error> {
    if wanted.ip() != IpAddr::V4(Ipv4Addr::UNSPECIFIED) {
        return bind_one(wanted, share);
    }
    match bind_one(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), wanted.port()), share) {
        Err(error) if error.kind() != ErrorKind::AddrInUse => bind_one(wanted, share),
        bound => bound,
    }
}

fn bind_one(address: SocketAddr, share: bool) -> Result<TcpListener, Error> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Connections of a process that just ended do not block the port.
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(share)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}
