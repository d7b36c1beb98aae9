//! Decides whether a Unix socket can be trusted: who could have created it, and who could replace it.

use std::{
    fs::Metadata,
    io::ErrorKind,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

const SOCKET_MODE: u32 = 0o660;
const DIR_MODE: u32 = 0o750;
const WRITABLE_BY_OTHERS: u32 = 0o002;
const WRITABLE_BY_GROUP: u32 = 0o020;
const PERMISSIONS: u32 = 0o7777;

/// Why a socket is not used.
#[derive(Debug, thiserror::Error)]
pub(super) enum SocketError {
    #[error("no socket at {}: the provider is not running yet, or listens elsewhere", .0.display())]
    NoSocket(PathBuf),
    #[error("{} is not a socket", .0.display())]
    NotASocket(PathBuf),
    #[error("cannot inspect {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{what} {} has mode {mode:04o}, so that others could take its place: make it {wanted:04o} or stricter", path.display())]
    Mode { what: &'static str, path: PathBuf, mode: u32, wanted: u32 },
    #[error("{what} {} belongs to uid {uid}, which is neither this process' own ({own}) nor root nor allowed", path.display())]
    Owner { what: &'static str, path: PathBuf, uid: u32, own: u32 },
    #[error("the process that answers at {} runs as uid {uid}, which is neither this process' own ({own}) nor root nor allowed", path.display())]
    Peer { path: PathBuf, uid: u32, own: u32 },
}

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
pub(super) async fn check(path: &Path, trusted: &Trusted<'_>) -> Result<(), SocketError> {
    // A symlink could be swapped between this check and the connection.
    let socket = tokio::fs::symlink_metadata(path).await.map_err(|source| match source.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => SocketError::NoSocket(path.to_owned()),
        _ => SocketError::Unreadable { path: path.to_owned(), source },
    })?;
    if !socket.file_type().is_socket() {
        return Err(SocketError::NotASocket(path.to_owned()));
    }
    safe("socket", path, &socket, WRITABLE_BY_OTHERS, SOCKET_MODE, trusted)?;
    let parent = path.parent().unwrap_or(Path::new("/"));
    let dir = tokio::fs::metadata(parent)
        .await
        .map_err(|source| SocketError::Unreadable { path: parent.to_owned(), source })?;
    safe("directory", parent, &dir, WRITABLE_BY_OTHERS | WRITABLE_BY_GROUP, DIR_MODE, trusted)
}

/// Checks the peer's uid: the listening process may not run as the owner of the file.
pub(super) fn check_peer(path: &Path, uid: u32, trusted: &Trusted<'_>) -> Result<(), SocketError> {
    if trusted.has(uid) {
        return Ok(());
    }
    Err(SocketError::Peer { path: path.to_owned(), uid, own: trusted.own })
}

fn safe(
    what: &'static str,
    path: &Path,
    seen: &Metadata,
    forbidden: u32,
    wanted: u32,
    trusted: &Trusted<'_>,
) -> Result<(), SocketError> {
    let mode = seen.mode() & PERMISSIONS;
    if mode & forbidden != 0 {
        return Err(SocketError::Mode { what, path: path.to_owned(), mode, wanted });
    }
    if !trusted.has(seen.uid()) {
        return Err(SocketError::Owner { what, path: path.to_owned(), uid: seen.uid(), own: trusted.own });
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
        assert!(matches!(error, SocketError::Owner { what: "socket", uid, .. } if uid == owner), "{error}");
        let allowed = [owner];
        check(&path, &Trusted { own: owner + 1, allowed: &allowed }).await.unwrap();
    }
}
