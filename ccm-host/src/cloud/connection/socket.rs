//! Decides whether a Unix socket can be trusted: who could have created it, and who could replace it.

use std::{
    fs::Metadata,
    io::ErrorKind,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::Path,
};

use super::connect::ConnectError;

const SOCKET_MODE: u32 = 0o660;
const DIR_MODE: u32 = 0o750;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
const PERMISSIONS: u32 = 0o7777;

/// Users that may own a socket and answer on it.
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

/// Checks the socket and its directory.
pub(super) async fn check(path: &Path, trusted: &Trusted<'_>) -> Result<(), ConnectError> {
    // A symlink could be swapped between this check and the connection.
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

/// Checks the peer's uid: the listening process may not run as the owner of the file.
pub(super) fn check_peer(path: &Path, uid: u32, trusted: &Trusted<'_>) -> Result<(), ConnectError> {
    if trusted.has(uid) {
        return Ok(());
    }
    Err(ConnectError::Peer { path: path.to_owned(), uid, own: trusted.own })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_user_root_and_who_is_allowed_are_trusted() {
        let trusted = Trusted { own: 1000, allowed: &[2000] };
        for (uid, want) in [(1000, true), (0, true), (2000, true), (2001, false), (65_534, false)] {
            assert_eq!(trusted.has(uid), want, "{uid}");
            assert_eq!(check_peer(Path::new("/s"), uid, &trusted).is_ok(), want, "{uid}");
        }
    }

    #[tokio::test]
    async fn a_socket_of_a_stranger_is_not_trusted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let seen = std::fs::metadata(&path).unwrap();
        if seen.uid() == 0 {
            // Everybody trusts what root owns; only root can give a file away.
            std::os::unix::fs::chown(&path, Some(4242), None).unwrap();
        }
        let owner = std::fs::metadata(&path).unwrap().uid();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o660)).unwrap();
        let stranger = Trusted { own: owner + 1, allowed: &[] };
        let error = check(&path, &stranger).await.unwrap_err();
        assert!(matches!(error, ConnectError::Owner { what: "socket", uid, .. } if uid == owner), "{error}");
        let allowed = [owner];
        check(&path, &Trusted { own: owner + 1, allowed: &allowed }).await.unwrap();
    }
}
