//! Whether a Unix socket may be trusted: who could have put it there, and who could replace it.

use std::{
    fs::Metadata,
    io::ErrorKind,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use super::ConnectError;

const SOCKET_MODE: u32 = 0o660;
const DIR_MODE: u32 = 0o750;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
const PERMISSIONS: u32 = 0o7777;

/// Users that may own a socket and answer at it.
#[derive(Debug)]
pub(super) struct Trusted<'a> {
    pub(super) own: u32,
    allowed: &'a [u32],
}

impl<'a> Trusted<'a> {
    pub(super) fn new(allowed: &'a [u32]) -> Self {
        Self { own: rustix::process::geteuid().as_raw(), allowed }
    }

    pub(super) fn has(&self, uid: u32) -> bool {
        uid == self.own || uid == 0 || self.allowed.contains(&uid)
    }
}

/// Looks at the socket and at its directory.
pub(super) async fn check(path: &Path, trusted: &Trusted<'_>) -> Result<(), ConnectError> {
    // A link could be swapped between this look and the connection.
    let socket = tokio::fs::symlink_metadata(path).await.map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => ConnectError::NoSocket(path.to_owned()),
        _ => ConnectError::Unreadable { path: path.to_owned(), source },
    })?;
    if !socket.file_type().is_socket() {
        return Err(ConnectError::NotASocket(path.to_owned()));
    }
    safe("socket", path, &socket, WRITABLE_BY_OTHERS, SOCKET_MODE, trusted)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = tokio::fs::metadata(parent)
        .await
        .map_err(|source| ConnectError::Unreadable { path: parent.to_owned(), source })?;
    safe("directory", parent, &dir, WRITABLE_BY_OTHERS | WRITABLE_BY_GROUP, DIR_MODE, trusted)
}

fn safe(
    what: &'static str,
    path: &Path,
    seen: &Metadata,
    forbidden: u32,
    wanted: u32,
    trusted: &Trusted<'_>,
) -> Result<(), ConnectError> {
    let mode = seen.mode() & PERMISSIONS;
    if mode & forbidden != 0 {
        return Err(ConnectError::Mode { what, path: path.to_owned(), mode, wanted });
    }
    if !trusted.has(seen.uid()) {
        return Err(ConnectError::Owner { what, path: path.to_owned(), uid: seen.uid(), own: trusted.own });
    }
    Ok(())
}
